"""kubectl and helm, with an end to every wait and the whole answer in every error."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

CALL_SECONDS = 60.0
_POLL_SECONDS = 0.3
_LOG_LINES = 40


class KubeError(AssertionError):
    """A command failed, or something did not come about in time."""


class Kube:
    """One Kubernetes, as the environment's KUBECONFIG names it."""

    def __init__(self) -> None:
        self.namespaces: list[str] = []
        """Those that stories have made: shown when one fails."""

    def run(self, *words: str, text: str | None = None, seconds_max: float = CALL_SECONDS) -> str:
        """Run kubectl; return what it printed."""
        return run(["kubectl", *words], text=text, seconds_max=seconds_max)

    def get(self, *words: str) -> Any:
        """Return objects as values."""
        return json.loads(self.run("get", *words, "-o", "json"))

    def find(self, *words: str) -> Any | None:
        """Return an object; None when it is not there."""
        said = self.run("get", *words, "-o", "json", "--ignore-not-found")
        return json.loads(said) if said.strip() else None

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """Apply objects."""
        whole = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.run("apply", "-f", "-", text=json.dumps(whole))

    def namespace(self, name: str, *, restricted: bool = True) -> str:
        """Make a namespace, by default one in which Pod Security `restricted` is enforced."""
        level = "restricted" if restricted else "baseline"
        labels = {"pod-security.kubernetes.io/enforce": level}
        self.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        )
        if name not in self.namespaces:
            self.namespaces.append(name)
        return name

    def delete_namespace(self, name: str, *, seconds_max: float = 180.0) -> None:
        """Delete a namespace and wait until it is gone."""
        wait = ("--ignore-not-found", f"--timeout={seconds_max:.0f}s")
        self.run("delete", "namespace", name, *wait, seconds_max=seconds_max + 5)
        if name in self.namespaces:
            self.namespaces.remove(name)

    def execute(
        self, namespace: str, pod: str, *command: str, seconds_max: float = CALL_SECONDS
    ) -> str:
        """Run a command in a pod; return what it printed."""
        return self.run("exec", "-n", namespace, pod, "--", *command, seconds_max=seconds_max)

    def pods(self, namespace: str, selector: str = "") -> list[dict[str, Any]]:
        """Return the pods of a namespace."""
        chosen = ("-l", selector) if selector else ()
        found: list[dict[str, Any]] = self.get("pods", "-n", namespace, *chosen)["items"]
        return found

    def report(self, namespace: str) -> str:
        """Return what is to be known of a namespace in which something went wrong."""
        parts = [
            ("pods", ("get", "pods", "-o", "wide")),
            ("ours", ("get", "imago", "-o", "wide")),
            ("sets, services, claims", ("get", "sts,svc,pvc,pdb")),
            ("events", ("get", "events", "--sort-by=.lastTimestamp")),
        ]
        shown = [f"== {namespace}: {name}\n{self._try(namespace, *w)}" for name, w in parts]
        for pod in self._try(namespace, "get", "pods", "-o", "name").split():
            for extra in ((), ("--previous",)):
                words = ("logs", pod, "--all-containers", f"--tail={_LOG_LINES}", *extra)
                said = self._try(namespace, *words)
                if said and "previous terminated container" not in said:
                    shown.append(f"== {pod} {' '.join(extra)}\n{said}")
        return "\n".join(shown)

    def _try(self, namespace: str, *words: str) -> str:
        try:
            return self.run(*words, "-n", namespace, seconds_max=20)
        except KubeError as error:
            return str(error)


def run(command: Sequence[str], *, text: str | None = None, seconds_max: float) -> str:
    """Run a command; KubeError with all it said when it fails or takes too long."""
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=seconds_max
        )
    except subprocess.TimeoutExpired as error:
        raise KubeError(f"not within {seconds_max:g} s: {' '.join(command)}") from error
    if done.returncode:
        raise KubeError(f"{' '.join(command)}: {(done.stdout + done.stderr).strip()}")
    return done.stdout


def until(
    condition: Callable[[], object], what: str, *, seconds_max: float, poll: float = _POLL_SECONDS
) -> float:
    """Wait until it holds; return how many seconds that took. Errors of kubectl mean: not yet."""
    began = time.monotonic()
    last: str = ""
    while True:
        try:
            if condition():
                return time.monotonic() - began
        except KubeError as error:
            last = f" ({error})"
        if time.monotonic() - began > seconds_max:
            raise KubeError(f"not within {seconds_max:g} s: {what}{last}")
        time.sleep(poll)


def is_rig() -> bool:
    """Whether the cluster is the suite's own, whose nodes may be cut off."""
    return "E2E_KUBECONFIG" not in os.environ


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod's containers are all ready."""
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
