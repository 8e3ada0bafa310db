"""From one member to three, to two, and back to one, while the shard serves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_operator.model.actions import Apply, DeleteClaim, DeletePod, Handover
from imago_operator.model.desired import Desired
from imago_operator.model.state import STATEFUL_SET
from imago_operator.plan import PlanRow, plan
from imago_operator.plan.members.counting import LEAST, LEVEL, MEMBERS, OPEN
from imago_operator.plan.restarts.staging import staged
from imago_operator.reporting.status import status_of
from imago_testing.operated.resources import wanted
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    from imago_operator.plan import ReconcilePlan

WHEN_SCALED = "spec.brokers.storage.persistentVolumeClaimRetentionPolicy"


def of(members: int, more: dict[str, Any] | None = None) -> Desired:
    sizes = {"spec.brokers.replicasPerShard": members, "spec.brokers.shards": 2}
    return wanted(sizes | (more or {}))


def began(members: int, more: dict[str, Any] | None = None) -> ClusterWorld:
    world = ClusterWorld(of(members, more))
    world.settle()
    world.done.clear()
    return world


def sizes(world: ClusterWorld) -> set[int]:
    return {found.replicas or 0 for found in world.observe().sets().values()}


def told(world: ClusterWorld, name: str) -> set[Any]:
    return {world.told(pod)[name] for pod in world.pods.values() if pod.broker}


def deleted(world: ClusterWorld) -> list[str]:
    return [action.name for action in world.done if isinstance(action, DeletePod)]


@pytest.mark.parametrize("lags", [0, 1, 3])
@pytest.mark.parametrize("first", [1, 2])
def test_members_join_before_puts_count_on_them(first: int, lags: int) -> None:
    world = began(first)
    world.behind = world.absence = lags
    world.desired = of(3)
    for seen, _ in world.settle():
        least = {int(str(pod.broker.config[LEAST])) for pod in seen.pods if pod.broker}
        assert seen.registry is not None
        for shard in seen.registry.shards.values():
            assert len(shard.in_sync) >= max(least)
    assert sizes(world) == {3}
    assert (told(world, MEMBERS), told(world, LEAST)) == ({3}, {2})
    assert told(world, LEVEL) == {"replicated"}
    assert deleted(world) == [], "nobody is restarted for it"
    assert world.status.brokers.in_sync_replicas == 6


def test_while_members_join_each_put_waits_for_all_that_are_in_sync() -> None:
    """A member that joins may lead at once: nothing is acknowledged that it lacks."""
    world = began(1)
    world.behind = 2
    world.desired = of(3)
    for seen, _ in world.settle():
        for number in (0, 1):
            pods = [pod for pod in seen.pods_of(number) if pod.broker]
            if len(pods) > 1:
                levels = {pod.broker.config[LEVEL] for pod in pods if pod.broker}
                assert levels == {"replicated"}, levels


@pytest.mark.parametrize("last", [1, 2])
def test_members_leave_one_at_a_time_and_the_leader_hands_over(last: int) -> None:
    world = began(3)
    for number, shard in world.shards.items():
        highest = next(p for p in world.pods.values() if p.name == f"demo-s{number}-2")
        assert highest.broker is not None
        world.shards[number] = replace(shard, master=highest.broker.uuid)
    world.desired = of(last)
    for seen, found in world.settle():
        assert seen.registry is not None
        for action in found.actions:
            if isinstance(action, Apply) and action.manifest["kind"] == STATEFUL_SET:
                before = seen.child(STATEFUL_SET, action.manifest["metadata"]["name"])
                assert before is not None
                assert action.manifest["spec"]["replicas"] >= (before.replicas or 0) - 1
    assert sizes(world) == {last}
    assert {a.shard for a in world.done if isinstance(a, Handover)} == {0, 1}
    assert deleted(world) == []
    assert told(world, LEAST) == {min(last, 2)}
    assert told(world, LEVEL) == {"replicated" if last > 1 else "leader"}
    assert len(world.claims) == 6, "claims are kept"
    assert all(len(shard.members) == last for shard in world.shards.values())


def test_a_claim_goes_once_the_status_has_named_it() -> None:
    world = began(3, {WHEN_SCALED: {"whenScaled": "Delete"}})
    world.desired = of(1, {WHEN_SCALED: {"whenScaled": "Delete"}})
    for seen, found in world.settle():
        named = {(one.claim, one.uid) for one in seen.status.left_members}
        for action in found.actions:
            if isinstance(action, DeleteClaim):
                assert (action.name, action.uid) in named
    assert sorted(world.claims) == ["data-demo-s0-0", "data-demo-s1-0"]
    assert world.status.left_members == ()


def test_a_member_that_comes_back_finds_its_kept_claim() -> None:
    world = began(3)
    disks = {name: disk.uuid for name, disk in world.disks.items()}
    for members in (1, 3):
        world.desired = of(members)
        world.settle()
    assert {name: disk.uuid for name, disk in world.disks.items()} == disks


def test_kept_claims_of_members_that_left_are_left_alone() -> None:
    world = began(3)
    world.desired = of(2)
    world.settle()
    world.desired = of(2, {"spec.brokers.storage.size": "20Gi"})
    world.settle()
    grown = {name for name, claim in world.claims.items() if claim.requested == 20 * 2**30}
    assert grown == {f"data-demo-s{s}-{m}" for s in (0, 1) for m in (0, 1)}


@pytest.mark.parametrize("second", [1, 2, 3])
def test_another_number_on_the_way_is_followed_from_where_it_is(second: int) -> None:
    for looks in range(12):
        world = began(1)
        world.behind = 1
        for members in (3, second):
            world.desired = of(members)
            for _ in range(looks):
                world.look()
                world.turn()
        world.settle()
        assert sizes(world) == {second}
        assert told(world, MEMBERS) == {second}


@pytest.mark.parametrize("dies_after", [0, 1, 2, 3])
@pytest.mark.parametrize(("first", "last"), [(1, 3), (3, 1), (3, 2)])
def test_an_operator_that_dies_at_every_action_goes_on(
    first: int, last: int, dies_after: int
) -> None:
    """Each look makes a few calls more than the one before it, and dies."""
    world = began(first)
    world.desired = of(last)
    for _ in range(40):
        world.look(dies_after=dies_after)
        world.turn()
        world.look()
        world.turn()
    world.settle()
    assert sizes(world) == {last}
    assert told(world, LEAST) == {min(last, 2)}


def test_another_image_and_more_members_at_once() -> None:
    world = began(1)
    world.behind = 1
    world.desired = of(3, {"spec.image": "mine:2"})
    world.settle()
    assert sizes(world) == {3}
    image = {m["spec"]["template"]["spec"]["containers"][0]["image"] for m in _sets(world)}
    assert image == {"mine:2"}
    assert told(world, LEAST) == {2}


def _sets(world: ClusterWorld) -> list[Any]:
    return [m for k, m in world.manifests.items() if k[0] == STATEFUL_SET and "-s" in k[1]]


def test_a_member_that_no_node_takes_keeps_puts_going() -> None:
    world = began(1)
    for name in ("node-1", "node-2"):
        world.cordon(name)
    world.nodes["node-0"] = replace(world.nodes["node-0"], open=False)
    world.desired = of(3)
    found = _looked(world, 30)
    assert found.row is PlanRow.CHANGE_MEMBERS
    assert told(world, LEAST) == {1}
    assert not world.unserved()
    assert _condition(world, "Reconciling") == ("True", "AddingMembers")
    for name in world.nodes:
        world.cordon(name, open_again=True)
    world.settle()
    assert told(world, LEAST) == {2}


def test_no_member_leaves_while_another_lacks() -> None:
    world = began(3)
    pod = world.pods["demo-s0-1"]
    world.crash(pod.name)
    world.desired = of(2)
    found = _looked(world, 20)
    assert {n: s.replicas for n, s in world.observe().sets().items()} == {0: 3, 1: 2}
    assert "those that stay to be in sync" in found.explain()


def test_without_an_answer_of_brokers_nobody_leaves() -> None:
    world = began(3)
    world.zookeeper = False
    world.desired = of(1)
    for _ in range(10):
        world.look()
        world.turn()
    assert sizes(world) == {3}
    world.zookeeper = True
    world.settle()
    assert sizes(world) == {1}


def test_brokers_that_let_nobody_join_get_no_members() -> None:
    """Those of version 0.1 open their port to others at their start alone."""
    world = began(1)
    for settings in world.config.values():
        settings.pop(OPEN)
    world.desired = of(3)
    found = _looked(world, 10)
    assert sizes(world) == {1}
    assert found.row is PlanRow.CHANGE_MEMBERS
    assert _condition(world, "Reconciling") == ("True", "MembersHeld")
    assert told(world, LEAST) == {1}
    world.desired = of(1)
    world.settle()


def _looked(world: ClusterWorld, looks: int) -> ReconcilePlan:
    for _ in range(looks - 1):
        world.look()
        world.turn()
    _, found = world.look()
    world.turn()
    return found


def _condition(world: ClusterWorld, kind: str) -> tuple[str, str] | None:
    seen = world.observe()
    assert isinstance(world.desired, Desired)
    desired = staged(world.desired, seen)
    status = status_of(desired, seen, plan(desired, seen, world.now), world.now)
    found = [c for c in status.conditions if c.type == kind]
    return (found[0].status.value, found[0].reason) if found else None


def test_the_minimum_that_puts_need_rises_only_when_as_many_are_in_sync() -> None:
    world = began(3)
    world.crash("demo-s0-2")
    world.desired = of(3, {"spec.brokers.minInSync": 3})
    for _ in range(10):
        world.look()
        world.turn()
    assert told(world, LEAST) == {2}
    world.kill("demo-s0-2")
    world.settle()
    assert told(world, LEAST) == {3}
