"""What a person orders of a cluster, and the wait until it is so."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from imago_e2e.kube import run
from imago_e2e.operator import until_ready

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers

DONE_SECONDS_MAX = 240.0


def imago(brokers: Brokers, verb: str, *words: str) -> str:
    """Run `kubectl imago` for the cluster, as a person on call does; KubeError if it fails."""
    command = [sys.executable, "-m", "imago_cli.kubectl", verb, brokers.name, *words]
    return run([*command, "-n", brokers.namespace], seconds_max=60)


def order(cluster: Brokers, /, **spec: object) -> None:
    """Change the spec of a cluster."""
    named = ("imc", cluster.name, "-n", cluster.namespace)
    cluster.kube.run("patch", *named, "--type=merge", "-p", json.dumps({"spec": spec}))


def until_done(brokers: Brokers, seconds_max: float = DONE_SECONDS_MAX) -> float:
    """Wait until the cluster is as ordered; return the seconds."""
    named = (brokers.kube, "imc", brokers.namespace, brokers.name)
    return until_ready(*named, seconds_max=seconds_max)


def said(brokers: Brokers) -> dict[str, dict[str, Any]]:
    """Return the conditions of a cluster, by their types."""
    found = brokers.kube.get("imc", brokers.name, "-n", brokers.namespace)
    return {each["type"]: each for each in found.get("status", {}).get("conditions", [])}
