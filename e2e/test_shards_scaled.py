"""A person adds a shard and takes it away again, while clients work: every message is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_e2e.clients import load
from imago_e2e.scaling import scale, scaled_cluster

if TYPE_CHECKING:
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator
    from imago_testing.java.driver import JavaDriver


def test_from_two_shards_to_three_and_back(
    kube: Kube,
    operator: Operator,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
) -> None:
    assert operator.installed()
    brokers = scaled_cluster(kube)
    with load(brokers, drivers, topic) as running:
        account.append(f"2 -> 3 in {scale(brokers, 3):.0f} s")
        brokers.make_topic(f"{topic}-new")
        running.go_on()
        account.append(f"3 -> 2 in {scale(brokers, 2):.0f} s")
        running.go_on()
        account.append(running.finish())
    assert "data-demo-s2-0" in brokers.claims(), "claims are retained"
    assert {shard["id"] for shard in brokers.snapshot()["shards"] if shard["members"]} == {0, 1}
