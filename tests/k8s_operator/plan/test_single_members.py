"""Clusters of one member a shard: every restart is a gap, and still all goes through."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_operator.model.desired import Desired
from imago_operator.plan.look import ClusterLook
from imago_testing.operated.resources import OPERATOR, wanted
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    from imago_operator.model.state import Pod


@pytest.mark.parametrize(
    "edit",
    [
        {"spec.brokers.config": {"store.scrub_interval_ms": 5}},
        {"spec.image": "mine:2"},
        {"spec.zookeeper.managed.resources": {"requests": {"memory": "1Gi"}}},
        {"spec.zookeeper.managed.image": "zoo:2", "spec.image": "mine:2"},
        {"spec.version": "1.2.1"},
        {"spec.tls": {"members": "Enforcing"}},
        {"spec.brokers.shards": 2},
        {"spec.brokers.shards": 3, "spec.image": "mine:2"},
    ],
)
def test_a_cluster_without_any_second_member_follows_every_edit(edit: dict[str, Any]) -> None:
    """As the laptop's sample: one member a shard, one server of ZooKeeper."""
    small = {"spec.brokers.replicasPerShard": 1, "spec.zookeeper.managed.replicas": 1}
    world = ClusterWorld(wanted(small | {"spec.brokers.shards": 1}))
    world.settle()
    assert not [c for c in world.status.conditions if c.type == "Degraded"]
    for change in (edit, {}):
        shards = {"spec.brokers.shards": 1} | change
        operator = replace(OPERATOR, version="1.2.1")
        world.desired = wanted(small | shards, operator=operator)
        world.settle()
        assert all(_is_new(world, pod) for pod in world.pods.values())
    [ready] = [c for c in world.status.conditions if c.type == "Ready"]
    assert ready.reason == "AllShardsServing"


def _is_new(world: ClusterWorld, pod: Pod) -> bool:
    assert isinstance(world.desired, Desired)
    look = ClusterLook(world.desired, world.observe(), world.now)
    return not look.outdated(pod) or look.by_operator_only(pod)
