"""A cluster whose number of shards changes, or of their members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_e2e import clusters
from imago_e2e.kube import until
from imago_e2e.ordering import order, until_done

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
    order(brokers, brokers={"shards": shards})
    what = f"{shards} shards of {brokers.name} run"
    seconds = until(lambda: len(brokers.pods()) == shards, what, seconds_max=seconds_max)
    return seconds + until_done(brokers, seconds_max)


def change_members(
    brokers: Brokers, members: int, *, seconds_max: float = SCALED_SECONDS_MAX
) -> float:
    """Order another number of members in each of two shards, and wait; return the seconds."""
    order(brokers, brokers={"replicasPerShard": members})
    return brokers.settled(2, members, seconds_max=seconds_max) + until_done(brokers, seconds_max)
