"""A cluster hibernates while clients send, and wakes: every acknowledged message is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_e2e import clusters
from imago_e2e.clients import load
from imago_e2e.kube import until
from imago_e2e.operator import condition, defects
from imago_e2e.ordering import order
from imago_testing.interop.drivers import ROCKETMQ5

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator
    from imago_testing.java.driver import JavaDriver

NAMESPACE = "e2e-hibernated"
STOPPED_SECONDS_MAX, WOKEN_SECONDS_MAX = 300.0, 300.0


def test_it_sleeps_and_wakes_while_clients_send(
    kube: Kube,
    operator: Operator,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
) -> None:
    """The clients are RocketMQ's, which find a cluster again that was away for minutes."""
    assert operator.installed()
    brokers = clusters.make(kube, clusters.manifest(kube.namespace(NAMESPACE), shards=2))
    claims = brokers.claims()
    with load(brokers, {ROCKETMQ5: drivers[ROCKETMQ5]}, topic) as running:
        running.go_on()
        account.append(f"asleep after {_hibernate(brokers):.0f} s")
        found = condition(kube, "imc", NAMESPACE, brokers.name, "Hibernated")
        assert (found["status"], found["reason"]) == ("True", "Asleep")
        assert brokers.claims() == claims
        account.append(f"awake after {_wake(brokers):.0f} s")
        running.go_on()
        account.append(running.finish())
    assert brokers.claims() == claims
    assert defects(kube, NAMESPACE) == []
    kube.delete_namespace(NAMESPACE)


def _hibernate(brokers: Brokers) -> float:
    order(brokers, hibernated=True)

    def sleeps() -> bool:
        found = condition(brokers.kube, "imc", brokers.namespace, brokers.name, "Hibernated")
        if brokers.pods():
            assert brokers.servers(), "ZooKeeper is there as long as a broker is"
        return found.get("reason") == "Asleep" and not (brokers.pods() or brokers.servers())

    what = f"{brokers.name} has no pods"
    return until(sleeps, what, seconds_max=STOPPED_SECONDS_MAX)


def _wake(brokers: Brokers) -> float:
    order(brokers, hibernated=False)
    return brokers.settled(2, seconds_max=WOKEN_SECONDS_MAX)
