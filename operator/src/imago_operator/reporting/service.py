"""Whether clients of a shard can put and get now: what its master says, and nothing older.

The master answers by what it checks requests with. Of one that does not say, being older, it is
told by its disk and by who is in sync.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from imago_operator.model.state import ConditionFinding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_operator.model.state import Pod, Shard
    from imago_operator.plan.look import ClusterLook

ACCEPTED: Final = "Accepted"
REFUSED: Final = "Refused"
UNKNOWN: Final = "Unknown"
NO_MASTER: Final = "it has no master"
ASLEEP: Final = "the cluster hibernates"
NOBODY: Final = "no broker of the cluster answers the operator"
SILENT: Final = "its master does not answer the operator"
SERVED: Final = "EveryShardHasMaster"
HIBERNATED: Final = "Hibernated"
FENCED: Final = "Fenced"
SHUT: Final = "all of its members are fenced"


@dataclass(frozen=True, slots=True)
class Served:
    """What clients of one shard get."""

    shard: int
    puts: str
    gets: str
    why: str = ""


def served(look: ClusterLook, number: int) -> Served:
    """Return what clients of a shard get."""
    shard, registry = look.shard(number), look.observed.registry
    if number in look.sleeping:
        return Served(number, REFUSED, REFUSED, ASLEEP)
    if _is_shut(look, number):
        return Served(number, REFUSED, REFUSED, SHUT)
    if look.strange or (registry is None and look.observed.status.cluster_id is not None):
        return Served(number, UNKNOWN, UNKNOWN, NOBODY)
    leads = _leads(look, number)
    if leads is None and shard is not None and shard.master is not None:
        return Served(number, UNKNOWN, UNKNOWN, SILENT)
    if leads is None or shard is None:
        return Served(number, REFUSED, REFUSED, NO_MASTER)
    unput, unread = _unput(look, leads, shard), _unread(leads)
    return Served(
        number,
        REFUSED if unput else ACCEPTED,
        REFUSED if unread else ACCEPTED,
        "; ".join(dict.fromkeys(filter(None, (unput, unread)))),
    )


def _is_shut(look: ClusterLook, number: int) -> bool:
    pods = look.observed.pods_of(number)
    return bool(pods) and all(pod.fenced for pod in pods)


def _leads(look: ClusterLook, number: int) -> Pod | None:
    """Return the pod of a shard's master that answers; None: there is none.

    Without ZooKeeper brokers cannot tell who leads: then it is the one that says so of itself.
    """
    shard, registry = look.shard(number), look.observed.registry
    pods = [(pod, pod.broker) for pod in look.observed.pods_of(number)]
    if shard is None or registry is None:
        return None
    if registry.connected:
        return next((pod for pod, said in pods if said and said.uuid == shard.master), None)
    return next((pod for pod, said in pods if said and said.role == "master"), None)


def _unput(look: ClusterLook, leads: Pod, shard: Shard) -> str:
    """Return why messages are refused; empty: they are taken."""
    assert leads.broker is not None
    if leads.broker.puts is not None:
        return leads.broker.puts.why
    if leads.broker.full:
        return f"the disk of {leads.name} is full"
    waits = look.desired.acknowledgement.value.startswith("replicated")
    few = waits and len(shard.in_sync) < look.desired.min_in_sync
    return "too few members are in sync" if few else ""


def _unread(leads: Pod) -> str:
    assert leads.broker is not None
    return leads.broker.gets.why if leads.broker.gets is not None else ""


def available(look: ClusterLook) -> ConditionFinding:
    """Say whether clients can put and get on every shard that is to stay."""
    if not look.sleeping.isdisjoint(look.targets):
        return _said(False, HIBERNATED, f"{ASLEEP.capitalize()}: no broker runs.")
    if shut := [n for n in look.targets if _is_shut(look, n)]:
        return _said(False, FENCED, f"{', '.join(f'shard-{n}' for n in shut)}: {SHUT}.")
    if look.observed.registry is None and look.observed.status.cluster_id is not None:
        text = "No broker answered the operator; clients may be served all the same."
        return _said(None, "NoBrokerAnswers", text)
    found = [served(look, n) for n in look.targets]
    if without := [one for one in found if one.why == NO_MASTER]:
        listed = ", ".join(f"shard-{one.shard}" for one in without)
        text = f"{listed} {'has' if len(without) == 1 else 'have'} no master."
        return _said(False, "ShardWithoutMaster", text)
    for reason, holds, concerned in (
        ("GetsRefused", False, [one for one in found if one.gets == REFUSED]),
        ("PutsRefused", False, [one for one in found if one.puts == REFUSED]),
        ("MasterSilent", None, [one for one in found if one.puts == UNKNOWN]),
    ):
        if concerned:
            return _said(holds, reason, _listed(concerned))
    return _said(True, SERVED, "")


def _listed(found: Iterable[Served]) -> str:
    return "; ".join(f"shard-{one.shard}: {one.why}" for one in found) + "."


def _said(holds: bool | None, reason: str, text: str) -> ConditionFinding:
    return ConditionFinding(type="Available", holds=holds, reason=reason, message=text)
