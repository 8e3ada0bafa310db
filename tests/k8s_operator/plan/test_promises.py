"""What no plan ever does, over random clusters; and that what is checked can be broken."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imago_operator.actions import (
    Action,
    DeleteClaim,
    DeletePod,
    Elect,
    MarkDrained,
)
from imago_operator.plan import Plan, Row
from imago_operator.state import Registry
from imago_testing.operated import wanted
from imago_testing.operated_rules import violations
from imago_testing.operated_states import check_look, check_walk, main
from imago_testing.operated_world import World


@pytest.mark.simulation
@pytest.mark.timeout(300)
@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
@given(rng=st.randoms(use_true_random=False))
def test_every_plan_keeps_every_promise(rng: random.Random) -> None:
    check_look(rng)


@pytest.mark.parametrize("seed", range(30))
def test_edits_and_faults_end_in_a_cluster_that_settles(seed: int) -> None:
    check_walk(random.Random(seed))


def test_the_search_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "50"]) == 0
    assert "50 looks and 1 walks" in capsys.readouterr().out


@pytest.fixture(name="world", scope="module")
def _world() -> World:
    world = World(wanted())
    world.settle()
    return world


def bad(world: World, *actions: Action) -> str:
    plan = Plan(row=Row.ROLLOUT, actions=actions)
    return "; ".join(violations(world.wish, world.observe(), plan, world.now))


class TestTheCheckItself:
    """Each promise, broken by hand: a check that finds nothing would be worth nothing."""

    def test_a_restart_that_nobody_asked_for(self, world: World) -> None:
        pod = world.pods["demo-s0-0"]
        said = bad(world, DeletePod(pod.name, pod.uid, 0, ""))
        assert "the user said nothing new" in said

    def test_two_members_of_a_shard(self, world: World) -> None:
        pods = [world.pods[f"demo-s0-{n}"] for n in (0, 1)]
        said = bad(world, *(DeletePod(p.name, p.uid, 0, "") for p in pods))
        assert "two voluntary disruptions" in said
        assert "two pods of one shard" in said

    def test_two_shards(self, world: World) -> None:
        pods = [world.pods[f"demo-s{n}-0"] for n in (0, 1)]
        said = bad(world, *(DeletePod(p.name, p.uid, p.shard, "") for p in pods))
        assert "more shards down" in said

    def test_a_pod_that_is_another_by_now(self, world: World) -> None:
        assert "was not seen" in bad(world, DeletePod("demo-s0-0", "old", 0, ""))

    def test_a_claim_in_use(self, world: World) -> None:
        claim = world.claims["data-demo-s0-0"]
        assert "somebody needs" in bad(world, DeleteClaim(claim.name, claim.uid, 0))

    def test_a_shard_that_is_not_empty(self, world: World) -> None:
        assert "that it is empty" in bad(world, MarkDrained(1))

    def test_an_election_that_nobody_allowed(self, world: World) -> None:
        assert "may lack messages" in bad(world, Elect("demo-s0-0", "x", 0))

    def test_acting_without_information(self, world: World) -> None:
        seen = replace(world.observe(), registry=Registry(cluster_id="c-1", connected=False))
        pod = world.pods["demo-s0-0"]
        plan = Plan(row=Row.ROLLOUT, actions=(DeletePod(pod.name, pod.uid, 0, ""),))
        said = "; ".join(violations(world.wish, seen, plan, world.now))
        assert "without knowing" in said
