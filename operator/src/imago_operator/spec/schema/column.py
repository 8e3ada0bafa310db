"""Columns of `kubectl get`: those that several kinds have. A kind's own are in its module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; priority 1 only with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0
    description: str = ""


def condition(name: str, path: str = "status") -> str:
    """Return the path of a condition's field."""
    return f'.status.conditions[?(@.type=="{name}")].{path}'


READY: Final = Column("Ready", condition("Ready"))
STATUS: Final = Column("Status", condition("Ready", "reason"))
MESSAGE: Final = Column("Message", condition("Ready", "message"), priority=1)
AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")
CLUSTER_OF: Final = Column("Cluster", ".spec.clusterRef.name")
