"""One good custom resource of each kind, and what an edit that must be refused is."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Final

CLUSTER, TOPIC, GROUP = "ImagoCluster", "ImagoTopic", "ImagoConsumerGroup"
REBALANCE, PIPELINE = "ImagoRebalance", "ImagoPipeline"
USER = "ImagoUser"
REMOVED: Final = None
"""As a value: the field is taken away."""

GOOD: Final[dict[str, dict[str, Any]]] = {
    CLUSTER: {
        "brokers": {"shards": 2, "storage": {"size": "10Gi"}},
        "zookeeper": {"managed": {"replicas": 3}},
    },
    TOPIC: {"clusterRef": {"name": "demo"}, "topicName": "orders", "partitions": 8},
    GROUP: {"clusterRef": {"name": "demo"}, "groupName": "billing"},
    USER: {
        "clusterRef": {"name": "demo"},
        "userName": "ann",
        "authorization": {
            "acls": [
                {
                    "resource": {"type": "Topic", "name": "orders", "patternType": "prefix"},
                    "operations": ["publish", "describe"],
                }
            ]
        },
    },
    REBALANCE: {"clusterRef": {"name": "demo"}, "mode": "Drain", "shards": [1]},
    PIPELINE: {
        "clusterRef": {"name": "demo"},
        "source": {"topics": ["orders"]},
        "ingest": {"path": "/lake/orders"},
        "checkpoint": {"claim": {"size": "1Gi"}},
    },
}


def manifest(
    kind: str, changes: dict[str, Any] | None = None, name: str = "demo"
) -> dict[str, Any]:
    """Return a good object with fields changed: `{"spec.brokers.shards": 3}`."""
    made: dict[str, Any] = {
        "apiVersion": "imago.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": copy.deepcopy(GOOD[kind]),
    }
    for path, value in (changes or {}).items():
        *parents, last = path.split("/") if "/" in path else path.split(".")
        node = made
        for parent in parents:
            node = node.setdefault(parent, {})
        if value is REMOVED:
            node.pop(last, None)
        else:
            node[last] = copy.deepcopy(value)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class BadEdit:
    """An object, or an edit of one, that must be refused."""

    kind: str
    said: str
    """What the refusal says: our message, or where the schema alone refuses, the field."""
    to: dict[str, Any]
    before: dict[str, Any] | None = None
    """Fields of the object that is edited; None: `to` is a new object."""
    by_rule: bool = True
    name: str = field(default="demo")

    @property
    def object(self) -> dict[str, Any]:
        return manifest(self.kind, self.to, self.name)

    @property
    def old(self) -> dict[str, Any] | None:
        return None if self.before is None else manifest(self.kind, self.before, self.name)


def rule(kind: str, said: str, to: dict[str, Any], name: str = "demo") -> BadEdit:
    return BadEdit(kind=kind, said=said, to=to, name=name)


def edit(kind: str, said: str, before: dict[str, Any], to: dict[str, Any]) -> BadEdit:
    return BadEdit(kind=kind, said=said, before=before, to=to)


def schema(kind: str, said: str, to: dict[str, Any]) -> BadEdit:
    return BadEdit(kind=kind, said=said, to=to, by_rule=False)
