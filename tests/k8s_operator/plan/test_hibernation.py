"""A cluster that hibernates: who stops first, what is kept, who wakes first, what is said."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_operator.manifests.brokers import stateful_set
from imago_operator.manifests.zookeeper import zookeeper_set
from imago_operator.model import names
from imago_operator.model.actions import Action, Apply, DeletePod, Hibernate
from imago_operator.model.desired import Desired
from imago_operator.model.state import STATEFUL_SET
from imago_operator.plan import PlanRow, ReconcilePlan, hibernation, plan
from imago_operator.promises import broken
from imago_operator.reporting.status import in_short
from imago_operator.spec.cluster.brokers import StorageType
from imago_testing.operated.resources import wanted
from imago_testing.operated.rules import violations
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    from imago_operator.plan.look import ClusterLook

ASLEEP = {"spec.hibernated": True}
ZOOKEEPER = (STATEFUL_SET, "demo-zookeeper")


@pytest.fixture(name="settled", scope="module")
def _settled() -> ClusterWorld:
    world = ClusterWorld(wanted())
    world.settle()
    return world


@pytest.fixture(name="world")
def _world(settled: ClusterWorld) -> ClusterWorld:
    """Return a cluster that runs, whose pods take a while to go and to come."""
    found = copy.deepcopy(settled)
    found.grace, found.unready, found.behind = 2, 2, 1
    found.done.clear()
    return found


def asleep(world: ClusterWorld) -> ClusterWorld:
    world.desired = wanted(ASLEEP)
    world.settle()
    world.check_asleep()
    return world


def said(world: ClusterWorld) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status.value, c.reason) for c in world.status.conditions}


def test_brokers_stop_at_once_and_zookeeper_after_the_last_of_them(world: ClusterWorld) -> None:
    claims, world.desired = set(world.claims), wanted(ASLEEP)
    world.look()
    assert [a.shard for a in world.done if isinstance(a, Hibernate)] == [0, 1]
    while any(pod.shard is not None for pod in world.pods.values()):
        assert world.children[ZOOKEEPER].replicas == 3
        world.turn()
        _, found = world.look()
        assert found.row is PlanRow.HIBERNATING
    world.settle()
    world.check_asleep()
    assert [a.shard for a in world.done if isinstance(a, Hibernate)] == [0, 1, None]
    assert set(world.claims) == claims


def test_what_is_said_of_it(world: ClusterWorld) -> None:
    asleep(world)
    told = said(world)
    assert told["Hibernated"] == ("True", "Asleep")
    assert told["Ready"] == told["Available"] == ("False", "Hibernated")
    assert told["ZooKeeperConnected"] == ("Unknown", "Hibernated")
    assert in_short(world.status) == ("False", "hibernates")
    assert {(one.phase, one.puts) for one in world.status.shards} == {("Hibernated", "Refused")}
    world.desired = wanted()
    world.settle()
    told = said(world)
    assert "Hibernated" not in told
    assert told["Ready"] == ("True", "AllShardsServing")


def test_zookeeper_wakes_first_then_all_members_at_once(world: ClusterWorld) -> None:
    asleep(world)
    holders = dict(world.holders)
    world.done.clear()
    world.desired = wanted()
    woken: list[tuple[int, list[str]]] = []
    for _ in range(40):
        world.look()
        sets = [a.manifest for a in world.done if isinstance(a, Apply)]
        up = [m["metadata"]["name"] for m in sets if m["spec"].get("replicas")]
        serving = sum(pod.serving for pod in world.pods.values() if pod.shard is None)
        woken += [(serving, up)] if up else []
        world.done.clear()
        world.turn()
    assert woken[0] == (0, ["demo-zookeeper"])
    assert woken[1][0] >= 2
    assert woken[1][1] == ["demo-s0", "demo-s1"]
    world.settle()
    leaders = {n: shard.master for n, shard in world.shards.items()}
    # Who had everything when it stopped leads again: nobody else may.
    assert all(leaders[n] in uuids for n, uuids in holders.items())


@pytest.mark.parametrize("calls", range(4))
def test_an_operator_that_dies_goes_on_both_ways(world: ClusterWorld, calls: int) -> None:
    for desired in (wanted(ASLEEP), wanted(), wanted(ASLEEP)):
        world.desired = desired
        for look in range(40):
            world.look(dies_after=calls if look % 2 else None)
            world.turn()
    world.settle()
    world.check_asleep()


def test_a_change_of_mind_half_way(world: ClusterWorld) -> None:
    for looks in range(1, 8):
        world.desired = wanted(ASLEEP)
        for _ in range(looks):
            world.look()
            world.turn()
        world.desired = wanted()
        world.settle()
        assert len(world.pods) == 9


def test_an_edit_is_there_when_it_wakes_and_restarts_nobody(world: ClusterWorld) -> None:
    asleep(world)
    world.desired = wanted(ASLEEP | {"spec.image": "mine:2"})
    world.settle()
    world.check_asleep()
    world.done.clear()
    world.desired = wanted({"spec.image": "mine:2"})
    world.settle()
    assert not [a for a in world.done if isinstance(a, DeletePod)]
    image = world.manifests[STATEFUL_SET, "demo-s1"]["spec"]["template"]["spec"]["containers"][0]
    assert image["image"] == "mine:2"


def test_it_stops_nobody_while_no_broker_has_zookeeper(world: ClusterWorld) -> None:
    world.zookeeper, world.desired = False, wanted(ASLEEP)
    for _ in range(5):
        _, found = world.look()
        assert "with ZooKeeper to answer" in found.explain()
        world.turn()
    assert not [a for a in world.done if isinstance(a, Hibernate)]
    world.zookeeper = True
    world.settle()
    world.check_asleep()


def test_whoever_is_woken_by_hand_sleeps_again(world: ClusterWorld) -> None:
    asleep(world)
    world.scale(0, 3)
    world.turn()
    assert [pod.name for pod in world.pods.values()] == ["demo-s0-0", "demo-s0-1", "demo-s0-2"]
    world.settle()
    world.check_asleep()


def test_a_new_cluster_may_begin_asleep() -> None:
    world = ClusterWorld(wanted(ASLEEP))
    world.settle()
    assert (world.pods, world.claims) == ({}, {})
    world.desired = wanted()
    world.settle()
    assert len(world.pods) == 9


def test_a_refused_spec_stops_nothing(world: ClusterWorld) -> None:
    world.desired, world.wrong = wanted(ASLEEP), True
    for _ in range(5):
        world.look()
        world.turn()
    assert not [a for a in world.done if isinstance(a, Hibernate)]


class TestTheChecks:
    """Each promise, broken by hand: in the tests' own words, and in the operator's."""

    def bad(self, world: ClusterWorld, *actions: Action) -> tuple[str, str]:
        assert isinstance(world.desired, Desired)
        seen, made = world.observe(), ReconcilePlan(row=PlanRow.HIBERNATING, actions=actions)
        found = violations(world.desired, seen, made, world.now)
        ours = broken(world.desired, seen, actions, world.now)
        return "; ".join(found), "; ".join(ours)

    def test_nobody_has_ordered_it(self, world: ClusterWorld) -> None:
        assert isinstance(world.desired, Desired)
        stop = Hibernate(stateful_set(world.desired, 0, replicas=0), 0)
        told, ours = self.bad(world, stop)
        assert "demo-s0 is stopped, and nobody has ordered it" in told
        assert "a cluster that is not to hibernate is stopped" in ours

    def test_zookeeper_before_the_brokers(self, world: ClusterWorld) -> None:
        world.desired = desired = wanted(ASLEEP)
        managed = desired.spec.zookeeper.managed
        assert managed is not None
        told, ours = self.bad(world, Hibernate(zookeeper_set(desired, managed, replicas=0)))
        assert "demo-zookeeper stops while demo-s0-0 is there" in told
        assert "ZooKeeper is stopped before the brokers" in ours

    def test_pods_that_go_with_an_object_that_is_applied(self, world: ClusterWorld) -> None:
        world.desired = desired = wanted(ASLEEP)
        told, _ = self.bad(world, Apply(stateful_set(desired, 0, replicas=0)))
        assert "demo-s0 loses its pods by the way" in told

    def test_brokers_that_wake_too_early(self, world: ClusterWorld) -> None:
        asleep(world)
        assert isinstance(world.desired, Desired)
        up = Apply(stateful_set(world.desired, 0))
        assert "demo-s0 is woken though it is to sleep" in self.bad(world, up)[0]
        world.desired = wanted()
        assert "demo-s0 wakes before ZooKeeper" in self.bad(world, up)[0]

    def test_volumes_that_go_with_their_pods(self, world: ClusterWorld) -> None:
        desired = wanted(ASLEEP)
        storage = replace(desired.spec.brokers.storage, type=StorageType.EPHEMERAL)
        brokers = replace(desired.spec.brokers, storage=storage)
        world.desired = replace(desired, spec=replace(desired.spec, brokers=brokers))
        told = self.bad(world, Hibernate(stateful_set(desired, 0, replicas=0), 0))[1]
        assert "what goes with its pods is stopped" in told

    def test_a_planner_that_stops_zookeeper_first_is_found(
        self, world: ClusterWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        right = hibernation.sleep

        def wrong(look: ClusterLook) -> object:
            managed = look.desired.spec.zookeeper.managed
            assert managed is not None
            found = look.observed.child(STATEFUL_SET, names.zookeeper(look.desired.name))
            made = right(look)
            first = Hibernate(zookeeper_set(look.desired, managed, replicas=0))
            return replace(made, actions=(first,)) if found and found.replicas else made

        monkeypatch.setattr(hibernation, "sleep", wrong)
        world.desired = wanted(ASLEEP)
        with pytest.raises(AssertionError, match="stops while"):
            world.look()


def test_a_plan_says_where_it_is(world: ClusterWorld) -> None:
    asleep(world)
    assert isinstance(world.desired, Desired)
    found = plan(world.desired, world.observe(), world.now)
    assert (found.row, found.actions, found.wait) == (PlanRow.HIBERNATING, (), None)
    assert found.explain().startswith("6 Hibernating; next: spec.hibernated is false")
