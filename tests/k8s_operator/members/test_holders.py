"""Whoever may hold what was acknowledged stays, or comes back, however members are changed."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_operator.manifests.config import FILE
from imago_operator.model import names
from imago_operator.model.actions import Apply, DeleteChild, DeletePod, Handover
from imago_operator.model.state import STATEFUL_SET
from imago_operator.plan import ReconcilePlan, plan
from imago_operator.plan.members.counting import LEAST, MEMBERS
from imago_operator.plan.restarts.staging import staged
from imago_operator.promises import broken
from imago_testing.operated.resources import OPERATOR, wanted
from imago_testing.operated.rules import violations
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    from imago_operator.model.desired import Desired

NEWER = replace(OPERATOR, version="1.3.0")
LEADER = {"spec.brokers.acknowledgement": "leader", "spec.brokers.minInSync": 1}
SIZE = {"spec.brokers.storage.size": "20Gi"}


def of(members: int, more: dict[str, Any] | None = None, *, newer: bool = False) -> Desired:
    sizes = {"spec.brokers.replicasPerShard": members, "spec.brokers.shards": 2}
    return wanted(sizes | (more or {}), operator=NEWER if newer else OPERATOR)


def began(members: int, more: dict[str, Any] | None = None) -> ClusterWorld:
    world = ClusterWorld(of(members, more))
    world.settle()
    world.done.clear()
    return world


def members(world: ClusterWorld) -> dict[int, int | None]:
    return {number: found.replicas for number, found in world.observe().sets().items()}


def alone_in_sync(world: ClusterWorld, ordinal: int) -> str:
    """Have one member of shard-0 lead, the others be away, and return who it is."""
    for other in {0, 1, 2} - {ordinal}:
        world.crash(f"demo-s0-{other}")
    chosen = world.pods[f"demo-s0-{ordinal}"].broker
    assert chosen is not None
    world.shards[0] = replace(world.shards[0], master=chosen.uuid)
    assert world.shards[0].in_sync == {chosen.uuid}
    return chosen.uuid


@pytest.mark.parametrize("last", [1, 2])
def test_a_set_that_is_made_anew_has_all_members_that_are_there(last: int) -> None:
    """Its controller takes away whoever is beyond the number that it begins with."""
    world = began(3)
    uuid = alone_in_sync(world, 2)
    world.desired = of(last, SIZE)
    for _ in range(20):
        world.look()
        world.turn()
        assert "demo-s0-2" in world.pods
    anew = [a for a in world.done if isinstance(a, DeleteChild) and a.kind == STATEFUL_SET]
    assert {(a.name, a.orphan) for a in anew} == {("demo-s0", True), ("demo-s1", True)}
    assert world.shards[0].master == uuid
    for other in range(2):
        world.kill(f"demo-s0-{other}")
    world.settle()
    assert members(world) == {0: last, 1: last}


def test_the_check_sees_a_set_that_is_made_anew_without_a_member() -> None:
    world = began(3)
    made = world.manifests[STATEFUL_SET, "demo-s0"]
    world.children.pop((STATEFUL_SET, "demo-s0"))
    fewer = Apply({**made, "spec": {**made["spec"], "replicas": 2}}, "missing")
    alone_in_sync(world, 2)
    seen, desired = world.observe(), of(2)
    planned = replace(plan(desired, seen, world.now), actions=(fewer,))
    said = violations(desired, seen, planned, world.now)
    assert "shard-0 is made anew without demo-s0-2" in said
    assert "demo-s0 loses members that its shard may need" in broken(
        desired, seen, (fewer,), world.now
    )


@pytest.mark.parametrize("scaled", [0, 1, 2])
def test_members_that_have_left_come_back_where_nobody_else_may_lead(scaled: int) -> None:
    """Somebody scales a set down while its last member alone is in sync; the spec says so, too."""
    world = began(3)
    world.absence = 3
    uuid = alone_in_sync(world, 2)
    world.scale(0, scaled)
    world.turn()
    assert world.shards[0].master is None
    world.desired = of(2)
    for pod in world.pods.values():
        world.pods[pod.name] = replace(pod, waiting=None)
    leaders: set[str | None] = set()
    explained = []
    for _ in range(200):
        _, found = world.look()
        world.turn()
        leaders.add(world.shards[0].master)
        explained.append(found.explain())
    assert uuid in leaders
    assert [text for text in explained if "members come back, up to 3" in text]
    world.settle()
    assert members(world) == {0: 2, 1: 2}
    assert len(world.shards[0].in_sync) == 2


def test_members_come_back_beside_one_that_no_node_takes() -> None:
    """Kubernetes tells of no turn of a pod that was never on a node."""
    world = began(3)
    uuid = alone_in_sync(world, 2)
    world.scale(0, 1)
    world.turn()
    world.desired = of(2)
    leaders: set[str | None] = set()
    for _ in range(150):
        world.look()
        world.turn()
        if found := world.pods.get("demo-s0-1"):
            nowhere: dict[str, Any] = {
                "ready": False,
                "turned": None,
                "unscheduled": "no node has room",
            }
            world.pods["demo-s0-1"] = replace(found, broker=None, **nowhere)
        leaders.add(world.shards[0].master)
    assert uuid in leaders


def test_an_election_gets_its_time_before_anybody_is_called_back() -> None:
    world = began(3)
    world.desired = of(1)
    world.settle()
    world.zookeeper = False
    world.kill("demo-s0-0")
    world.turn()
    for look in range(40):
        world.zookeeper = look > 20
        world.look()
        world.turn()
        assert members(world)[0] == 1
    world.settle()


def test_nobody_leaves_whose_pod_is_not_there_while_it_may_be_the_only_one_in_sync() -> None:
    world = began(3)
    uuid = alone_in_sync(world, 2)
    world.absence = 10
    world.kill("demo-s0-2")
    world.desired = of(2)
    for _ in range(8):
        world.look()
        world.turn()
        assert members(world)[0] == 3
    for other in range(2):
        world.pods[f"demo-s0-{other}"] = replace(world.pods[f"demo-s0-{other}"], waiting=None)
    world.settle()
    assert members(world) == {0: 2, 1: 2}
    assert uuid not in {m.uuid for m in world.shards[0].members}


def test_members_that_no_node_takes_leave_while_others_lack_as_well() -> None:
    """Nobody waits for one that is to leave, too."""
    world = began(1)
    for node in world.nodes:
        world.cordon(node)
    world.desired = of(3)
    for _ in range(5):
        world.look()
        world.turn()
    assert members(world) == {0: 3, 1: 3}
    world.desired = of(1)
    world.settle()
    assert members(world) == {0: 1, 1: 1}


def leads(world: ClusterWorld, pod: str) -> None:
    number = world.pods[pod].shard
    chosen = world.pods[pod].broker
    assert chosen is not None
    assert number is not None
    world.shards[number] = replace(world.shards[number], master=chosen.uuid)


def test_a_leader_that_does_not_answer_is_not_taken_for_a_follower() -> None:
    """At a level of `leader` it alone has what it has just acknowledged."""
    world = began(3, LEADER)
    leads(world, "demo-s0-2")
    world.silent = {"demo-s0-2"}
    world.desired = of(2, LEADER)
    for _ in range(20):
        world.look()
        world.turn()
        assert members(world)[0] == 3
    world.silent.clear()
    world.settle()
    assert members(world) == {0: 2, 1: 2}
    assert {a.shard for a in world.done if isinstance(a, Handover)} == {0}


def test_a_leader_hands_over_while_a_member_of_another_shard_still_leaves() -> None:
    world = began(3)
    world.grace = 9
    for number in (0, 1):
        leads(world, f"demo-s{number}-2")
    world.desired = of(1)
    both = []
    for _ in range(40):
        goes = {pod.shard for pod in world.pods.values() if pod.deleting}
        _, found = world.look()
        world.turn()
        both += [goes for a in found.actions if isinstance(a, Handover) and goes]
    assert both == [{0}]
    world.settle()
    assert members(world) == {0: 1, 1: 1}


def test_a_leader_hands_over_while_one_that_is_to_leave_as_well_is_gone_for_good() -> None:
    """Somebody takes members away since a node is lost."""
    world = began(3)
    for number in (0, 1):
        leads(world, f"demo-s{number}-2")
    world.cut_power("node-1")
    for _ in range(5):
        world.look()
        world.turn()
    world.desired = of(1)
    for _ in range(60):
        world.look()
        world.turn()
    assert {a.shard for a in world.done if isinstance(a, Handover)} == {0, 1}
    assert {f"demo-s{n}-2" for n in (0, 1)}.isdisjoint(world.pods)
    assert not world.unserved()
    world.dark.clear()
    world.settle()
    assert members(world) == {0: 1, 1: 1}


@pytest.mark.parametrize(("first", "last"), [(3, 1), (3, 2), (1, 3), (2, 3)])
def test_members_change_while_a_new_template_waits_for_approval(first: int, last: int) -> None:
    """A new operator alone restarts nothing: nobody shows that its template is any good."""
    world = began(first)
    world.desired = of(first, newer=True)
    world.settle()
    before = {pod.uid for pod in world.pods.values()}
    world.desired = of(last, newer=True)
    found = _settled(world)
    assert members(world) == {0: last, 1: last}
    assert [a for a in world.done if isinstance(a, DeletePod)] == []
    stay = {f"demo-s{n}-{m}" for n in (0, 1) for m in range(min(first, last))}
    assert {p.uid for n, p in world.pods.items() if n in stay} <= before
    assert "OperatorTemplateChanged" in {f.reason for f in found.findings}


def test_a_shard_that_keeps_its_template_reads_how_many_count_and_nothing_else_that_is_new() -> (
    None
):
    world = began(3)
    waits = {"spec.updatePolicy": {"mode": "Manual"}, "spec.image": "mine:2"}
    world.desired = of(3, waits | {"spec.brokers.config": {"store.segment_bytes_max": 1 << 26}})
    _settled(world)
    world.desired = of(1, waits | {"spec.brokers.config": {"store.segment_bytes_max": 1 << 26}})
    _settled(world)
    assert members(world) == {0: 1, 1: 1}
    said = {}
    for number in (0, 1):
        template = world.observe().sets()[number].template
        assert template["spec"]["containers"][0]["image"] != "mine:2" or number == 0
        file = world.manifests["ConfigMap", _config(template)]["data"][FILE]
        said[number] = tomllib.loads(file)
        section, _, key = LEAST.partition(".")
        assert said[number][section][key] == 1
        section, _, key = MEMBERS.partition(".")
        assert said[number][section][key] == 1
    assert said[0]["store"] == {"segment_bytes_max": 1 << 26}
    assert "store" not in said[1]
    world.kill("demo-s1-0")
    world.turn()
    world.turn()
    assert world.told(world.pods["demo-s1-0"])[LEAST] == 1


def _config(template: Any) -> str:
    from imago_operator.manifests.config import config_of

    return config_of(template)


def _settled(world: ClusterWorld) -> ReconcilePlan:
    world.settle()
    seen = world.observe()
    assert names.is_config(_config(seen.sets()[0].template))
    return plan(staged(world.desired, seen), seen, world.now)  # type: ignore[arg-type]  # one that can be read
