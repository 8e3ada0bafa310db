"""What a cluster's status says in each case of the operator: told from a life of one cluster."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from imago_operator.model import names
from imago_operator.model.accepted import in_force
from imago_operator.model.desired import Desired, desired_of
from imago_operator.model.state import TopicNeeds, written
from imago_operator.plan import PlanRow, plan
from imago_operator.plan.restarts.staging import staged
from imago_operator.reporting.status import status_of
from imago_operator.spec.schema.fields import to_json
from imago_testing.operated.resources import OPERATOR, resource, wanted
from imago_testing.operated.things import START
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_operator.model.desired import UnreadableSpec
    from imago_operator.model.state import Observed

GROWN: Final = {"spec.brokers.storage.size": "20Gi"}
FILLED: Final = {"spec.brokers.shards": 3, "spec.scaleUp": {"fill": True}}


def by_row() -> dict[str, dict[str, Any]]:
    """Return an ImagoCluster for each case by its title: the first time that it decides."""
    found: dict[str, dict[str, Any]] = {}
    for manifest in _told():
        found.setdefault(manifest["status"]["progress"]["row"], manifest)
    order = [row.title for row in PlanRow]
    return {title: found[title] for title in sorted(found, key=order.index)}


def _told() -> Iterator[dict[str, Any]]:
    world = ClusterWorld(wanted())
    yield from _life(world)
    orders = {names.PAUSE: "true"}
    yield _manifest(wanted({}, orders), world.observe(), {}, orders)
    change = {"spec.brokers.shards": 99}
    wrong = {**resource(change), "status": to_json(world.status)}
    yield _manifest(in_force(wrong, OPERATOR), world.observe(), change)
    yield _manifest(world.desired, replace(world.observe(), synced=False))
    yield _deleted(world)
    asleep = copy.deepcopy(world)
    change = {"spec.hibernated": True}
    asleep.desired = wanted(change)
    yield from _life(asleep, change, PlanRow.HIBERNATING)
    yield from _faults(world)
    yield from _edits(world)


def _faults(world: ClusterWorld) -> Iterator[dict[str, Any]]:
    world.zookeeper = False
    yield _manifest(world.desired, world.observe())
    world.zookeeper = True
    seen = world.observe()
    assert seen.registry is not None
    shards = dict(seen.registry.shards)
    members = tuple(replace(member, in_sync=False) for member in shards[1].members)
    shards[1] = replace(shards[1], master=None, members=members)
    yield _manifest(world.desired, replace(seen, registry=replace(seen.registry, shards=shards)))
    pods = tuple(replace(p, role_label="slave") for p in seen.pods)
    yield _manifest(world.desired, replace(seen, pods=pods))
    down = tuple(replace(p, ready=p.name != "demo-s1-2") for p in seen.pods)
    yield _manifest(world.desired, replace(seen, pods=down))
    stuck = tuple(
        replace(p, ready=False, waiting="ImagePullBackOff", annotations={}, broker=None)
        if p.name == "demo-s1-2"
        else p
        for p in seen.pods
    )
    yield _manifest(world.desired, replace(seen, pods=stuck))
    yield _lost(world, seen)
    orders = {names.FENCED: "demo-s1-2"}
    held = tuple(
        replace(p, ready=False, broker=replace(p.broker, fenced=True, role="fenced"))
        if p.name == "demo-s1-2" and p.broker
        else p
        for p in seen.pods
    )
    yield _manifest(wanted({}, orders), replace(seen, pods=held), {}, orders)
    unknown = replace(seen.status, cluster_id=None)
    silent = tuple(replace(p, broker=None) for p in seen.pods)
    yield _manifest(world.desired, replace(seen, registry=None, pods=silent, status=unknown))
    yield from _additions(world, seen)


def _additions(world: ClusterWorld, seen: Observed) -> Iterator[dict[str, Any]]:
    """What only adds something: a setting, queues on a shard that has just begun to serve."""
    other = tuple(
        replace(p, broker=replace(p.broker, config=dict.fromkeys(p.broker.config, 5)))
        if p.broker and p.name == "demo-s0-1"
        else p
        for p in seen.pods
    )
    yield _manifest(world.desired, replace(seen, pods=other))
    began = tuple(replace(s, master=None) if s.id == 1 else s for s in seen.status.shards)
    fill = {"spec.scaleUp": {"fill": True}}
    status = replace(seen.status, shards=began)
    yield _manifest(wanted(fill), replace(seen, status=status), fill)


def _lost(world: ClusterWorld, seen: Observed) -> dict[str, Any]:
    """The node of a member is gone, and its volume was on that node."""
    claims = tuple(
        replace(c, node="node-9") if c.name == "data-demo-s0-2" else c for c in seen.claims
    )
    pods = tuple(p for p in seen.pods if p.name != "demo-s0-2")
    return _manifest(world.desired, replace(seen, claims=claims, pods=pods))


def _edits(world: ClusterWorld) -> Iterator[dict[str, Any]]:
    settings = {"spec.brokers.config": {"store.scrub_interval_ms": 5}}
    for change in (settings, GROWN, {"spec.image": "mine:2"}):
        world.desired = wanted(change)
        yield from _life(world, change)
    world.desired = wanted(FILLED)
    yield from _life(world, FILLED)
    less = {"spec.brokers.shards": 2}
    world.desired = wanted(less)
    _look(world, less)  # what filled the shard that goes is ended
    pinned = replace(world.observe(), topics=(TopicNeeds(name="orders", shard_ids=(2,)),))
    yield _manifest(world.desired, pinned, less)
    world.unread = 40
    for _ in range(4):
        yield _look(world, less)
    world.desired = wanted(FILLED)
    yield from _life(world, FILLED)
    world.behind = 2
    more = FILLED | {"spec.brokers.replicasPerShard": 5}
    world.desired = wanted(more)
    yield from _life(world, more)
    fast = FILLED | {"spec.brokers.storage.storageClassName": "fast"}
    world.desired = wanted(fast)
    yield from _life(world, fast)
    servers = fast | {"spec.zookeeper.managed.replicas": 5}
    world.desired = wanted(servers)
    yield from _life(world, servers)


def _life(
    world: ClusterWorld,
    change: dict[str, Any] | None = None,
    end: PlanRow = PlanRow.SETTLED,
) -> Iterator[dict[str, Any]]:
    """Look until nothing is left to do."""
    for _ in range(200):
        told = _look(world, change)
        progress = told["status"]["progress"]
        yield told
        if progress["row"] == end.title and "waitsFor" not in progress and not world.pods:
            return
        if progress["row"] == end.title == PlanRow.SETTLED.title:
            return
    raise AssertionError("does not settle")


def _look(world: ClusterWorld, change: dict[str, Any] | None = None) -> dict[str, Any]:
    seen, _ = world.look()
    told = _manifest(world.desired, seen, change)
    world.turn()
    return told


def _deleted(world: ClusterWorld) -> dict[str, Any]:
    manifest = resource()
    manifest["metadata"]["deletionTimestamp"] = written(START)
    return _manifest(desired_of(manifest, OPERATOR), world.observe())


def _manifest(
    desired: Desired | UnreadableSpec,
    seen: Observed,
    change: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return the resource with the status that a look gives it."""
    desired = staged(desired, seen) if isinstance(desired, Desired) else desired
    status = status_of(desired, seen, plan(desired, seen, START), START)
    return {**resource(change, annotations), "status": to_json(status)}
