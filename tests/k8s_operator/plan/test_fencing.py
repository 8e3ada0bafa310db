"""Members that somebody fences: who waits, who goes, what is said, what stays as it is."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_operator.model import names
from imago_operator.model.actions import (
    DeleteClaim,
    DeletePod,
    FenceMember,
    LiftFence,
)
from imago_operator.plan import PlanRow, ReconcilePlan, plan
from imago_operator.promises import broken
from imago_testing.operated.looks import answering, lacking, of, reasons, running
from imago_testing.operated.resources import wanted
from imago_testing.operated.things import START
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    from imago_operator.model.state import Observed

EVERY = [f"demo-s{shard}-{member}" for shard in (0, 1) for member in (0, 1, 2)]


@pytest.fixture(name="seen", scope="module")
def _seen() -> Observed:
    return running()


def ordered(seen: Observed, *named: str, changes: dict[str, Any] | None = None) -> ReconcilePlan:
    return plan(wanted(changes, {names.FENCED: ",".join(named)}), seen, START)


def fenced(seen: Observed, *pods: str) -> Observed:
    """Return the same look with members that are fenced: in sync with nobody, not ready."""
    seen = lacking(seen, *pods)
    for name in pods:
        seen = answering(seen, name, fenced=True, role="fenced", caught_up=False, config={})
    return seen


def message(found: ReconcilePlan) -> str:
    return next(one.message for one in found.findings if one.type == "Fenced")


class TestWho:
    def test_a_member_goes_while_the_others_are_in_sync(self, seen: Observed) -> None:
        found = ordered(seen, "demo-s0-1")
        (action,) = of(found, FenceMember)
        assert (action.pod, action.shard, action.anyway) == ("demo-s0-1", 0, False)
        assert found.row is PlanRow.FENCING
        assert reasons(found) & {"Fencing", "FenceHeld"} == {"Fencing"}

    def test_nobody_is_fenced_whom_the_shard_needs(self, seen: Observed) -> None:
        found = ordered(lacking(seen, "demo-s0-2"), "demo-s0-1")
        assert not of(found, FenceMember)
        assert "FenceHeld" in reasons(found)
        assert "demo-s0-1 waits for 2 others to be in sync" in message(found)

    def test_two_members_of_one_shard_are_one_too_many(self, seen: Observed) -> None:
        found = ordered(seen, "demo-s0-1", "demo-s0-2")
        assert [one.pod for one in of(found, FenceMember)] == ["demo-s0-1"]
        found = ordered(fenced(seen, "demo-s0-1"), "demo-s0-1", "demo-s0-2")
        assert not of(found, FenceMember)
        assert "demo-s0-2 waits for" in message(found)

    def test_members_of_several_shards_go_together(self, seen: Observed) -> None:
        found = ordered(seen, "demo-s0-1", "demo-s1-0")
        assert [one.pod for one in of(found, FenceMember)] == ["demo-s0-1", "demo-s1-0"]

    def test_somebody_may_say_that_clients_are_refused(self, seen: Observed) -> None:
        found = ordered(lacking(seen, "demo-s0-2"), "demo-s0-1!")
        (action,) = of(found, FenceMember)
        assert action.anyway

    @pytest.mark.parametrize("named", [["*"], EVERY])
    def test_a_whole_cluster_is_fenced_at_once(self, seen: Observed, named: list[str]) -> None:
        found = ordered(seen, *named)
        assert sorted(one.pod for one in of(found, FenceMember)) == EVERY
        assert all(one.anyway for one in of(found, FenceMember))
        assert "shard-0, shard-1: no client is served" in message(found)

    def test_names_that_nobody_has_are_said(self, seen: Observed) -> None:
        found = ordered(seen, "demo-s0-7")
        assert not of(found, FenceMember)
        assert "there is no member demo-s0-7" in message(found)

    def test_a_silent_member_is_not_thought_fenced(self, seen: Observed) -> None:
        pods = tuple(replace(p, broker=None) if p.name == "demo-s0-1" else p for p in seen.pods)
        found = ordered(replace(seen, pods=pods), "demo-s0-1")
        assert not of(found, FenceMember)
        assert "MembersFenced" not in reasons(found)


class TestMeanwhile:
    def test_nothing_is_restarted_and_it_is_said_who_is_fenced(self, seen: Observed) -> None:
        found = ordered(fenced(seen, "demo-s0-1"), "demo-s0-1", changes={"spec.image": "mine:2"})
        again = plan(wanted(None, {names.FENCED: "demo-s0-1"}), fenced(seen, "demo-s0-1"), START)
        assert not of(found, DeletePod)
        assert (again.row, again.actions) == (PlanRow.FENCING, ())
        assert "MembersFenced" in reasons(again)
        assert "kubectl imago unfence demo" in message(again)

    def test_without_anybody_to_answer_it_waits_for_the_fence(self, seen: Observed) -> None:
        look = replace(fenced(seen, *EVERY), registry=None)
        found = ordered(look, "*")
        assert (found.row, found.actions) == (PlanRow.FENCING, ())
        assert found.wait is not None
        assert found.wait.deadline_s is None
        lifted = plan(wanted(), look, START)
        assert sorted(one.pod for one in of(lifted, LiftFence)) == EVERY

    def test_a_shard_that_is_shut_elects_nobody(self, seen: Observed) -> None:
        whole = EVERY[:3]
        assert seen.registry is not None
        look = fenced(seen, *whole)
        assert look.registry is not None
        shards = dict(look.registry.shards)
        shards[0] = replace(shards[0], master=None)
        look = replace(look, registry=replace(look.registry, shards=shards))
        found = ordered(look, *whole)
        assert "MembersFenced" in reasons(found)
        assert "ShardWithoutMaster" not in reasons(found)

    def test_who_is_named_no_more_serves_again(self, seen: Observed) -> None:
        found = plan(wanted(), fenced(seen, "demo-s0-1"), START)
        assert [one.pod for one in of(found, LiftFence)] == ["demo-s0-1"]


class TestPromises:
    def test_the_log_of_who_is_fenced_stays(self, seen: Observed) -> None:
        claim = next(c for c in seen.claims if c.name == "data-demo-s0-1")
        action = DeleteClaim(claim.name, claim.uid, 0)
        desired = wanted(None, {names.FENCED: "demo-s0-1"})
        assert any("fenced" in said for said in broken(desired, seen, [action], START))

    def test_a_member_on_a_lost_node_is_not_given_up(self, seen: Observed) -> None:
        name = "demo-s0-1"
        claims = tuple(
            replace(c, node="gone") if c.name == f"data-{name}" else c for c in seen.claims
        )
        pods = tuple(
            replace(p, broker=None, ready=False, node="gone") if p.name == name else p
            for p in lacking(seen, name).pods
        )
        look = replace(lacking(seen, name), pods=pods, claims=claims)
        assert plan(wanted(), look, START).row is PlanRow.REPLACE
        assert ordered(look, name).row is PlanRow.FENCING

    @pytest.mark.parametrize(
        ("said", "kept"), [("demo-s0-1", False), ("demo-s0-1!", True), ("*", True), ("", False)]
    )
    def test_only_who_is_not_needed_or_was_named_so(
        self, seen: Observed, said: str, kept: bool
    ) -> None:
        look = lacking(seen, "demo-s0-2")
        pod = next(p for p in look.pods if p.name == "demo-s0-1")
        assert pod.broker is not None
        action = FenceMember(pod.name, pod.broker.uuid, 0, anyway=True)
        desired = wanted(None, {names.FENCED: said})
        assert bool(broken(desired, look, [action], START)) is not kept


@dataclass
class FencedWorld(ClusterWorld):
    """A cluster whose brokers can be fenced."""

    held: set[str] = field(default_factory=set)

    def _fencemember(self, action: FenceMember) -> None:
        pod = self.pods[action.pod]
        assert pod.broker is not None
        self._note_sync(pod, in_sync=False)
        shard = self.shards[action.shard]
        others = sorted(shard.in_sync - {pod.broker.uuid})
        if shard.master == pod.broker.uuid:
            assert others, "its log has what nobody else has, and nobody serves it"
            self._lead(shard, others[0])
        self.held.add(pod.name)

    def _liftfence(self, action: LiftFence) -> None:
        self.held.discard(action.pod)

    def _catch_up(self, name: str) -> None:
        if name not in self.held:
            super()._catch_up(name)

    def observe(self) -> Observed:
        held = sorted(self.held & self.pods.keys())
        return fenced(super().observe(), *held) if held else super().observe()


def test_fenced_and_lifted_the_cluster_is_as_it_was() -> None:
    world = FencedWorld(wanted())
    world.settle()
    before = copy.deepcopy(set(world.claims))
    master = world.shards[0].master
    name = next(p.name for p in world.pods.values() if p.broker and p.broker.uuid == master)
    world.desired = wanted(None, {names.FENCED: name})
    for _ in range(20):
        world.look()
        world.turn()
    assert world.held == {name}
    assert world.shards[0].master not in (None, master), "it handed over"
    told = {c.type: (c.status.value, c.reason) for c in world.status.conditions}
    assert told["Fenced"] == ("True", "MembersFenced")
    assert told["Ready"] == ("False", "Fenced")
    assert told["Available"][0] == "True"
    members = {m.pod: m.state for shard in world.status.shards for m in shard.members}
    assert members[name] == "Fenced"
    world.desired = wanted()
    world.settle()
    told = {c.type: (c.status.value, c.reason) for c in world.status.conditions}
    assert (world.held, told["Ready"]) == (set(), ("True", "AllShardsServing"))
    assert "Fenced" not in told
    assert set(world.claims) == before


def test_no_server_of_zookeeper_leaves_while_a_fence_stands() -> None:
    fewer = {"spec.zookeeper.managed.replicas": 1}
    world = FencedWorld(wanted())
    world.settle()
    world.desired = wanted(fewer, {names.FENCED: "demo-s0-1"})
    for _ in range(20):
        world.look()
        world.turn()
    assert (world.held, len(world.observe().pods_of(None))) == ({"demo-s0-1"}, 3)
    world.desired = wanted(fewer)
    world.settle()
    assert len(world.observe().pods_of(None)) == 1
