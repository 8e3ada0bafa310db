"""Custom resources for tests: one good object of each kind, and many bad edits of them.

The same table is run against the rules in Python and against an API server's own checks.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from imago_testing.kubernetes.listener_edits import BAD_LISTENERS
from imago_testing.kubernetes.pipeline_edits import BAD_PIPELINES
from imago_testing.kubernetes.resource_edits import (
    BAD_BACKUPS,
    CLUSTER,
    GOOD,
    GROUP,
    PIPELINE,
    REBALANCE,
    REMOVED,
    TOPIC,
    USER,
    BadEdit,
    edit,
    manifest,
    rule,
    schema,
)
from imago_testing.kubernetes.tls_edits import BAD_REGISTRIES, BAD_TLS
from imago_testing.kubernetes.user_edits import BAD_USERS

__all__ = [
    "BAD_EDITS",
    "CLUSTER",
    "GOOD",
    "GROUP",
    "PIPELINE",
    "REBALANCE",
    "REMOVED",
    "TOPIC",
    "USER",
    "BadEdit",
    "edit",
    "manifest",
    "rule",
    "schema",
]

EXTERNAL: Final = {
    "spec.zookeeper": {"external": {"servers": ["zk-0.zk:2181"], "chroot": "/mq"}},
}


BUCKET: Final = {"spec.brokers.tieredStorage": {"url": "s3://messages/production"}}

BAD_EDITS: Final[tuple[BadEdit, ...]] = (
    *BAD_USERS,
    *BAD_TLS,
    *BAD_REGISTRIES,
    *BAD_PIPELINES,
    *BAD_BACKUPS,
    # clusters, whole objects
    rule(CLUSTER, "at most 40 characters", {}, name="c" * 41),
    rule(CLUSTER, "begins with a letter", {}, name="1st"),
    rule(CLUSTER, "begins with a letter", {}, name="a.b"),
    rule(
        CLUSTER,
        "minInSync must be at most replicasPerShard",
        {"spec.brokers.minInSync": 4},
    ),
    rule(CLUSTER, "would call one copy replicated", {"spec.brokers.minInSync": 1}),
    rule(
        CLUSTER,
        "would call one copy replicated",
        {"spec.brokers.minInSync": 1, "spec.brokers.acknowledgement": "replicated-fsync"},
    ),
    rule(CLUSTER, "named section.key", {"spec.brokers.config": {"retention": 3}}),
    rule(CLUSTER, "out of its bounds", {"spec.brokers.config": {"store.disk_full_ratio": 7}}),
    rule(CLUSTER, "out of its bounds", {"spec.brokers.config": {"limits.topics_max": "0"}}),
    rule(CLUSTER, "out of its bounds", {"spec.brokers.config": {"store.retention_ms": "-1"}}),
    rule(CLUSTER, "none that its setting", {"spec.brokers.config": {"metaq.stat": "perhaps"}}),
    rule(CLUSTER, "none that its setting", {"spec.brokers.config": {"tls.mode": "strict"}}),
    rule(CLUSTER, "config may not set", {"spec/brokers/config/rocketmq.port": 10911}),
    rule(CLUSTER, "config may not set", {"spec/brokers/config/broker.data_dir": "/tmp"}),
    rule(CLUSTER, "ackTimeout must be from", {"spec.brokers.replication": {"ackTimeout": "1h"}}),
    rule(CLUSTER, "size is required", {"spec.brokers.storage": {}}),
    rule(
        CLUSTER,
        "autoGrow.max must be at least size",
        {"spec.brokers.storage.autoGrow": {"max": "9Gi"}},
    ),
    rule(
        CLUSTER,
        "coolDown must be from 1m to 168h",
        {"spec.brokers.storage.autoGrow": {"max": "90Gi", "coolDown": "30s"}},
    ),
    rule(
        CLUSTER,
        "autoGrow needs PersistentClaim",
        {"spec.brokers.storage": {"type": "Ephemeral", "autoGrow": {"max": "9Gi"}}},
    ),
    rule(CLUSTER, "exactly one of managed and external", {"spec.zookeeper": {}}),
    rule(
        CLUSTER,
        "exactly one of managed and external",
        EXTERNAL | {"spec.zookeeper.managed": {}},
    ),
    rule(
        CLUSTER,
        "Ephemeral goes with its pods",
        {
            "spec.hibernated": True,
            "spec.brokers.replicasPerShard": 1,
            "spec.brokers.storage": {"type": "Ephemeral"},
        },
    ),
    *(
        edit(CLUSTER, "stay while the cluster hibernates", {"spec.hibernated": True}, changed)
        for changed in (
            {"spec.hibernated": True, "spec.brokers.shards": 3},
            {"spec.hibernated": False, "spec.brokers.replicasPerShard": 5},
        )
    ),
    rule(CLUSTER, "odd number of servers", {"spec.zookeeper.managed.replicas": 4}),
    *BAD_LISTENERS,
    rule(CLUSTER, "selector goes with from", {"spec.allowedNamespaces": {"from": "Selector"}}),
    rule(
        CLUSTER,
        "selector goes with from",
        {"spec.allowedNamespaces": {"selector": {"matchLabels": {"a": "b"}}}},
    ),
    rule(CLUSTER, "mode Window needs windows", {"spec.updatePolicy": {"mode": "Window"}}),
    rule(
        CLUSTER,
        "duration must be from",
        {"spec.updatePolicy": {"windows": [{"schedule": "0 2 * * 6", "duration": "0s"}]}},
    ),
    *(
        rule(
            CLUSTER,
            "schedule has minute 0-59",
            {"spec.updatePolicy": {"windows": [{"schedule": text, "duration": "1h"}]}},
        )
        for text in (
            *("0 25 * * *", "60 * * * *", "0 2 0 * *", "0 2 32 * *", "0 2 * 13 *", "0 2 * * 8"),
            *("0 2 * * 1-9", "0 2 * foo *", "*/0 * * * *", "1,,2 * * * *", "-5 * * * *"),
        )
    ),
    rule(
        CLUSTER,
        "timeZone is a name",
        {
            "spec.updatePolicy": {
                "windows": [{"schedule": "0 2 * * *", "duration": "1h", "timeZone": "../etc"}]
            }
        },
    ),
    rule(CLUSTER, "handoverTimeout must be", {"spec.updatePolicy": {"handoverTimeout": "0s"}}),
    rule(CLUSTER, "readyTimeout must be", {"spec.updatePolicy": {"readyTimeout": "1s"}}),
    rule(CLUSTER, "timeout must be from", {"spec.scaleDown": {"timeout": "0s"}}),
    # clusters, edits
    edit(
        CLUSTER,
        "storageClassName cannot be changed",
        {},
        {"spec.zookeeper.managed.storage": {"storageClassName": "fast"}},
    ),
    edit(CLUSTER, "size cannot shrink", {}, {"spec.brokers.storage.size": "9Gi"}),
    edit(CLUSTER, "tieredStorage cannot be taken away", BUCKET, {}),
    rule(
        CLUSTER,
        "leave them out of config",
        BUCKET | {"spec.brokers.config": {"tier.region": "eu-west-1"}},
    ),
    rule(
        CLUSTER,
        "at least 64Mi",
        {"spec.brokers.tieredStorage": {"url": "s3://b", "cacheSize": "1Mi"}},
    ),
    schema(
        CLUSTER, "spec.brokers.tieredStorage.url", {"spec.brokers.tieredStorage.url": "ftp://b"}
    ),
    edit(CLUSTER, "size cannot shrink", {}, {"spec.brokers.storage.size": "10G"}),
    *(
        edit(
            CLUSTER,
            "store.segment_bytes_max cannot be changed",
            {"spec.brokers.config": before},
            {"spec.brokers.config": after},
        )
        for before, after in (
            ({"store.segment_bytes_max": 67108864}, {"store.segment_bytes_max": 33554432}),
            ({"store.segment_bytes_max": "64MiB"}, {"store.retention_ms": "1d"}),
            ({}, {"store.segment_bytes_max": 67108864}),
        )
    ),
    edit(
        CLUSTER,
        "type cannot be changed",
        {},
        {"spec.brokers.storage.type": "Ephemeral"},
    ),
    *(
        edit(
            CLUSTER,
            "storageClassName changes one member at a time",
            {"spec.brokers.replicasPerShard": members},
            {
                "spec.brokers.replicasPerShard": members,
                "spec.brokers.storage.storageClassName": "fast",
            },
        )
        for members in (1, 2)
    ),
    edit(CLUSTER, "exclude each other for good", {}, EXTERNAL),
    edit(
        CLUSTER,
        "replicas of ZooKeeper stay",
        {"spec.hibernated": True},
        {"spec.zookeeper.managed.replicas": 5},
    ),
    edit(
        CLUSTER,
        "chroot cannot be changed",
        EXTERNAL,
        EXTERNAL | {"spec.zookeeper.external.chroot": "/x"},
    ),
    edit(
        CLUSTER,
        "size cannot shrink",
        {"spec.zookeeper.managed.storage": {"size": "5Gi"}},
        {"spec.zookeeper.managed.storage": {"size": "1Gi"}},
    ),
    # clusters, bounds
    schema(CLUSTER, "spec.zookeeper", {"spec.zookeeper": REMOVED}),
    schema(CLUSTER, "spec.brokers.shards", {"spec.brokers.shards": 0}),
    schema(CLUSTER, "spec.brokers.shards", {"spec.brokers.shards": 65}),
    schema(CLUSTER, "spec.brokers.shards", {"spec.brokers.shards": "two"}),
    schema(CLUSTER, "spec.brokers.replicasPerShard", {"spec.brokers.replicasPerShard": 6}),
    schema(
        CLUSTER,
        "spec.brokers.shardPools[0].shards[0]",
        {"spec.brokers.shardPools": [{"shards": [1024], "nodeSelector": {"pool": "a"}}]},
    ),
    schema(CLUSTER, "spec.brokers.acknowledgement", {"spec.brokers.acknowledgement": "quorum"}),
    schema(CLUSTER, "spec.brokers.storage.size", {"spec.brokers.storage.size": "10 GB"}),
    schema(CLUSTER, "spec.brokers.storage.size", {"spec.brokers.storage.size": "-1Gi"}),
    schema(CLUSTER, "spec.brokers.removeShards[1]", {"spec.brokers.removeShards": [1, 1]}),
    schema(CLUSTER, "spec.brokers.removeShards[0]", {"spec.brokers.removeShards": [-1]}),
    schema(
        CLUSTER,
        "spec.brokers.resources.requests",
        {"spec.brokers.resources": {"requests": {"memory": "lots"}}},
    ),
    schema(CLUSTER, "spec.brokers.shard", {"spec.brokers.shard": 3}),
    schema(CLUSTER, "spec.version", {"spec.version": "latest"}),
    schema(CLUSTER, "spec.logging.level", {"spec.logging": {"level": "loud"}}),
    schema(
        CLUSTER,
        "spec.zookeeper.external.servers",
        {"spec.zookeeper": {"external": {"servers": []}}},
    ),
    schema(
        CLUSTER,
        "spec.zookeeper.external.servers[0]",
        {"spec.zookeeper": {"external": {"servers": ["zk"]}}},
    ),
    schema(
        CLUSTER,
        "spec.updatePolicy.windows[0].schedule",
        {"spec.updatePolicy": {"windows": [{"schedule": "daily", "duration": "1h"}]}},
    ),
    # topics
    rule(TOPIC, "give a topicName", {"spec.topicName": REMOVED}, name="t" * 128),
    rule(TOPIC, "belongs to the brokers", {"spec.topicName": "TBW102"}),
    rule(TOPIC, "belongs to the brokers", {"spec.topicName": "%RETRY%billing"}),
    rule(TOPIC, "field of its own", {"spec.config": {"dialects": "rocketmq"}}),
    rule(TOPIC, "not both", {"spec.placement": {"count": 1, "shardIds": [0]}}),
    rule(TOPIC, "time must be from", {"spec.retention": {"time": "0s"}}),
    edit(TOPIC, "partitions cannot be lowered", {}, {"spec.partitions": 7}),
    edit(TOPIC, "clusterRef cannot be changed", {}, {"spec.clusterRef": {"name": "other"}}),
    edit(
        TOPIC,
        "clusterRef cannot be changed",
        {},
        {"spec.clusterRef": {"name": "demo", "namespace": "other"}},
    ),
    edit(TOPIC, "topicName cannot be changed", {}, {"spec.topicName": "payments"}),
    edit(TOPIC, "topicName cannot be changed", {}, {"spec.topicName": REMOVED}),
    edit(TOPIC, "topicName cannot be changed", {"spec.topicName": REMOVED}, {}),
    edit(TOPIC, "dialects cannot be changed", {}, {"spec.dialects": "RocketMQ"}),
    schema(TOPIC, "spec.partitions", {"spec.partitions": 65537}),
    schema(TOPIC, "spec.topicName", {"spec.topicName": ".hidden"}),
    schema(TOPIC, "spec.clusterRef", {"spec.clusterRef": REMOVED}),
    schema(TOPIC, "spec.retention.time", {"spec.retention": {"time": "3 days"}}),
    schema(TOPIC, "spec.deletionPolicy", {"spec.deletionPolicy": "Keep"}),
    # groups
    rule(
        GROUP,
        "Broadcast group cannot be reset",
        {"spec.mode": "Broadcast", "spec.reset": {"requestId": "a", "to": "Latest"}},
    ),
    rule(GROUP, "timestamp goes with", {"spec.reset": {"requestId": "a", "to": "Timestamp"}}),
    rule(
        GROUP,
        "timestamp goes with",
        {"spec.reset": {"requestId": "a", "to": "Latest", "timestamp": "2026-01-02T03:04:05Z"}},
    ),
    rule(GROUP, "time must be from", {"spec.maxLag": {"time": "0s"}}),
    edit(GROUP, "groupName cannot be changed", {}, {"spec.groupName": "other"}),
    edit(GROUP, "clusterRef cannot be changed", {}, {"spec.clusterRef": {"name": "other"}}),
    schema(GROUP, "spec.reset.requestId", {"spec.reset": {"requestId": "", "to": "Latest"}}),
    schema(
        GROUP,
        "spec.reset.timestamp",
        {"spec.reset": {"requestId": "a", "to": "Timestamp", "timestamp": "yesterday"}},
    ),
    # rebalances
    rule(REBALANCE, "Drain, Seal and Fill need shards", {"spec.shards": REMOVED}),
    rule(REBALANCE, "Drain, Seal and Fill need shards", {"spec.mode": "Full"}),
    edit(REBALANCE, "cannot be changed: delete it", {}, {"spec.shards": [0]}),
    schema(REBALANCE, "spec.mode", {"spec.mode": "Shuffle"}),
)


def as_data() -> list[dict[str, Any]]:
    """Return the table in a form for programs that do not import it."""
    return [
        {"object": bad.object, "before": bad.old, "said": bad.said, "byRule": bad.by_rule}
        for bad in BAD_EDITS
    ]


if __name__ == "__main__":
    json.dump(as_data(), sys.stdout, indent=1)
