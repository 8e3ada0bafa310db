"""An operator that dies whenever it has begun something."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from imago_e2e.kube import KubeError
from imago_e2e.operator import status

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_e2e.operator import Operator


class Killer:
    """Kills the operator whenever the cluster's status says that another step has begun."""

    def __init__(self, brokers: Brokers, operator: Operator, *, kills_max: int = 100) -> None:
        self.steps: list[str] = []
        self._brokers, self._operator = brokers, operator
        self._kills_max = kills_max
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="killer")

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        before = self._step()
        while not self._stop.wait(0.2) and len(self.steps) < self._kills_max:
            step = self._step()
            if step != before and step != "":
                before = step
                self.steps.append(step)
                self._operator.kill(*(pod["metadata"]["name"] for pod in self._operator.pods()))

    def _step(self) -> str:
        brokers = self._brokers
        try:
            told = status(brokers.kube, "imc", brokers.namespace, brokers.name)
        except KubeError:
            return ""
        progress = told.get("progress", {})
        return f"{progress.get('row')}/{progress.get('step')}"
