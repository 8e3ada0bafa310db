"""Members begin anew on other claims, one at a time, while those that stay have everything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from imago_operator.errors import InvalidError
from imago_operator.model import names
from imago_operator.model.actions import Apply, DeleteChild, DeleteClaim, DeletePod, Handover
from imago_operator.model.desired import Desired, desired_of
from imago_operator.model.state import STATEFUL_SET, KubeNode, Observed
from imago_operator.plan import PlanRow, ReconcilePlan, plan
from imago_operator.promises import broken
from imago_operator.spec.cluster.brokers import SHARD_POOLS_MAX
from imago_operator.spec.kinds import CLUSTER
from imago_testing.operated.resources import OPERATOR, resource, wanted
from imago_testing.operated.world import ClusterWorld

CLASS = "spec.brokers.storage.storageClassName"
MEMBERS = "spec.brokers.replicasPerShard"
FAST = {CLASS: "fast"}
EVERY = sorted(f"data-demo-s{n}-{m}" for n in range(2) for m in range(3))


def began(more: dict[str, Any] | None = None, **world: Any) -> ClusterWorld:
    made = ClusterWorld(wanted(more), **world)
    made.settle()
    made.done.clear()
    return made


def exchanged(world: ClusterWorld) -> list[str]:
    return [action.name for action in world.done if isinstance(action, DeleteClaim)]


def in_order(world: ClusterWorld, looks: list[tuple[Observed, ReconcilePlan]]) -> None:
    """No claim goes under a pod, and never are two members of the cluster away."""
    for seen, found in looks:
        there = {f"data-{pod.name}" for pod in seen.pods}
        gone = [a for a in found.actions if isinstance(a, DeleteClaim)]
        assert len(gone) <= 1
        assert not there & {a.name for a in gone}
        if gone:
            record = seen.status.moved_member
            assert record is not None
            assert (record.claim, record.uid) == (gone[0].name, gone[0].uid)
            assert seen.registry is not None
            assert len(seen.registry.shards[gone[0].shard].in_sync) == 2
    assert world.status.moved_member is None


def test_a_class_that_is_not_there_moves_nobody() -> None:
    world = began()
    world.storage_classes = frozenset({"slow"})
    world.desired = wanted(FAST)
    waits = []
    for _ in range(20):
        waits.append(world.look()[1].wait)
        world.turn()
    assert waits[-1] is not None
    assert "the storage class fast, which is not there" in waits[-1].message
    assert not exchanged(world)
    assert world.status.moved_member is None
    world.storage_classes = frozenset({"slow", "fast"})
    world.settle()
    assert {claim.storage_class for claim in world.claims.values()} == {"fast"}


@pytest.mark.parametrize("lags", [0, 2])
def test_another_class_is_given_to_one_member_after_the_other(lags: int) -> None:
    world = began()
    world.behind = world.absence = lags
    world.desired = wanted(FAST)
    in_order(world, world.settle())
    assert sorted(exchanged(world)) == EVERY
    assert {claim.storage_class for claim in world.claims.values()} == {"fast"}
    assert {a.shard for a in world.done if isinstance(a, Handover)} == {0, 1}
    assert all(len(shard.in_sync) == 3 for shard in world.shards.values())


def test_a_size_that_its_class_does_not_grow_to_comes_with_new_claims() -> None:
    world = began(expandable={"": False})
    world.desired = wanted({"spec.brokers.storage.size": "20Gi"})
    in_order(world, world.settle())
    assert sorted(exchanged(world)) == EVERY
    assert {claim.requested for claim in world.claims.values()} == {20 << 30}


def test_a_pod_says_by_an_annotation_that_its_member_moves() -> None:
    world = began()
    pod = world.pods["demo-s1-2"]
    ordered = {**pod.annotations, names.MOVE: "true"}
    world.pods[pod.name] = replace(pod, annotations=ordered)
    in_order(world, world.settle())
    assert exchanged(world) == ["data-demo-s1-2"], "and it moves once"


@pytest.mark.parametrize("dies_after", [0, 1, 2, 3])
def test_an_operator_that_dies_at_every_action_goes_on(dies_after: int) -> None:
    world = began()
    world.desired = wanted(FAST)
    for _ in range(30):
        world.look(dies_after=dies_after)
        world.turn()
        world.look()
        world.turn()
    world.settle()
    assert {claim.storage_class for claim in world.claims.values()} == {"fast"}
    assert sorted(exchanged(world)) == EVERY, "no member is copied twice"


def _until_away(world: ClusterWorld, *, pod: bool) -> str:
    """Look until a set is away on purpose, and its member's pod as well if so; return which."""
    for _ in range(40):
        world.look()
        record = world.status.moved_member
        away = record and (STATEFUL_SET, record.pod[:-2]) not in world.children
        if record and away and pod == (record.pod not in world.pods):
            return record.pod
        world.turn()
    raise AssertionError("no set went away")


@pytest.mark.parametrize("pod", [True, False])
def test_while_another_member_lacks_the_set_comes_back_with_the_claim_that_was(pod: bool) -> None:
    world = began()
    world.desired = wanted(FAST)
    name = _until_away(world, pod=not pod)
    uid = world.claims[f"data-{name}"].uid
    other = next(n for n in world.pods if n[:-2] == name[:-2] and n != name)
    world.crash(other)
    for _ in range(2):
        world.look()
        world.turn()
    assert (STATEFUL_SET, name[:-2]) in world.children
    assert world.claims[f"data-{name}"].uid == uid
    assert name in world.pods
    world.kill(other)
    world.settle()
    assert {claim.storage_class for claim in world.claims.values()} == {"fast"}


def test_what_nobody_asks_for_any_more_is_not_gone_on_with() -> None:
    world = began({CLASS: "slow"})
    world.desired = wanted(FAST)
    name = _until_away(world, pod=True)
    uid = world.claims[f"data-{name}"].uid
    world.desired = wanted({CLASS: "slow"})
    world.settle()
    assert world.claims[f"data-{name}"].uid == uid
    assert exchanged(world) == []


@pytest.mark.parametrize("members", [1, 2])
def test_no_member_goes_that_puts_need(members: int) -> None:
    """Admission refuses it; where it is there all the same, nothing is taken away."""
    world = began({MEMBERS: members})
    world.desired = wanted({MEMBERS: members} | FAST)
    for _ in range(10):
        world.look()
        world.turn()
    _, found = world.look()
    assert found.row is PlanRow.MOVE_MEMBERS
    assert f"replicasPerShard {members + 1}" in found.explain()
    assert exchanged(world) == []


def test_a_single_member_becomes_three_on_another_class() -> None:
    world = began({MEMBERS: 1})
    world.desired = wanted({MEMBERS: 3} | FAST)
    in_order(world, world.settle())
    assert sorted(exchanged(world)) == ["data-demo-s0-0", "data-demo-s1-0"]
    assert {claim.storage_class for claim in world.claims.values()} == {"fast"}
    assert len(world.claims) == 6


def test_the_check_sees_a_claim_that_goes_too_early() -> None:
    world = began()
    world.desired = wanted(FAST)
    name = _until_away(world, pod=True)
    seen = world.observe()
    claim = next(c for c in seen.claims if c.name == f"data-{name}")
    gone = DeleteClaim(claim.name, claim.uid, claim.shard)
    assert isinstance(world.desired, Desired)
    assert broken(world.desired, seen, [gone], world.now) == []
    again = replace(seen, pods=(*seen.pods, replace(seen.pods[0], name=name, shard=claim.shard)))
    fewer = tuple(p for p in seen.pods if p.shard != claim.shard or not p.ready)
    unnamed = replace(seen, status=replace(seen.status, moved_member=None))
    for wrong in (again, replace(seen, pods=fewer), unnamed, replace(seen, registry=None)):
        assert broken(world.desired, wrong, [gone], world.now) == [
            *([f"claim data-{name} has a pod"] if wrong is again else []),
            *([] if wrong is again else [f"claim {claim.name} may be needed"]),
        ]


def test_the_class_cannot_change_where_puts_need_every_member() -> None:
    for members in (1, 2, 3):
        before, after = resource({MEMBERS: members}), resource({MEMBERS: members} | FAST)
        problems = list(CLUSTER.problems(after, before))
        assert bool(problems) == (members < 3), problems


POOL = {"shards": [1], "nodeSelector": {"pool": "fast"}, "tolerations": [{"key": "fast"}]}


def test_shards_of_a_pool_have_its_nodes_and_only_they_are_restarted() -> None:
    world = began()
    for name, node in list(world.nodes.items()):
        world.nodes[name] = replace(node, labels={**node.labels, "pool": "fast"})
    world.desired = wanted({"spec.brokers.shardPools": [POOL]})
    world.settle()
    sets = [a.manifest for a in world.done if isinstance(a, Apply)]
    made = {m["metadata"]["name"]: m["spec"]["template"]["spec"] for m in sets if "-s" in str(m)}
    assert made["demo-s1"]["nodeSelector"] == {"pool": "fast"}
    assert made["demo-s1"]["tolerations"] == [{"key": "fast"}]
    gone = {a.name for a in world.done if isinstance(a, DeletePod)}
    assert gone == {"demo-s1-0", "demo-s1-1", "demo-s1-2"}, "they move; nobody else is restarted"
    assert not [a for a in world.done if isinstance(a, DeleteChild) and a.kind == STATEFUL_SET]


def test_a_volume_that_its_pool_does_not_reach_is_exchanged() -> None:
    world = began()
    for name, node in list(world.nodes.items()):
        world.nodes[name] = replace(node, labels={**node.labels, "pool": "fast"})
    world.desired = wanted({"spec.brokers.shardPools": [POOL]})
    world.settle()
    seen = world.observe()
    lost = next(pod for pod in seen.pods if pod.name == "demo-s1-2")
    pod = replace(lost, broker=None, ready=False, waiting="Unschedulable", unscheduled="no node")
    for labels in ({}, {"pool": "fast"}):
        look = replace(
            seen,
            pods=tuple(pod if p is lost else p for p in seen.pods),
            claims=tuple(
                replace(c, node="old") if c.name == f"data-{pod.name}" else c for c in seen.claims
            ),
            nodes={**(seen.nodes or {}), "old": KubeNode(name="old", labels=labels)},
        )
        assert isinstance(world.desired, Desired)
        found = plan(world.desired, look, world.now)
        moved = found.record.get("moved_member")
        assert (moved.pod if moved else "") == ("" if labels else pod.name), found.explain()


def test_words_of_a_wrong_pool() -> None:
    with pytest.raises(InvalidError):
        CLUSTER.read(resource({"spec.brokers.shardPools": [{"shards": [-1], "nodeSelector": {}}]}))
    many = [POOL] * (SHARD_POOLS_MAX + 1)
    found = desired_of(resource({"spec.brokers.shardPools": many}), OPERATOR)
    assert "shardPools" in getattr(found, "problem", "")
