"""One look at a cluster, changed here and there; and what a plan of it does."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from imago_operator.model.actions import DeletePod, Handover
from imago_operator.model.state import written
from imago_operator.spec.cluster.cluster_status import ReconcileProgress
from imago_testing.operated.resources import wanted
from imago_testing.operated.things import START
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    from imago_operator.model.state import Observed
    from imago_operator.plan import ReconcilePlan


def running(changes: dict[str, Any] | None = None) -> Observed:
    """Return what is seen of a cluster with nothing to do."""
    world = ClusterWorld(wanted(changes))
    world.settle()
    return world.observe()


def changed(seen: Observed, name: str, **values: Any) -> Observed:
    """Return the same look with one pod changed."""
    pods = tuple(replace(p, **values) if p.name == name else p for p in seen.pods)
    return replace(seen, pods=pods)


def answering(seen: Observed, name: str, **values: Any) -> Observed:
    pod = next(p for p in seen.pods if p.name == name)
    assert pod.broker is not None
    return changed(seen, name, broker=replace(pod.broker, **values))


def lacking(seen: Observed, *pods: str) -> Observed:
    """Return the same look with members that are not in sync."""
    assert seen.registry is not None
    uuids = {p.broker.uuid for p in seen.pods if p.name in pods and p.broker}
    shards = {
        n: replace(
            shard,
            members=tuple(
                replace(m, in_sync=m.in_sync and m.uuid not in uuids) for m in shard.members
            ),
        )
        for n, shard in seen.registry.shards.items()
    }
    return replace(seen, registry=replace(seen.registry, shards=shards))


def down(seen: Observed, *pods: str) -> Observed:
    """Return the same look with members that do not answer and are not in sync."""
    seen = lacking(seen, *pods)
    for name in pods:
        seen = changed(seen, name, ready=False, broker=None)
    return seen


def unready(seen: Observed, seconds: float, *pods: str) -> Observed:
    """Return the same look with pods that have not been ready for a while; none named: all."""
    for pod in seen.pods:
        if pod.shard is not None and (not pods or pod.name in pods):
            seen = changed(seen, pod.name, ready=False, turned=START - timedelta(seconds=seconds))
    return seen


def taken(found: ReconcilePlan) -> list[str]:
    return sorted(
        a.name if isinstance(a, DeletePod) else a.pod
        for a in found.actions
        if isinstance(a, (DeletePod, Handover))
    )


def leaderless(seen: Observed, *, in_sync: bool) -> Observed:
    assert seen.registry is not None
    shard = seen.registry.shards[0]
    members = tuple(replace(m, in_sync=in_sync) for m in shard.members)
    shards = {**seen.registry.shards, 0: replace(shard, master=None, members=members)}
    return replace(seen, registry=replace(seen.registry, shards=shards))


def waited(seen: Observed, key: str, seconds: float) -> Observed:
    since = written(START - timedelta(seconds=seconds))
    progress = ReconcileProgress(row="x", step=key, since=since)
    return replace(seen, status=replace(seen.status, progress=progress))


def reasons(found: ReconcilePlan) -> set[str]:
    return {finding.reason for finding in found.findings}


def of(found: ReconcilePlan, kind: type) -> list[Any]:
    return [action for action in found.actions if isinstance(action, kind)]
