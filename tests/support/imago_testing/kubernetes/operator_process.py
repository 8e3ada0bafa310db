"""`imago operator` as a process, against a real API server."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import ProcessFailedError, ServerProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SAMPLE = re.compile(r"^(imago_operator_[a-z_]+)(?:\{(.*)\})? ([0-9.e+-]+)$", re.MULTILINE)
READ = ('verb="get"', 'verb="list"')
STARTS_S = 60


@dataclass(slots=True)
class OperatorProcess:
    """A running operator."""

    process: ServerProcess
    port: int

    def get(self, path: str) -> tuple[int, str]:
        """Ask its own HTTP."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metrics(self) -> dict[tuple[str, str], float]:
        """Return its figures, by name and labels."""
        text = self.get("/metrics")[1]
        return {(name, labels): float(value) for name, labels, value in SAMPLE.findall(text)}

    def figure(self, name: str, *labels: str) -> float:
        """Return the sum of a figure over all that have these labels, as `kind="ImagoTopic"`."""
        found = self.metrics().items()
        full = f"imago_operator_{name}"
        return sum(v for (n, said), v in found if n == full and all(x in said for x in labels))

    def writes(self) -> dict[str, float]:
        """Return how many changes it has asked of Kubernetes, by verb, resource and status."""
        return {
            labels: value
            for (name, labels), value in self.metrics().items()
            if name == "imago_operator_kubernetes_requests_total"
            and not any(verb in labels for verb in READ)
            and "selfsubjectaccessreviews" not in labels
        }

    @property
    def leads(self) -> bool:
        return self.figure("leader") == 1

    def pause(self) -> None:
        self.process.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.process.send_signal(signal.SIGCONT)

    def wait(self, seconds_max: float) -> int:
        """Return the exit code once it has ended."""
        return self.process.process.wait(seconds_max)


@contextlib.contextmanager
def running_operator(
    folder: Path, kubeconfig: Path, *flags: str, name: str = "operator", lead: bool = True
) -> Iterator[OperatorProcess]:
    """Run an operator for as long as the block lasts; `lead`: wait until it works."""
    port = free_port_block(1)
    command = [sys.executable, "-m", "imago_cli", "operator"]
    command += ["--kubeconfig", str(kubeconfig), "--identity", name]
    command += ["--listen", f"127.0.0.1:{port}", *flags]
    process = ServerProcess.start(name, command, folder)
    operator = OperatorProcess(process, port)

    def ready() -> bool:
        if process.process.poll() is not None:
            raise ProcessFailedError(f"{name} ended early:\n{process.log_tail()}")
        try:
            return operator.get("/readyz")[0] == 200 and (operator.leads or not lead)
        except OSError:
            return False

    try:
        wait_until(ready, seconds_max=STARTS_S, what=f"{name} is ready", poll=0.2)
        yield operator
    finally:
        if process.process.poll() is None:
            operator.resume()
            process.stop()
