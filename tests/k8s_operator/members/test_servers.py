"""ZooKeeper gets more servers, and fewer, one at a time; brokers have it all the time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from imago_operator.manifests.zookeeper_members import FOUNDERS, MEMBERS
from imago_operator.model.actions import DeletePod, GrowClaim
from imago_operator.model.state import STATEFUL_SET, Claim
from imago_operator.plan import PlanRow, plan
from imago_testing.operated.resources import wanted
from imago_testing.operated.world import ClusterWorld

REPLICAS = "spec.zookeeper.managed.replicas"
SET, FILE = (STATEFUL_SET, "demo-zookeeper"), ("ConfigMap", "demo-zookeeper-config")


def began(servers: int, more: dict[str, Any] | None = None) -> ClusterWorld:
    world = ClusterWorld(wanted({REPLICAS: servers} | (more or {})))
    world.settle()
    world.done.clear()
    return world


def numbers(world: ClusterWorld) -> tuple[int, ...]:
    """Return pods, members and founders as all are told, and who is a member."""
    said = world.manifests[FILE]["data"]
    pods = world.manifests[SET]["spec"]["replicas"]
    return pods, int(said[MEMBERS]), int(said[FOUNDERS]), len(world.ensemble)


def goes_to(world: ClusterWorld, servers: int, looks: int = 300) -> None:
    """Have the spec say another number, and look until it is so."""
    world.desired = wanted({REPLICAS: servers})
    for _ in range(looks):
        before, found = numbers(world), world.look()[1]
        world.turn()
        assert world.connected, "brokers have ZooKeeper all the time"
        after = numbers(world)
        assert all(abs(one - other) <= 1 for one, other in zip(before, after, strict=True))
        if found.row is PlanRow.SETTLED and after == (servers,) * 4:
            return
    raise AssertionError(world.look()[1].explain())


@pytest.mark.parametrize("lags", [0, 2])
def test_one_becomes_three_and_five_and_three_and_one(lags: int) -> None:
    world = began(1)
    world.behind = world.unready = lags
    for servers in (3, 5, 3, 1, 5):
        goes_to(world, servers)
        assert not [a for a in world.done if isinstance(a, DeletePod)], "nobody is restarted"


@pytest.mark.parametrize("dies_after", [0, 1, 2, 3])
@pytest.mark.parametrize(("first", "last"), [(1, 3), (5, 3)])
def test_an_operator_that_dies_at_every_action_goes_on(
    first: int, last: int, dies_after: int
) -> None:
    world = began(first)
    world.desired = wanted({REPLICAS: last})
    for _ in range(30):
        world.look(dies_after=dies_after)
        world.turn()
        world.look()
        world.turn()
    world.settle()
    assert numbers(world) == (last,) * 4


def test_another_number_on_the_way_is_followed_from_where_it_is() -> None:
    world = began(3)
    world.desired = wanted({REPLICAS: 5})
    for _ in range(3):
        world.look()
        world.turn()
    assert 3 < numbers(world)[0] <= 5
    goes_to(world, 3)


def test_nobody_joins_or_leaves_while_a_member_lacks() -> None:
    world = began(3)
    world.crash("demo-zookeeper-1")
    for last in (5, 1):
        world.desired = wanted({REPLICAS: last})
        for _ in range(10):
            world.look()
            world.turn()
        assert numbers(world) == (3, 3, 3, 3)
        assert "every server to serve" in world.look()[1].explain()
    world.kill("demo-zookeeper-1")
    world.settle()


def test_a_server_that_never_joins_is_said_and_may_be_taken_back() -> None:
    world = began(3)
    world.desired = wanted({REPLICAS: 5})
    for _ in range(2):
        world.look()
        world.turn()
        if "demo-zookeeper-3" in world.pods:
            world.crash("demo-zookeeper-3")
    for _ in range(5):
        world.look()
        world.turn()
    assert world.look()[1].row is PlanRow.SERVERS
    assert numbers(world)[0] == 4, "the fifth waits for the fourth"
    goes_to(world, 3)


def test_an_operator_that_could_not_change_it_leaves_one_number() -> None:
    """Its ConfigMap has the servers in another way: until today's is there nothing changes."""
    world = began(3)
    del world.manifests[FILE]
    del world.children[FILE]
    world.desired = wanted({REPLICAS: 5})
    world.look()
    assert numbers(world)[:3] == (3, 3, 3)
    goes_to(world, 5)


def test_claims_of_servers_grow_and_never_shrink() -> None:
    world = began(3)
    seen = world.observe()
    claims = tuple(
        Claim(name=f"data-demo-zookeeper-{n}", uid=f"u{n}", shard=-1, ordinal=n, requested=size)
        for n, size in enumerate((1 << 30, 5 << 30, 9 << 30))
    )
    desired = wanted({"spec.zookeeper.managed.storage": {"size": "5Gi"}})
    for expandable, grown in ((True, ["data-demo-zookeeper-0"]), (False, [])):
        look = replace(seen, server_claims=claims, expandable={"": expandable})
        found = plan(desired, look, world.now)
        names = [a.name for a in found.actions if isinstance(a, GrowClaim)]
        assert names == grown
