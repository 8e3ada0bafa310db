"""What the operator costs with many objects: on a real API server without nodes.

    PYTHONPATH=tests/support:e2e/cluster:operator/src:. python -m bench.operated [--topics N] …

Clusters have no pods here, so that topics and users wait for theirs: what is measured is the
operator's own work, with Kubernetes. Prints one line of JSON for each phase.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from imago_operator.kube.resources import RESOURCES
from imago_testing.kubernetes.api_server import running_api_server
from imago_testing.kubernetes.custom_resources import CLUSTER, TOPIC, USER, manifest
from imago_testing.kubernetes.operator_process import running_operator
from imago_testing.processes.servers import ProcessFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_testing.kubernetes.api_server import ApiServerProcess
    from imago_testing.kubernetes.operator_process import OperatorProcess

NAMESPACE = "scale"
WRITERS = 4
POLL_S = 3.0
CONVERGES_MAX_S = 3600.0


def options(argv: list[str] | None = None) -> argparse.Namespace:
    """Return the command line's choices."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--users", type=int, default=1_000)
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument("--idle", type=float, default=60.0, help="seconds to look at it idle")
    return parser.parse_args(argv)


def fill(api: ApiServerProcess, wanted: Mapping[str, int], clusters: int) -> None:
    """Make so many objects of each kind; those of clusters are spread over them."""

    def make(kind: str, number: int) -> None:
        name = f"{kind.removeprefix('Imago').lower()}-{number}"
        made = manifest(kind)
        if kind != CLUSTER:
            made["spec"]["clusterRef"] = {"name": f"cluster-{number % clusters}"}
            made["spec"].pop({TOPIC: "topicName", USER: "userName"}[kind], None)
        body = {**made, "metadata": {"name": name, "namespace": NAMESPACE}}
        api.must("POST", RESOURCES[kind].path(NAMESPACE), body)

    with ThreadPoolExecutor(WRITERS) as pool:
        for kind, count in wanted.items():
            list(pool.map(make, [kind] * count, range(count)))


class Phases:
    """Figures of one operator after the other, each from where the last one ended."""

    def __init__(self, operator: OperatorProcess) -> None:
        self._operator = operator
        self._process = psutil.Process(operator.process.pid)
        self._began, self._cpu, self._before = time.monotonic(), 0.0, (0.0, 0.0, 0.0)

    def said(self, phase: str, **more: Any) -> None:
        """Print what happened since the last time."""
        times = self._process.cpu_times()
        calls = self._operator.figure("kubernetes_requests_total")
        writes = sum(self._operator.writes().values())
        looks = self._operator.figure("reconcile_total")
        now, cpu, before = time.monotonic(), times.user + times.system, self._before
        found = {
            "phase": phase,
            "seconds": round(now - self._began, 1),
            "cpu_s": round(cpu - self._cpu, 1),
            "calls": round(calls - before[0]),
            "writes": round(writes - before[1]),
            "looks": round(looks - before[2]),
            "rss_mib": self._process.memory_info().rss >> 20,
        }
        print(json.dumps(found | more), flush=True)
        self._began, self._cpu, self._before = now, cpu, (calls, writes, looks)

    def converge(self, total: int) -> None:
        """Wait until nothing is due and every object was looked at."""
        ends = time.monotonic() + CONVERGES_MAX_S
        while time.monotonic() < ends:
            if self._operator.process.process.poll() is not None:
                raise ProcessFailedError(f"it ended: {self._operator.process.log_tail()}")
            looked = self._operator.figure("reconcile_total") >= total
            if looked and self._operator.figure("queue_depth") == 0:
                return
            time.sleep(POLL_S)
        raise TimeoutError(f"not every one of {total} objects in {CONVERGES_MAX_S:.0f} s")


def measure(chosen: argparse.Namespace, folder: Path) -> None:
    """Start with everything new, look at it idle, start anew."""
    wanted = {CLUSTER: chosen.clusters, TOPIC: chosen.topics, USER: chosen.users}
    total = sum(wanted.values())
    with running_api_server(folder / "server") as api:
        api.install_crds()
        api.namespace(NAMESPACE)
        fill(api, wanted, chosen.clusters)
        config = api.kubeconfig(namespace=NAMESPACE)
        flags = ("--namespaces", NAMESPACE, "--lease-namespace", NAMESPACE)
        for start in ("new", "again"):
            with running_operator(folder / start, config, *flags, name=start) as operator:
                phases = Phases(operator)
                phases.converge(total)
                phases.said(f"{start}: converged", objects=total)
                time.sleep(chosen.idle)
                phases.said(f"{start}: idle")


def main(argv: list[str] | None = None) -> int:
    with tempfile.TemporaryDirectory() as folder:
        measure(options(argv), Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
