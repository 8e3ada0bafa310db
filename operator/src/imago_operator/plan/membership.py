"""How the members of a shard stand: who could lead, who must not be taken, what is disturbed.

Readiness decides nothing here: a pause of ZooKeeper or a full disk makes every pod of a cluster
unready while all of them hold what was acknowledged. What counts is who is in sync, by the registry
and by the broker's own word. All of it is read off what is seen, so that an operator that has just
begun counts what the one before it has done: a pod that was deleted is going, missing or not back
in sync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_operator.model.state import Pod
    from imago_operator.plan.look import ClusterLook

UNREADY_S: Final = 60.0
"""How long a member in sync is waited for that is not ready: a restart may be what cures it."""


def able(look: ClusterLook, pod: Pod) -> bool:
    """Whether the member could lead its shard: it answers, stays, and is in sync."""
    shard = None if pod.shard is None else look.shard(pod.shard)
    if pod.broker is None or pod.deleting or shard is None:
        return False
    # A member that has just begun again is known by its uuid before it has caught up.
    return pod.broker.caught_up and pod.broker.uuid in shard.in_sync


def needed(look: ClusterLook, pod: Pod) -> bool:
    """Whether the member is, or may be, in sync: one that is silent is not therefore gone."""
    shard = None if pod.shard is None else look.shard(pod.shard)
    if shard is None or pod.stuck:
        return False
    if pod.broker is not None:
        return pod.broker.uuid in shard.in_sync
    answering = {p.broker.uuid for p in look.observed.pods_of(pod.shard) if p.broker}
    return bool(shard.in_sync - answering)


def fence_orders(look: ClusterLook) -> Mapping[str, bool]:
    """Return pods of brokers that are to be fenced, and whether clients may be refused for it."""
    found = {name.removesuffix("!"): name.endswith("!") for name in look.desired.resource.fenced}
    if found.pop("*", None) is None:
        return found
    every = [pod.name for pod in look.observed.pods if pod.shard is not None]
    return found | dict.fromkeys(every, True)


def fenced_whole(look: ClusterLook, shard: int | None) -> bool:
    """Whether all members of a shard are to be fenced: nobody is served there."""
    pods = () if shard is None else look.observed.pods_of(shard)
    return bool(pods) and fence_orders(look).keys() >= {pod.name for pod in pods}


def overdue(look: ClusterLook, pod: Pod) -> bool:
    """Whether the pod has had all the time that the policy gives it to be ready."""
    return unready_for(look, pod) >= look.desired.spec.update_policy.ready_timeout.seconds


def never_runs(look: ClusterLook, pod: Pod) -> bool:
    """Whether the pod does not run and will not by itself: nothing is lost with it."""
    if pod.serving or pod.deleting or pod.broker is not None:
        return False
    return pod.stuck or (pod.waiting is not None and overdue(look, pod))


def lacks(look: ClusterLook, number: int) -> str:
    """Return what a shard waits for until one of its members may go; empty: nothing."""
    pods = look.observed.pods_of(number)
    if _misses(look, number):
        return f"shard-{number}: a missing pod to be ready"
    behind = [pod for pod in pods if not able(look, pod)]
    unready = [p for p in pods if not p.ready and unready_for(look, p) < UNREADY_S]
    if behind:
        return f"shard-{number}: {_listed(behind)} to be in sync"
    return f"shard-{number}: {_listed(unready)} to be ready" if unready else ""


def restarts(look: ClusterLook, number: int) -> bool:
    """Whether a restart in the shard is under way: a pod goes, is missing, or has just come.

    One that has had its time to be ready is no longer waited for.
    """
    pods = look.observed.pods_of(number)
    going = [pod for pod in pods if pod.deleting or not (able(look, pod) or look.outdated(pod))]
    return _misses(look, number) or any(not overdue(look, pod) for pod in going)


def _misses(look: ClusterLook, number: int) -> bool:
    """Whether a pod that is to be there is not; one that is to leave does not stand in for it."""
    there = {pod.ordinal for pod in look.observed.pods_of(number)}
    return not there.issuperset(range(look.desired.replicas))


def others_able(look: ClusterLook, pod: Pod) -> bool:
    """Whether every other member of the shard is there and could lead."""
    others = _others(look, pod)
    return len(others) + 1 >= look.desired.replicas and all(able(look, other) for other in others)


def another_goes(look: ClusterLook, pod: Pod) -> bool:
    """Whether another pod beside it is being deleted."""
    return any(other.deleting for other in _others(look, pod))


def _others(look: ClusterLook, pod: Pod) -> list[Pod]:
    return [other for other in look.observed.pods_of(pod.shard) if other.name != pod.name]


def unready_for(look: ClusterLook, pod: Pod) -> float:
    """Return for how many seconds a pod has not been ready; 0 where that is not known."""
    if pod.ready or pod.turned is None:
        return 0.0
    return (look.now - pod.turned).total_seconds()


def _listed(pods: Iterable[Pod]) -> str:
    return ", ".join(pod.name for pod in pods)
