"""The operator is killed at every action of a drain: the next one goes on, and nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_e2e.clients import load
from imago_e2e.killing import Killer
from imago_e2e.scaling import scale, scaled_cluster

if TYPE_CHECKING:
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator
    from imago_testing.java.driver import JavaDriver

KILLS_MIN = 3
DRAINED_SECONDS_MAX = 420.0


def test_a_drain_survives_every_death_of_the_operator(
    kube: Kube,
    operator: Operator,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
) -> None:
    brokers = scaled_cluster(kube)
    with load(brokers, drivers, topic) as running:
        with Killer(brokers, operator) as killer:
            seconds = scale(brokers, 1, seconds_max=DRAINED_SECONDS_MAX)
        account.append(f"2 -> 1 in {seconds:.0f} s; killed when these began: {killer.steps}")
        running.go_on()
        account.append(running.finish())
    assert len(killer.steps) >= KILLS_MIN
    assert "data-demo-s1-0" in brokers.claims(), "claims are retained"
    kube.delete_namespace(brokers.namespace)
