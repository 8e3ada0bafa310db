"""A cluster whose number of shards changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from imago_e2e import clusters
from imago_e2e.kube import until
from imago_e2e.operator import until_ready

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube

NAMESPACE = "e2e-scaled"
SCALED_SECONDS_MAX = 240.0


def scaled_cluster(kube: Kube) -> Brokers:
    """Return a cluster of two shards with one member each; it is made when it is not there."""
    given = clusters.manifest(
        kube.namespace(NAMESPACE),
        shards=2,
        brokers={"replicasPerShard": 1},
        zookeeper={"managed": {"replicas": 1, "storage": {"size": "1Gi"}}},
    )
    return clusters.make(kube, given)


def scale(brokers: Brokers, shards: int, *, seconds_max: float = SCALED_SECONDS_MAX) -> float:
    """Order another number of shards and wait until it is so; return the seconds."""
    patch = json.dumps({"spec": {"brokers": {"shards": shards}}})
    named = ("imc", brokers.name, "-n", brokers.namespace)
    brokers.kube.run("patch", *named, "--type=merge", "-p", patch)
    what = f"{shards} shards of {brokers.name} run"
    seconds = until(lambda: len(brokers.pods()) == shards, what, seconds_max=seconds_max)
    ready = until_ready(
        brokers.kube, "imc", brokers.namespace, brokers.name, seconds_max=seconds_max
    )
    return seconds + ready
