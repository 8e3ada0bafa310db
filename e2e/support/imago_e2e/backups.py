"""Backups of a cluster, as objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_e2e.kube import until
from imago_e2e.operator import status

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers

TAKEN_SECONDS_MAX = 180.0


def order(brokers: Brokers, name: str, *, bytes_a_second: int = 0) -> None:
    """Have a backup taken; 0: as fast as may be."""
    spec = {"clusterRef": {"name": brokers.name}, "bytesASecond": bytes_a_second}
    metadata = {"name": name, "namespace": brokers.namespace}
    kind = {"apiVersion": "imago.dev/v1alpha1", "kind": "ImagoBackup"}
    brokers.kube.apply({**kind, "metadata": metadata, "spec": spec})


def until_taken(brokers: Brokers, name: str) -> float:
    """Wait until it is complete; return the seconds."""

    def taken() -> bool:
        told = status(brokers.kube, "imb", brokers.namespace, name)
        assert told.get("phase") != "Failed", told
        return told.get("phase") == "Succeeded"

    return until(taken, f"backup {name} is taken", seconds_max=TAKEN_SECONDS_MAX)
