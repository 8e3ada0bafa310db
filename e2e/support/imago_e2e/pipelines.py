"""Pipelines of the suite: made, watched, their drivers killed; and runs from plain manifests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from imago_e2e import lake
from imago_e2e.kube import until
from imago_e2e.versions import ROOT

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube

PLAIN: Final = ROOT / "manifests" / "spark"
LANDS_SECONDS_MAX: Final = 240.0
"""Two JVMs and two images, on cores that others use, too."""
STOPS_SECONDS_MAX: Final = 150.0
_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVMs that are up soon, for runs of a minute."""
_SMALL: Final = {"requests": {"cpu": "250m", "memory": "900Mi"}}


class Pipeline:
    """One ImagoPipeline that lands topics on a claim, or runs another application on them."""

    def __init__(
        self,
        brokers: Brokers,
        name: str,
        engine: str,
        application: dict[str, Any] | None = None,
        **config: str,
    ) -> None:
        self._application, self._config = application, config
        self.kube: Kube = brokers.kube
        self.namespace, self.cluster = brokers.namespace, brokers.name
        self.name, self.engine = name, engine
        self.table = f"/lake/{name}"

    def make(self, topics: list[str]) -> None:
        """Make the account of drivers, the claim, and the pipeline."""
        self.kube.run("apply", "-n", self.namespace, "-f", str(PLAIN / "rbac.yaml"))
        self.kube.apply(lake.manifest(self.namespace), self._manifest(topics))

    def _manifest(self, topics: list[str]) -> dict[str, Any]:
        return {
            "apiVersion": "imago.dev/v1alpha1",
            "kind": "ImagoPipeline",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {
                "clusterRef": {"name": self.cluster},
                "engine": self.engine,
                "source": {"topics": topics, "groupName": self.name, "maxRowsPerTrigger": 2000},
                **self._what(),
                "volumes": [{"name": "lake", "claimName": lake.LAKE, "mountPath": "/lake"}],
                "checkpoint": {"claim": {"accessMode": "ReadWriteMany"}},
                "config": {"triggerSeconds": 1, "progressSeconds": 1, **self._config},
                "resources": {"driver": _SMALL, "executor": _SMALL},
                "restart": {"backoff": "1s", "policy": self._restarts()},
                "spark": {
                    "conf": {
                        "spark.driver.extraJavaOptions": _SHORT_LIVED,
                        "spark.executor.extraJavaOptions": _SHORT_LIVED,
                    }
                },
            },
        }

    def _what(self) -> dict[str, Any]:
        if self._application is None:
            return {"ingest": {"path": self.table}}
        return {"application": {"path": self.table, **self._application}}

    def _restarts(self) -> str:
        ends = self._application is not None and self._application["name"] == "audit"
        return "Never" if ends else "Always"

    def until_ended(self) -> str:
        """Wait until its run has ended by itself; return what became of it, with its last words."""

        def ended() -> bool:
            return self.status.get("state") in ("COMPLETED", "FAILED")

        until(ended, f"pipeline {self.name} has ended", seconds_max=LANDS_SECONDS_MAX, poll=1.0)
        told = self.status
        return f"{told['state']} {told['runs'].get('lastError', '')}".strip()

    def until_read(self) -> None:
        """Wait until it has read all that there is."""
        what = f"pipeline {self.name} has read all"
        until(lambda: self.status.get("lag") == "0", what, seconds_max=LANDS_SECONDS_MAX, poll=1.0)

    @property
    def status(self) -> dict[str, Any]:
        found = self.kube.get("imp", self.name, "-n", self.namespace)
        status: dict[str, Any] = found.get("status", {})
        return status

    @property
    def rows(self) -> int:
        return int(self.status.get("rows") or 0)

    def until_rows(self, least: int) -> float:
        """Wait until so many rows are said to have landed; return seconds."""
        return until(
            lambda: self.rows >= least,
            f"pipeline {self.name} has landed {least} rows",
            seconds_max=LANDS_SECONDS_MAX,
            poll=1.0,
        )

    def kill_driver(self) -> int:
        """Take the driver away from one moment to the next; return the epoch of its run."""
        # A run that failed by itself is followed by another.
        what = f"one driver of {self.name} runs"
        until(lambda: len(self._alive()) == 1, what, seconds_max=LANDS_SECONDS_MAX)
        [alive] = self._alive()
        epoch = int(self.status["epoch"])
        words = ("delete", "pod", alive, "-n", self.namespace, "--grace-period=0", "--force")
        self.kube.run(*words)
        return epoch

    def _alive(self) -> list[str]:
        pods = (pod for pod in self._drivers() if pod["status"].get("phase") == "Running")
        return [pod["metadata"]["name"] for pod in pods]

    def _drivers(self) -> list[dict[str, Any]]:
        labels = f"imago.dev/pipeline={self.name},imago.dev/component=pipeline-driver"
        return self.kube.pods(self.namespace, labels)

    def pause(self, *, on: bool = True) -> None:
        """Have it stand still, and wait until it does; or have it go on."""
        patch = json.dumps({"spec": {"paused": on}})
        words = ("patch", "imp", self.name, "-n", self.namespace, "--type=merge", "-p", patch)
        self.kube.run(*words)
        if on:
            self.kube.run(
                *("wait", "--for=condition=Paused", f"imp/{self.name}", "-n", self.namespace),
                f"--timeout={STOPS_SECONDS_MAX:.0f}s",
                seconds_max=STOPS_SECONDS_MAX + 10,
            )

    def landed(self) -> lake.Landed:
        """Return what is in its table."""
        return lake.landed(self.namespace, self.table)

    def remove(self) -> None:
        """Delete it; its checkpoint stays, as is its way, until the claim is deleted, too."""
        limit = ("--ignore-not-found", f"--timeout={STOPS_SECONDS_MAX:.0f}s")
        seconds_max = STOPS_SECONDS_MAX + 10
        words = ("-n", self.namespace, *limit)
        self.kube.run("delete", "imp", self.name, *words, seconds_max=seconds_max)
        until(lambda: not self._drivers(), "no driver is left", seconds_max=STOPS_SECONDS_MAX)
        claims = (f"{self.name}-checkpoint", *([] if self._application else [lake.LAKE]))
        self.kube.run("delete", "pvc", *claims, *words, seconds_max=seconds_max)


class PlainRun:
    """The run of manifests/spark, with the few changes that their comments ask for."""

    GROUP: Final = "orders-lake"
    TABLE: Final = "/lake/orders"
    CLAIM: Final = "imago-lake"
    _FILES: Final = ("rbac.yaml", "pvc.yaml", "config.yaml", "sparkapplication.yaml")

    def __init__(self, brokers: Brokers) -> None:
        self._brokers, self._kube = brokers, brokers.kube
        self._place = ("-n", brokers.namespace)

    def make(self, topic: str) -> None:
        """Apply them."""
        changes = {
            '"demo-bootstrap.default.svc:9876"': f'"{self._brokers.bootstrap}"',
            '["orders"]': f'["{topic}"]',
            "namespace=default": f"namespace={self._brokers.namespace}",
        }
        for name in self._FILES:
            text = (PLAIN / name).read_text()
            for before, after in changes.items():
                text = text.replace(before, after)
            self._kube.run("apply", *self._place, "-f", "-", text=text)

    def until_landed(self, topic: str) -> float:
        """Wait until its group is at the end of the topic; return seconds."""

        def landed() -> bool:
            return self._brokers.consumed(self.GROUP, topic) == self._brokers.stored(topic)

        seconds_max = LANDS_SECONDS_MAX
        return until(landed, "the plain run has landed all", seconds_max=seconds_max, poll=1.0)

    def remove(self) -> list[str]:
        """Delete the run, then all else; return whose messages have landed."""
        seconds_max = STOPS_SECONDS_MAX
        run, *others = (str(PLAIN / name) for name in reversed(self._FILES))
        self._kube.run("delete", *self._place, "-f", run, "--timeout=60s", seconds_max=70)
        label = "imago.dev/pipeline=orders-lake"
        gone = lambda: not self._kube.pods(self._brokers.namespace, label)  # noqa: E731
        until(gone, "no pod of the plain run is left", seconds_max=seconds_max)
        found = lake.landed(self._brokers.namespace, self.TABLE, self.CLAIM)
        for name in others:
            self._kube.run("delete", *self._place, "-f", name, seconds_max=seconds_max)
        return found.bodies
