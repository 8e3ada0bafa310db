"""What no plan ever does, over random clusters; and that what is checked can be broken."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imago_operator.model import names
from imago_operator.model.actions import (
    Action,
    DeleteClaim,
    DeletePod,
    Elect,
    MarkDrained,
)
from imago_operator.model.desired import Desired
from imago_operator.model.state import Pod, RegistryView
from imago_operator.plan import PlanRow, ReconcilePlan, plan
from imago_operator.plan.look import ClusterLook
from imago_operator.plan.registry import spreading
from imago_operator.plan.restarts import rollout, trying
from imago_operator.promises import broken
from imago_testing.operated.accesses import check_access_walk
from imago_testing.operated.faults import heal
from imago_testing.operated.looks import changed, lacking
from imago_testing.operated.resources import wanted
from imago_testing.operated.rules import violations
from imago_testing.operated.states import check_look, check_walk, main
from imago_testing.operated.world import ClusterWorld
from imago_testing.searching import examples, seldom

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.simulation
@settings(max_examples=examples(2000), deadline=None, suppress_health_check=list(HealthCheck))
@given(rng=st.randoms(use_true_random=False))
def test_every_plan_keeps_every_promise(rng: random.Random) -> None:
    check_look(rng)


@pytest.mark.parametrize("seed", range(examples(30)))
def test_edits_and_faults_end_in_a_cluster_that_settles(seed: int) -> None:
    check_walk(random.Random(seed))


@pytest.mark.parametrize("seed", range(examples(60)))
def test_no_way_to_another_access_shuts_a_broker_out_of_zookeeper(seed: int) -> None:
    check_access_walk(random.Random(seed))


def _unready_goes_at_once(_: ClusterLook, pod: Pod) -> bool:
    return not pod.serving


def _any_number_goes(_: ClusterLook, __: set[int]) -> bool:
    return False


@pytest.mark.parametrize(
    ("check", "seeds"), [(check_walk, 40), (check_look, 2000)], ids=["walks", "looks"]
)
def test_pods_that_are_deleted_because_they_are_not_ready_are_found(
    monkeypatch: pytest.MonkeyPatch, check: Callable[[random.Random], None], seeds: int
) -> None:
    """A rule that once took both masters of a cluster at once: the search must see it."""
    monkeypatch.setattr(rollout, "_is_free", _unready_goes_at_once)
    monkeypatch.setattr(rollout, "_too_many", _any_number_goes)

    def search() -> None:
        for seed in range(seeds):
            check(random.Random(seed))

    with pytest.raises(AssertionError, match=r"cannot lead|goes though|shards"):
        search()


def _whatever_others_do(_: ClusterLook, due: list[Pod]) -> tuple[list[Action], str] | None:
    mine = [pod for pod in due if pod.shard is None]
    return ([DeletePod(mine[-1].name, mine[-1].uid, None, "")], "") if mine else None


def _whatever_shards_lack(_: ClusterLook, __: int) -> str:
    return ""


def test_servers_of_zookeeper_that_are_taken_too_early_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rollout, "_zookeeper", _whatever_others_do)

    def search() -> None:
        for seed in range(20):
            check_walk(random.Random(seed))

    with pytest.raises(AssertionError, match="ZooKeeper"):
        search()


@pytest.mark.parametrize("mistaken", [False, True])
def test_a_server_of_zookeeper_that_moves_while_a_shard_lacks_members_is_found(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch, *, mistaken: bool
) -> None:
    if mistaken:
        monkeypatch.setattr(spreading, "membership", SimpleNamespace(lacks=_whatever_shards_lack))
    found = copy.deepcopy(world)
    found.drain("node-1")
    found.turn()
    found.nodes["node-3"] = replace(found.nodes["node-0"], name="node-3")

    def look() -> None:
        for _ in range(40):
            found.kill("demo-s0-1")
            found.look()
            found.turn()

    if not mistaken:
        look()
        return
    with pytest.raises(AssertionError, match="lack members"):
        look()


def test_nothing_of_it_would_be_carried_out(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "_is_free", _unready_goes_at_once)
    monkeypatch.setattr(rollout, "_too_many", _any_number_goes)
    monkeypatch.setattr(trying, "held_back", lambda *_: False)
    found = copy.deepcopy(world)
    found.desired = wanted({"spec.image": "mine:2"})
    found.look()
    found.full = {pod.name for pod in found.pods.values() if pod.shard is not None}
    found.turn()
    seen = found.observe()
    planned = plan(found.desired, seen, found.now)
    assert len([a for a in planned.actions if isinstance(a, DeletePod)]) == 2
    assert isinstance(found.desired, Desired)
    said = broken(found.desired, seen, planned.actions, found.now)
    assert "2 shards at a time" in said


class TestWhileNothingIsReady:
    """Two shards of three members: at most one member of one shard goes, and it comes to an end."""

    @pytest.mark.parametrize(
        "pause", seldom([6, 15, 27, 0, 3, 9, 12, 18, 21, 24, 30, 33, 36, 39], often=3)
    )
    def test_zookeeper_pauses(self, world: ClusterWorld, pause: int) -> None:
        found = slow(world)
        for look in range(60):
            found.zookeeper = not pause <= look < pause + 20
            found.desired = wanted({"spec.image": "mine:2"} if look >= pause + 17 else None)
            found.look()
            found.turn()
        found.settle(looks=900)
        assert len({p.uid for p in found.pods.values()} & OLD) == 3  # ZooKeeper's servers

    @pytest.mark.parametrize("full", seldom(["every disk", "one"]))
    def test_disks_stay_full(self, world: ClusterWorld, full: str) -> None:
        found = slow(world)
        found.desired = wanted({"spec.image": "mine:2"})
        brokers = {pod.name for pod in found.pods.values() if pod.shard is not None}
        found.full = brokers if full == "every disk" else {"demo-s1-1"}
        for _ in range(1200):
            found.look()
            found.turn()
        new = {p.annotations[names.TEMPLATE_HASH] for p in found.pods.values() if p.shard == 1}
        assert new == {
            ClusterLook(found.desired, found.observe(), found.now).notes(1)[names.TEMPLATE_HASH]
        }

    @pytest.mark.parametrize("calls", range(5))
    def test_the_operator_dies_after_some_calls_of_every_look(
        self, world: ClusterWorld, calls: int
    ) -> None:
        found = slow(world)
        found.desired = wanted({"spec.image": "mine:2"})
        for look in range(120):
            found.zookeeper = look % 30 < 20
            found.look(dies_after=calls if look % 2 else None)
            found.turn()
        heal(found)
        found.settle(looks=900)

    def test_a_new_revision_cures_pods_that_never_run(self, world: ClusterWorld) -> None:
        found = slow(world)
        found.desired = wanted({"spec.image": "mine:2"})
        for name in [n for n, pod in found.pods.items() if pod.shard == 0]:
            found.crash(name)
        found.settle(looks=900)


OLD: set[str] = set()


def slow(world: ClusterWorld) -> ClusterWorld:
    """Return a cluster that runs, and whose members take their time."""
    found = copy.deepcopy(world)
    found.grace, found.behind, found.unready = 3, 2, 3
    OLD.clear()
    OLD.update(pod.uid for pod in found.pods.values())
    return found


def test_the_search_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "50"]) == 0
    assert "50 looks and 2 walks" in capsys.readouterr().out


@pytest.fixture(name="world", scope="module")
def _world() -> ClusterWorld:
    world = ClusterWorld(wanted())
    world.settle()
    return world


def bad(world: ClusterWorld, *actions: Action) -> str:
    plan = ReconcilePlan(row=PlanRow.ROLLOUT, actions=actions)
    return "; ".join(violations(world.desired, world.observe(), plan, world.now))


class TestTheCheckItself:
    """Each promise, broken by hand: a check that finds nothing would be worth nothing."""

    def test_a_restart_that_nobody_asked_for(self, world: ClusterWorld) -> None:
        pod = world.pods["demo-s0-0"]
        said = bad(world, DeletePod(pod.name, pod.uid, 0, ""))
        assert "the user said nothing new" in said

    def test_two_members_of_a_shard(self, world: ClusterWorld) -> None:
        pods = [world.pods[f"demo-s0-{n}"] for n in (0, 1)]
        said = bad(world, *(DeletePod(p.name, p.uid, 0, "") for p in pods))
        assert "two voluntary disruptions" in said
        assert "two pods of one shard" in said

    def test_two_shards(self, world: ClusterWorld) -> None:
        pods = [world.pods[f"demo-s{n}-0"] for n in (0, 1)]
        said = bad(world, *(DeletePod(p.name, p.uid, p.shard, "") for p in pods))
        assert "more shards down" in said

    def test_members_of_two_shards_that_lack_anyway(self, world: ClusterWorld) -> None:
        """One of each was once taken at a time, just after a pause of ZooKeeper."""
        names = ("demo-s0-2", "demo-s1-2")
        found = copy.deepcopy(world)
        found.desired = wanted({"spec.image": "mine:2"})
        found.look()
        assert isinstance(found.desired, Desired)
        seen = lacking(found.observe(), *names)
        gone = [p for p in seen.pods if p.name in names]
        both = tuple(DeletePod(p.name, p.uid, p.shard, "") for p in gone)
        going = changed(seen, names[1], deleting=True)
        for look, actions in ((seen, both), (going, both[:1])):
            plan = ReconcilePlan(row=PlanRow.ROLLOUT, actions=actions)
            said = violations(found.desired, look, plan, found.now)
            assert "restarts in more shards than the policy allows" in said
            said = broken(found.desired, look, actions, found.now)
            assert "restarts in 2 shards at a time" in said
        assert broken(found.desired, seen, both[:1], found.now) == []

    def test_two_servers_of_zookeeper(self, world: ClusterWorld) -> None:
        found = copy.deepcopy(world)
        for name, change in (("deleting", {"deleting": True}), ("unready", {"ready": False})):
            found.pods["demo-zookeeper-0"] = replace(world.pods["demo-zookeeper-0"], **change)  # type: ignore[arg-type]  # its fields
            said = bad(
                found, DeletePod("demo-zookeeper-1", found.pods["demo-zookeeper-1"].uid, None, "")
            )
            assert "lacks another server" in said, name
            assert ("while another server of ZooKeeper does" in said) is (name == "deleting")

    def test_a_server_of_zookeeper_that_has_no_reason_to_move(self, world: ClusterWorld) -> None:
        found = copy.deepcopy(world)
        server = found.pods["demo-zookeeper-1"]
        said = bad(found, DeletePod(server.name, server.uid, None, ""))
        assert "from a node without a majority" in said
        assert "no node is free" in said
        found.kill("demo-s0-1")
        said = bad(found, DeletePod(server.name, server.uid, None, ""))
        assert "moves while shards [0] lack members" in said

    def test_servers_that_the_operator_took_are_counted_until_they_are_back(
        self, world: ClusterWorld
    ) -> None:
        found = copy.deepcopy(world)
        first, other = found.pods["demo-zookeeper-0"], found.pods["demo-zookeeper-1"]
        found.do(DeletePod(first.name, first.uid, None, ""))
        with pytest.raises(AssertionError, match="several servers of ZooKeeper"):
            copy.deepcopy(found).do(DeletePod(other.name, other.uid, None, ""))
        found.turn()
        found.do(DeletePod(other.name, other.uid, None, ""))

    def test_without_a_majority_there_is_no_registry(self, world: ClusterWorld) -> None:
        found = copy.deepcopy(world)
        nodes = [found.pods[f"demo-zookeeper-{n}"].node for n in range(3)]
        assert len(set(nodes)) == 3
        said = []
        for node in nodes[:2]:
            found.cut_power(node or "")
            said.append(found.connected)
        found.dark.clear()
        found.turn()
        assert [*said, found.connected] == [True, False, True]

    def test_a_drained_server_crowds_another_until_it_is_moved(self, world: ClusterWorld) -> None:
        found = copy.deepcopy(world)
        found.drain("node-1")
        found.turn()
        servers = [pod for pod in found.pods.values() if pod.shard is None]
        assert {pod.node for pod in servers} == {"node-0", "node-2"}
        found.settle()
        found.cordon("node-1", open_again=True)
        found.settle()
        servers = [pod for pod in found.pods.values() if pod.shard is None]
        assert {pod.node for pod in servers} == {"node-0", "node-1", "node-2"}

    def test_a_pod_that_is_another_by_now(self, world: ClusterWorld) -> None:
        assert "was not seen" in bad(world, DeletePod("demo-s0-0", "old", 0, ""))

    def test_a_claim_in_use(self, world: ClusterWorld) -> None:
        claim = world.claims["data-demo-s0-0"]
        assert "somebody needs" in bad(world, DeleteClaim(claim.name, claim.uid, 0))

    def test_a_shard_that_is_not_empty(self, world: ClusterWorld) -> None:
        assert "that it is empty" in bad(world, MarkDrained(1))

    def test_an_election_that_nobody_allowed(self, world: ClusterWorld) -> None:
        assert "may lack messages" in bad(world, Elect("demo-s0-0", "x", 0))

    def test_acting_without_information(self, world: ClusterWorld) -> None:
        seen = replace(world.observe(), registry=RegistryView(cluster_id="c-1", connected=False))
        pod = world.pods["demo-s0-0"]
        plan = ReconcilePlan(row=PlanRow.ROLLOUT, actions=(DeletePod(pod.name, pod.uid, 0, ""),))
        said = "; ".join(violations(world.desired, seen, plan, world.now))
        assert "without knowing" in said
