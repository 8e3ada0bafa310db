"""Making the clusters that stories are told of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_e2e.brokers import Brokers
from imago_e2e.operator import until_ready

if TYPE_CHECKING:
    from imago_e2e.kube import Kube

SHARED, PAIR = "e2e-demo", "e2e-pair"
READY_SECONDS_MAX = 60.0
RELAYED_SECONDS = 5
"""How long a master that handed over passes its clients on: the suite's read routes every second,
those of people every 30 s, for which it is 35 s by default."""
SMALL = {
    # Files are taken from the disk whole, and many brokers share that of one machine.
    "store.segment_bytes_max": 32 << 20,
    "replication.handover_linger_ms": RELAYED_SECONDS * 1000,
}
"""Settings of brokers that are small, and whose masters are soon restarted."""
LEVELS = ("clean", "force", "full")


def manifest(namespace: str, name: str = "demo", shards: int = 1, **more: Any) -> dict[str, Any]:
    """Return an ImagoCluster that is small enough for three of them on a laptop.

    No two members share a node, so that a node that goes takes one of three.
    """
    brokers = {
        "shards": shards,
        "replicasPerShard": 3,
        "storage": {"size": "2Gi"},
        "antiAffinity": "Required",
        # Volumes are folders of this machine's disk, which may be full of other things.
        "config": {**SMALL, **{f"store.disk_{what}_ratio": 1.0 for what in LEVELS}},
    }
    managed = {"replicas": 3, "storage": {"size": "1Gi"}}
    zookeeper = {"managed": managed}
    spec: dict[str, Any] = {"zookeeper": zookeeper, "brokers": brokers}
    for key, value in more.items():
        spec[key] = {**spec.get(key, {}), **value} if isinstance(value, dict) else value
    return {
        "apiVersion": "imago.dev/v1alpha1",
        "kind": "ImagoCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def make(kube: Kube, given: dict[str, Any]) -> Brokers:
    """Make a cluster and wait until all of it serves."""
    metadata = given["metadata"]
    kube.apply(given)
    brokers = Brokers(kube, metadata["namespace"], metadata["name"])
    of = given["spec"]["brokers"]
    brokers.settled(of["shards"], of["replicasPerShard"])
    until_ready(kube, "imc", brokers.namespace, brokers.name, seconds_max=READY_SECONDS_MAX)
    return brokers


def shared(kube: Kube) -> Brokers:
    """Return the cluster that stories share; it is made when it is not there."""
    return make(kube, manifest(kube.namespace(SHARED)))


def pair(kube: Kube) -> Brokers:
    """Return a cluster of two shards on disks that can be full; it is made when it is not there."""
    kept = kube.find("imc", "pair", "-n", kube.namespace(PAIR))
    # Disks of one that was kept may have grown.
    size = kept["spec"]["brokers"]["storage"]["size"] if kept else "2Gi"
    brokers = {"storage": {"size": size, "storageClassName": "sized"}, "config": SMALL}
    return make(kube, manifest(PAIR, "pair", shards=2, brokers=brokers))
