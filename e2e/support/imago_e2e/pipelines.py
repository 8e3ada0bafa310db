"""Pipelines of the suite: made, watched, their drivers killed, what has landed counted."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

from imago_e2e.clusters import ROOT, version
from imago_e2e.kube import run, until

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube

LAKE: Final = "lake"
BEGINS_SECONDS_MAX: Final = 180.0
"""Two JVMs and two images, on cores that others use, too."""
LANDS_SECONDS_MAX: Final = 180.0
_SMALL: Final = {"requests": {"cpu": "100m", "memory": "900Mi"}}
_COUNT: Final = """\
import collections, glob, json
import pyarrow.parquet as pq
seen = collections.Counter()
bodies = []
names = ["topic", "shard", "queue", "offset", "value"]
for file in glob.glob("/lake/*/date=*/*.parquet"):
    rows = pq.read_table(file, columns=names, partitioning=None).to_pydict()
    seen.update(zip(rows["topic"], rows["shard"], rows["queue"], rows["offset"]))
    bodies += [b"/".join(body.split(b"/", 2)[:2]).decode() for body in rows["value"]]
again = sum(count - 1 for count in seen.values())
print(json.dumps({"again": again, "bodies": bodies}))
"""


class Pipeline:
    """One ImagoPipeline that lands topics on a claim."""

    def __init__(self, brokers: Brokers, name: str, engine: str) -> None:
        self.kube: Kube = brokers.kube
        self.namespace, self.cluster = brokers.namespace, brokers.name
        self.name, self.engine = name, engine
        self.image = f"imago/spark-apps:{version()}"

    def make(self, topics: list[str]) -> None:
        """Make the account of drivers, the claim, and the pipeline."""
        account = str(ROOT / "manifests" / "spark" / "rbac.yaml")
        self.kube.run("apply", "-n", self.namespace, "-f", account)
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": LAKE, "namespace": self.namespace},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        self.kube.apply(claim, self._manifest(topics))

    def _manifest(self, topics: list[str]) -> dict[str, Any]:
        return {
            "apiVersion": "imago.dev/v1alpha1",
            "kind": "ImagoPipeline",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {
                "clusterRef": {"name": self.cluster},
                "engine": self.engine,
                "source": {"topics": topics, "groupName": self.name, "maxRowsPerTrigger": 2000},
                "ingest": {"path": f"/lake/{self.name}"},
                "volumes": [{"name": "lake", "claimName": LAKE, "mountPath": "/lake"}],
                "checkpoint": {"claim": {"accessMode": "ReadWriteMany"}},
                "config": {"triggerSeconds": 1, "progressSeconds": 1},
                "resources": {"driver": _SMALL, "executor": _SMALL},
                "restart": {"backoff": "1s"},
            },
        }

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
            seconds_max=BEGINS_SECONDS_MAX + LANDS_SECONDS_MAX,
            poll=1.0,
        )

    def kill_driver(self) -> int:
        """Have the driver's container killed at once; return the epoch of its run."""
        labels = f"imago.dev/pipeline={self.name},imago.dev/component=pipeline-driver"
        alive = [
            pod["metadata"]["name"]
            for pod in self.kube.pods(self.namespace, labels)
            if pod["status"].get("phase") == "Running"
        ]
        assert len(alive) == 1, f"one driver runs: {alive}"
        epoch = int(self.status["epoch"])
        words = ("delete", "pod", alive[0], "-n", self.namespace, "--grace-period=0", "--force")
        self.kube.run(*words)
        return epoch

    def pause(self) -> None:
        """Have it stand still, and wait until it does."""
        patch = json.dumps({"spec": {"paused": True}})
        words = ("patch", "imp", self.name, "-n", self.namespace, "--type=merge", "-p", patch)
        self.kube.run(*words)
        self.kube.run(
            *("wait", "--for=condition=Paused", f"imp/{self.name}", "-n", self.namespace),
            "--timeout=180s",
            seconds_max=190,
        )

    def landed(self) -> list[str]:
        """Return whose messages are in the table, `<stream>/<number>`; each row is there once."""
        overrides = {
            "spec": {
                "securityContext": {
                    "runAsUser": 185,
                    "runAsNonRoot": True,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "volumes": [{"name": "lake", "persistentVolumeClaim": {"claimName": LAKE}}],
                "containers": [
                    {
                        "name": "count",
                        "image": self.image,
                        "args": ["python", "-c", _COUNT],
                        "volumeMounts": [{"name": "lake", "mountPath": "/lake"}],
                        "securityContext": {
                            "allowPrivilegeEscalation": False,
                            "capabilities": {"drop": ["ALL"]},
                        },
                    }
                ],
            }
        }
        command = ["kubectl", "run", f"count-{self.name}", "-n", self.namespace, "--quiet"]
        command += ["--restart=Never", "--rm", "-i", f"--image={self.image}"]
        said = run([*command, f"--overrides={json.dumps(overrides)}"], seconds_max=120)
        found = json.loads(said[said.index("{") : said.rindex("}") + 1])
        assert found["again"] == 0, f"{found['again']} rows are in the table twice"
        bodies: list[str] = found["bodies"]
        print(f"{self.name}: {len(bodies)} rows", file=sys.stderr)
        return bodies

    def remove(self) -> None:
        """Delete it; its checkpoint stays, as is its way, until the claim is deleted, too."""
        words = ("-n", self.namespace, "--ignore-not-found", "--timeout=150s")
        self.kube.run("delete", "imp", self.name, *words, seconds_max=160)
        self.kube.run("delete", "pvc", LAKE, f"{self.name}-checkpoint", *words, seconds_max=160)
