"""The operator is killed at every action of a drain: the next one goes on, and nothing is lost."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from imago_e2e.clients import load
from imago_e2e.kube import KubeError
from imago_e2e.operator import NAMESPACE, status
from imago_e2e.scaling import scale, scaled_cluster

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator
    from imago_testing.java.driver import JavaDriver

KILLS_MIN = 3
DRAINED_SECONDS_MAX = 420.0


class Killer:
    """Kills the operator whenever the cluster's status says that another step has begun."""

    def __init__(self, brokers: Brokers, operator: Operator) -> None:
        self.steps: list[str] = []
        self._brokers, self._operator = brokers, operator
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="killer")

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        brokers, before = self._brokers, self._step()
        while not self._stop.wait(0.2):
            step = self._step()
            if step != before and step != "":
                before = step
                self.steps.append(step)
                pods = [pod["metadata"]["name"] for pod in self._operator.pods()]
                now = ("--grace-period=0", "--force", "--wait=false")
                brokers.kube.run("delete", "pod", *pods, "-n", NAMESPACE, *now)

    def _step(self) -> str:
        brokers = self._brokers
        try:
            told = status(brokers.kube, "imc", brokers.namespace, brokers.name)
        except KubeError:
            return ""
        progress = told.get("progress", {})
        return f"{progress.get('row')}/{progress.get('step')}"


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
