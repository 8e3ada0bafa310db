"""A cluster is deleted by mistake and applied again: it takes up its claims with every message."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from imago_e2e.clients import load
from imago_e2e.kube import until
from imago_e2e.scaling import scaled_cluster

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator
    from imago_testing.java.driver import JavaDriver

GONE_SECONDS_MAX = 120.0
ADDRESSES_KEPT_SECONDS = 30.0
"""For how long Java keeps what a name stood for: Services made again have new addresses."""
SHARDS = 2


def test_a_cluster_made_again_has_its_messages(
    kube: Kube,
    operator: Operator,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
) -> None:
    assert operator.installed()
    brokers = scaled_cluster(kube)
    with load(brokers, drivers, topic) as running:
        account.append(running.finish())
        sent = sum(len(stream.acknowledged) for stream in running.producers)
        topics = [f"{topic}-{name}" for name in drivers]
    before, claims, identity = _stored(brokers, topics), brokers.claims(), _identity(brokers)
    assert sum(before.values()) >= sent
    kube.run("delete", "imc", brokers.name, "-n", brokers.namespace, "--timeout=60s")
    gone = until(lambda: brokers.uids() == {}, "all pods are gone", seconds_max=GONE_SECONDS_MAX)
    assert brokers.claims() == claims
    forgotten = time.monotonic() + ADDRESSES_KEPT_SECONDS
    assert scaled_cluster(kube) == brokers
    account.append(f"gone in {gone:.0f} s, and made again")
    assert _stored(brokers, topics) == before
    assert _identity(brokers) == identity
    assert brokers.claims() == claims
    until(lambda: time.monotonic() > forgotten, "clients ask for its addresses", seconds_max=60)
    with load(brokers, drivers, f"{topic}-2") as running:
        account.append(running.finish())
        running.unrefused()


def _stored(brokers: Brokers, topics: list[str]) -> dict[tuple[str, int], int]:
    places = [(topic, shard) for topic in topics for shard in range(SHARDS)]
    return {place: brokers.stored(*place) for place in places}


def _identity(brokers: Brokers) -> str:
    return str(brokers.snapshot()["clusterId"])
