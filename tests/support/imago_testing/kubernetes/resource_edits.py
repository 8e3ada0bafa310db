"""One good custom resource of each kind, and what an edit that must be refused is."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Final

CLUSTER, TOPIC, GROUP = "ImagoCluster", "ImagoTopic", "ImagoConsumerGroup"
REBALANCE, PIPELINE = "ImagoRebalance", "ImagoPipeline"
USER = "ImagoUser"
BACKUP, SCHEDULED, MIRROR = "ImagoBackup", "ImagoScheduledBackup", "ImagoMirror"
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
    BACKUP: {"clusterRef": {"name": "demo"}},
    SCHEDULED: {"clusterRef": {"name": "demo"}, "schedule": "15 2 * * *"},
    MIRROR: {
        "source": {"clusterRef": {"name": "demo"}},
        "target": {"bootstrap": "b.example:9876", "secretName": "mirror-at-b"},
        "topics": ["orders", "pay-.*"],
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


_URL = {"url": "s3://bucket/demo"}
BAD_BACKUPS: Final[tuple[BadEdit, ...]] = (
    rule(CLUSTER, "exactly one of url and claimName", {"spec.backup": {}}),
    rule(CLUSTER, "exactly one of url and claimName", {"spec.backup": _URL | {"claimName": "c"}}),
    rule(CLUSTER, "go with url", {"spec.backup": {"claimName": "c", "region": "eu"}}),
    rule(CLUSTER, "exactly one of url and claimName", {"spec.bootstrap.recovery": {}}),
    rule(
        CLUSTER,
        "go with url",
        {"spec.bootstrap.recovery": {"claimName": "c", "credentialsSecretName": "s"}},
    ),
    edit(
        CLUSTER,
        "it can only be removed",
        {"spec.bootstrap.recovery": _URL},
        {"spec.bootstrap.recovery": _URL | {"backup": "monday"}},
    ),
    schema(CLUSTER, "spec.backup.url", {"spec.backup": {"url": "file:///etc"}}),
    schema(CLUSTER, "spec.backup.url", {"spec.backup": {"url": "s3://key:secret@bucket"}}),
    schema(
        CLUSTER,
        "spec.bootstrap.recovery.pointInTime",
        {"spec.bootstrap.recovery": _URL | {"pointInTime": "yesterday"}},
    ),
    schema(
        CLUSTER,
        "spec.bootstrap.recovery.backup",
        {"spec.bootstrap.recovery": _URL | {"backup": "--to"}},
    ),
    rule(BACKUP, "at most 63 characters", {}, name="b" * 64),
    rule(BACKUP, "begins with a letter", {}, name="1st"),
    edit(BACKUP, "clusterRef cannot be changed", {}, {"spec.clusterRef": {"name": "other"}}),
    schema(BACKUP, "spec.bytesASecond", {"spec.bytesASecond": -1}),
    rule(SCHEDULED, "at most 50 characters", {}, name="b" * 51),
    rule(SCHEDULED, "begins with a letter", {}, name="1st"),
    rule(SCHEDULED, "schedule has minute", {"spec.schedule": "61 2 * * *"}),
    rule(SCHEDULED, "timeZone is a name", {"spec.timeZone": "Europe Berlin"}),
    edit(SCHEDULED, "clusterRef cannot be changed", {}, {"spec.clusterRef": {"name": "other"}}),
    schema(SCHEDULED, "spec.retention.keep", {"spec.retention": {"keep": 0}}),
    rule(MIRROR, "at most 40 characters", {}, name="m" * 41),
    rule(MIRROR, "begins with a letter", {}, name="1st"),
    rule(MIRROR, "exactly one of clusterRef and bootstrap", {"spec.source": {}}),
    rule(
        MIRROR,
        "exactly one of clusterRef and bootstrap",
        {"spec.target": {"clusterRef": {"name": "b"}, "bootstrap": "b:9876"}},
    ),
    schema(MIRROR, "spec.topics", {"spec.topics": []}),
    schema(MIRROR, "spec.state", {"spec.state": "Off"}),
    schema(MIRROR, "spec.target.bootstrap", {"spec.target": {"bootstrap": "b"}}),
)
