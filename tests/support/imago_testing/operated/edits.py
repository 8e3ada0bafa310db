"""Edits of a cluster, and how people are told to make them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from imago_operator.model.desired import with_spec
from imago_operator.spec.cluster.tls import Tls
from imago_testing.operated.faults import SHARDS_MAX
from imago_testing.operated.resources import OPERATOR, wanted

if TYPE_CHECKING:
    import random

    from imago_operator.model.desired import Desired
    from imago_testing.operated.world import ClusterWorld

NEWER: Final = replace(OPERATOR, version="1.3.0")
EDITS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"spec.image": "mine:2"},
    {"spec.brokers.config": {"store.scrub_interval_ms": 5}},
    {"spec.brokers.config": {"rocketmq.pull_hold_ms_max": 5}},
    {"spec.updatePolicy": {"maxUnavailableShards": 2}, "spec.image": "mine:3"},
    {"spec.updatePolicy": {"onOperatorUpgrade": "Roll"}},
    {"spec.updatePolicy": {"mode": "Manual"}, "spec.image": "mine:4"},
    {"spec.brokers.storage.size": "20Gi"},
    {
        "spec.brokers.storage.persistentVolumeClaimRetentionPolicy": {
            "whenScaled": "Delete",
            "whenDeleted": "Delete",
        }
    },
    {"spec.brokers.removeShards": [0]},
    {"spec.podDisruptionBudget": {"enabled": False}},
    {"spec.brokers.template": {"persistentVolumeClaim": {"metadata": {"labels": {"a": "b"}}}}},
    {"spec.zookeeper.managed.resources": {"requests": {"memory": "1Gi"}}},
    {"spec.authorization": {"type": "Simple", "superUsers": ["root"], "tokenReview": True}},
    {"spec.tls": {}},
    {"spec.tls": {"clients": "Enforcing", "members": "Enforcing"}},
    {"spec.hibernated": True},
    {"spec.hibernated": True, "spec.image": "mine:2"},
    {"spec.brokers.storage.storageClassName": "fast"},
    {"spec.zookeeper.managed.replicas": 1},
    {"spec.zookeeper.managed.replicas": 5, "spec.image": "mine:3"},
    {"spec.brokers.storage.storageClassName": "slow", "spec.brokers.storage.size": "20Gi"},
    {
        "spec.brokers.shardPools": [
            {"shards": [0], "nodeSelector": {}, "tolerations": [{"key": "a"}]}
        ]
    },
    {"spec.zookeeper.managed.image": "zoo:2", "spec.image": "mine:2"},
)
ORDERS: Final[tuple[dict[str, str], ...]] = (
    {},
    {},
    {},
    {"imago.dev/restart": "now"},
    {"imago.dev/allow-data-loss": "0"},
    {"imago.dev/pause-reconciliation": "true"},
)


@cache
def desired_pipeline(shards: int, replicas: int, edit: int, order: int, newer: bool) -> Desired:
    sizes = {"spec.brokers.shards": shards, "spec.brokers.replicasPerShard": replicas}
    return wanted(EDITS[edit] | sizes, ORDERS[order], NEWER if newer else OPERATOR)


def random_desired(rng: random.Random, replicas: int) -> Desired:
    edit, order = rng.randrange(len(EDITS)), rng.randrange(len(ORDERS))
    return desired_pipeline(rng.randint(1, SHARDS_MAX), replicas, edit, order, rng.random() < 0.3)


@cache
def awake(edited: Desired) -> Desired:
    return with_spec(edited, replace(edited.spec, hibernated=False))


def admitted(world: ClusterWorld, edited: Desired) -> Desired:
    """Return an edit as people are told to make it: TLS stays until no member is strict.

    And claims of another class are for those who have more members than puts need.
    """
    if edited.replicas <= edited.min_in_sync:
        edited = _of_any_class(edited)
    return _with_tls(edited) if world.strict and edited.spec.tls is None else edited


@cache
def _of_any_class(edited: Desired) -> Desired:
    storage = replace(edited.spec.brokers.storage, storage_class_name=None)
    return with_spec(
        edited, replace(edited.spec, brokers=replace(edited.spec.brokers, storage=storage))
    )


@cache
def _with_tls(edited: Desired) -> Desired:
    return with_spec(edited, replace(edited.spec, tls=Tls()))
