"""What the operator did to a cluster, in words for events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_operator.model.actions import (
    Cordon,
    DeleteChild,
    DeleteClaim,
    DeletePod,
    Elect,
    Handover,
    Hibernate,
    MarkDrained,
    OwnClaim,
    Stop,
)

if TYPE_CHECKING:
    from imago_operator.model.actions import Action


def told(action: Action) -> str:
    """Return what an action does, for people."""
    return _told_of_objects(action) or _told_of_brokers(action) or f"{action}"


def _told_of_objects(action: Action) -> str:
    match action:
        case DeletePod(name=name, why=why):
            return f"Pod {name} is deleted: {why}."
        case DeleteChild(kind=kind, name=name, orphan=orphan):
            return f"{kind} {name} is {'made anew; its pods stay' if orphan else 'deleted'}."
        case DeleteClaim(name=name, shard=shard):
            return f"Claim {name} of shard-{shard} is deleted."
        case OwnClaim(name=name, owned=owned):
            return f"Claim {name} {'goes with the cluster' if owned else 'stays without it'}."
        case Hibernate(shard=None):
            return "The servers of ZooKeeper are stopped: the cluster hibernates."
        case Hibernate(shard=shard):
            return f"The pods of shard-{shard} are stopped: the cluster hibernates."
        case Stop(shard=shard):
            return f"The pods of shard-{shard} are stopped."
        case _:
            return ""


def _told_of_brokers(action: Action) -> str:
    match action:
        case Handover(pod=pod, shard=shard):
            return f"{pod} hands over leadership of shard-{shard}."
        case Elect(pod=pod, shard=shard):
            return f"{pod} leads shard-{shard}, though messages may be lost."
        case Cordon(shard=shard):
            return f"shard-{shard} takes no new topics."
        case MarkDrained(shard=shard):
            return f"shard-{shard} is recorded as drained."
        case _:
            return ""
