"""What of a look is worth an event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_operator.model.actions import (
    Cordon,
    DeleteChild,
    DeleteClaim,
    DeletePod,
    Elect,
    FenceMember,
    Handover,
    Hibernate,
    MarkDrained,
    OwnClaim,
    RaiseLevel,
    Stop,
    destructive,
)
from imago_operator.reasons import find
from imago_operator.reporting.room import DELETED_FOR_ROOM, stretches
from imago_operator.reporting.service import FENCED, HIBERNATED
from imago_operator.reporting.status import GOOD, MESSAGE_MAX
from imago_operator.spec.kinds import CLUSTER
from imago_operator.spec.schema.common import Condition, ConditionStatus

if TYPE_CHECKING:
    from imago_operator.model.actions import Action
    from imago_operator.plan.rows import ReconcilePlan
    from imago_operator.spec.cluster.cluster_status import ClusterStatus


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, for `kubectl describe`."""

    type: str
    """Normal or Warning."""
    reason: str
    message: str


def events_of(
    before: ClusterStatus, after: ClusterStatus, plan: ReconcilePlan
) -> tuple[Event, ...]:
    """Return what is worth an event: conditions that changed, and what was taken away."""
    old = {c.type: (c.status, c.reason) for c in before.conditions}
    found = [
        Event(_severity(c), c.reason, c.message or _meaning(c))
        for c in after.conditions
        if old.get(c.type) != (c.status, c.reason) and c.type != "Reconciling"
    ]
    found += [Event("Warning", DELETED_FOR_ROOM, text) for text in stretches(before, after)]
    found += [
        Event("Normal", type(action).__name__, told(action)[:MESSAGE_MAX])
        for action in destructive(plan.actions)
    ]
    return tuple(found)


def _meaning(condition: Condition) -> str:
    """Return what the runbook says of a condition that has nothing to add."""
    entry = find(CLUSTER.name, condition.type, condition.reason)
    return entry.means if entry else condition.type


def _severity(condition: Condition) -> str:
    bad = (condition.type in GOOD) == (condition.status is not ConditionStatus.TRUE)
    calm = {"Updating", "ScalingDown", "UpdatePending", "Paused", HIBERNATED, FENCED}
    usual = {"Applying", "BrokersStarting", "Expanding", "Deleting", "Paused", "RestartsPending"}
    usual |= {HIBERNATED, FENCED}
    known = condition.type in calm or condition.reason in usual
    return "Warning" if bad and not known else "Normal"


# What the operator did to a cluster, in words for events.


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
        case FenceMember(pod=pod, shard=shard):
            return f"{pod} of shard-{shard} is fenced: it keeps its log, and serves nobody."
        case Cordon(shard=shard):
            return f"shard-{shard} takes no new topics."
        case RaiseLevel(level=level):
            return f"Feature level {level} is switched on: brokers without it do not start."
        case MarkDrained(shard=shard):
            return f"shard-{shard} is recorded as drained."
        case _:
            return ""
