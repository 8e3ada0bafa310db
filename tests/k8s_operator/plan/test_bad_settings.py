"""Settings with which no broker starts: one member shows it, whatever else restarts meanwhile."""

from __future__ import annotations

from typing import Any, Final

import pytest

from imago_operator.plan.look import ClusterLook
from imago_testing.operated.resources import wanted
from imago_testing.operated.world import ClusterWorld

BAD: Final = {"spec.brokers.config": {"store.scrub_interval_ms": 5}}
LINE: Final = "scrub_interval_ms = 5"


def began(changes: dict[str, Any] | None = None) -> ClusterWorld:
    world = ClusterWorld(wanted(changes))
    world.settle()
    world.refused.add(LINE)
    return world


def looks(world: ClusterWorld, count: int) -> None:
    for _ in range(count):
        world.look()
        world.turn()


def in_sync(world: ClusterWorld) -> int:
    return sum(len(shard.in_sync) for shard in world.shards.values())


def condition(world: ClusterWorld, kind: str) -> tuple[str, str]:
    found = next(c for c in world.status.conditions if c.type == kind)
    return found.reason, found.message


def test_a_container_that_begins_again_keeps_the_file_of_its_pod() -> None:
    world = began()
    world.desired = wanted(BAD)
    looks(world, 5)
    assert len(world.misled) == 1
    for name in sorted(world.pods):
        if name not in world.misled and world.pods[name].shard is not None:
            world.reboot(name)
            looks(world, 3)
    assert len(world.misled) == 1
    assert in_sync(world) == 5
    reason, message = condition(world, "Degraded")
    assert reason == "PodsFailing"
    assert LINE in message

    world.desired = wanted()
    world.settle()
    assert in_sync(world) == 6


@pytest.mark.parametrize("edit", [BAD, {"spec.image": "typo:1"}], ids=["setting", "image"])
def test_members_of_other_shards_that_are_made_anew_do_not_join_it(edit: dict[str, Any]) -> None:
    """An eviction, or a node that is drained: the pod is another one."""
    three = {"spec.brokers.shards": 3}
    world = began(three)
    world.broken_images.add("typo:1")
    world.desired = wanted(three | edit)
    looks(world, 5)
    for name in [f"demo-s{shard}-{member}" for member in range(3) for shard in (1, 2)]:
        world.kill(name)
        looks(world, 10)
    ill = [pod.name for pod in world.pods.values() if pod.waiting]
    assert len(ill) == 1
    assert in_sync(world) == 8

    world.desired = wanted(three)
    world.settle()
    assert in_sync(world) == 9
    world.refused.clear()
    world.broken_images.clear()
    world.desired = wanted(three | edit)
    world.settle()
    assert in_sync(world) == 9
    look = ClusterLook(world.desired, world.observe(), world.now)
    assert not any(look.outdated(pod) for pod in world.pods.values())


def test_where_nobody_serves_no_shard_is_held_back() -> None:
    world = began(BAD | {"spec.brokers.shards": 3})
    for name in sorted(name for name, pod in world.pods.items() if pod.shard is not None):
        world.reboot(name)
    looks(world, 5)
    assert in_sync(world) == 0
    world.desired = wanted({"spec.brokers.shards": 3})
    world.settle()
    assert in_sync(world) == 9


def test_settings_that_may_change_restart_nobody_and_are_read_by_who_comes_later() -> None:
    world = began()
    before = {pod.uid for pod in world.pods.values()}
    world.desired = wanted({"spec.brokers.config": {"rocketmq.pull_hold_ms_max": 77}})
    world.settle()
    assert {pod.uid for pod in world.pods.values()} == before
    files = {
        name for kind, name in world.manifests if kind == "ConfigMap" and "demo-config" in name
    }
    assert len(files) == 2, "pods that run keep theirs"
    for name in sorted(name for name, pod in world.pods.items() if pod.shard is not None):
        world.kill(name)
        world.settle()
    files = {
        name for kind, name in world.manifests if kind == "ConfigMap" and "demo-config" in name
    }
    assert len(files) == 1, "what nobody names any more goes"


def test_settings_that_somebody_took_away_are_no_end_of_their_pods() -> None:
    world = began()
    world.desired = wanted({"spec.brokers.config": {"rocketmq.pull_hold_ms_max": 77}})
    world.settle()
    old = next(pod.config for pod in world.pods.values() if pod.shard is not None)
    del world.children["ConfigMap", old], world.manifests["ConfigMap", old]
    world.reboot("demo-s0-1")
    looks(world, 700)
    world.settle()
    assert in_sync(world) == 6
