"""Servers of ZooKeeper that become more, or fewer: one at a time, and ZooKeeper serves on.

What is decided here is two numbers: how many pods there are, and how many servers are to be
members of the ensemble. The servers themselves do the rest (`manifests.zookeeper_members`), and a
server is ready only while it is a member: that is all that is looked at. Both numbers are read off
the objects that have them, so that an operator that has just begun goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_operator.manifests.zookeeper_members import FOUNDERS, MEMBERS, ServerNumbers
from imago_operator.model import names
from imago_operator.model.state import STATEFUL_SET

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_operator.model.desired import Desired
    from imago_operator.model.state import Observed, Pod


def numbers(
    desired: Desired, observed: Observed, is_outdated: Callable[[Pod], bool]
) -> ServerNumbers | None:
    """Return how many servers there are to be now; None: ZooKeeper is not ours."""
    managed = desired.spec.zookeeper.managed
    if managed is None:
        return None
    there, told = _there(desired, observed), _told(desired, observed)
    if told is None:
        many = there or managed.replicas
        return ServerNumbers(many, many, many)
    there = there or told.members
    now = ServerNumbers(there, min(told.members, there), _founders(observed, told, there))
    if obstacle(desired, observed, is_outdated, now):
        return now
    if now.members < there:
        # The last is no member any more, or does not run: ZooKeeper does without it.
        return ServerNumbers(there - 1, there - 1, min(now.founders, there - 1))
    if managed.replicas > there:
        return ServerNumbers(there + 1, there + 1, now.founders)
    if managed.replicas < there:
        return ServerNumbers(there, there - 1, min(now.founders, there - 1))
    return now


def obstacle(
    desired: Desired, observed: Observed, is_outdated: Callable[[Pod], bool], now: ServerNumbers
) -> str:
    """Return what the next change waits for; empty: nothing."""
    managed = desired.spec.zookeeper.managed
    assert managed is not None
    pods = observed.pods_of(None)
    if desired.spec.hibernated or desired.problem is not None:
        return "the spec to have it awake"
    if desired.resource.fenced and min(now.members, managed.replicas) < now.there:
        return "the fence to be lifted"
    # One that is too many may leave whether or not it ever joined.
    many = now.members if managed.replicas >= now.there else min(now.members, now.there - 1)
    staying = [pod for pod in pods if pod.ordinal < many]
    if len(staying) < many or not all(pod.serving for pod in staying):
        return "every server to serve as a member"
    if now.founders < many:
        return "the new server to be known"
    leaving = [pod for pod in pods if pod.ordinal >= now.members]
    if any(pod.serving for pod in leaving) and now.members < now.there:
        return f"{leaving[0].name} to be a member no more"
    if any(pod.deleting or pod.ordinal >= now.there for pod in pods):
        return f"{pods[-1].name} to be gone"
    if managed.replicas != now.there and any(is_outdated(pod) for pod in staying):
        return "its servers to have today's template: imago.dev/approve, where a restart waits"
    return ""


def _there(desired: Desired, observed: Observed) -> int:
    """Return how many servers there are: by their set, or, while that is made anew, their pods."""
    found = observed.child(STATEFUL_SET, names.zookeeper(desired.name))
    if found is not None and found.replicas:
        return found.replicas
    return max((p.ordinal + 1 for p in observed.pods_of(None) if not p.deleting), default=0)


def _told(desired: Desired, observed: Observed) -> ServerNumbers | None:
    """Return what servers are told; None: nothing, or by an operator that could not change it."""
    file = observed.child("ConfigMap", f"{names.zookeeper(desired.name)}-config")
    said = {} if file is None else file.live.get("data", {})
    try:
        members, founders = (int(said[key]) for key in (MEMBERS, FOUNDERS))
    except (KeyError, ValueError):
        return None
    return ServerNumbers(members, members, founders) if 0 < founders <= members else None


def _founders(observed: Observed, told: ServerNumbers, there: int) -> int:
    """Return who may begin an ensemble: those before, and the next one once it is a member."""
    members = min(told.members, there)
    next_one = any(p.ordinal == told.founders and p.serving for p in observed.pods_of(None))
    return min(told.founders + next_one, members)
