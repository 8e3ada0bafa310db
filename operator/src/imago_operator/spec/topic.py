"""ImagoTopic: a topic of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from imago_operator.broker_rules.keys import BOUNDS
from imago_operator.spec.cluster.brokers import SHARD_ID_MAX, SHARDS_MAX
from imago_operator.spec.schema.column import AGE, CLUSTER_OF, MESSAGE, READY, STATUS, Column
from imago_operator.spec.schema.common import (
    MESSAGE_NAME_PATTERN,
    TOPIC_SIZE_MAX,
    AcknowledgementLevel,
    ClusterRef,
    Conditions,
    conditions_field,
    generation_field,
)
from imago_operator.spec.schema.fields import IntOrText, described
from imago_operator.spec.schema.values import Duration


class Dialects(StrEnum):
    """Clients of which protocols may use a topic."""

    ALL = "All"
    ROCKETMQ = "RocketMQ"


class DeletionPolicy(StrEnum):
    """What happens to the messages when the resource is deleted."""

    RETAIN = "Retain"
    DELETE = "Delete"


class AdoptionPolicy(StrEnum):
    """What happens when brokers have the topic already."""

    ADOPT = "Adopt"
    FAIL_IF_EXISTS = "FailIfExists"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRetention:
    """How long MetaQ's own files of a topic are kept."""

    time: Duration | None = described(
        "Age at which MetaQ's own files of the topic go. The log keeps messages as long as the"
        " brokers' store.retention_ms says.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """On which shards the topic has queues: at most one of the two."""

    count: int | None = described(
        "Number of shards; brokers choose them, in different zones where possible.",
        default=None,
        low=1,
        high=SHARDS_MAX,
    )
    shard_ids: tuple[int, ...] = described(
        "Ids of the shards. A shard that has messages of the topic must stay.",
        default=(),
        size_max=SHARDS_MAX,
        item_low=0,
        item_high=SHARD_ID_MAX,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """Desired state of the topic. Fields set here override what brokers have."""

    cluster_ref: ClusterRef = described("Cluster of the topic. Immutable.")
    topic_name: str | None = described(
        "Name of the topic; unless given, that of the resource. Immutable.",
        default=None,
        pattern=MESSAGE_NAME_PATTERN,
        size_max=TOPIC_SIZE_MAX,
        size_min=1,
    )
    partitions: int = described(
        "Number of partitions (MetaQ) and queues (RocketMQ) on each shard. May grow and never"
        " shrinks.",
        default=8,
        low=1,
        high=BOUNDS["topic.write_queues"][1],
    )
    acknowledgement: AcknowledgementLevel | None = described(
        "What a put waits for; unless given, the cluster's level.", default=None
    )
    retention: TopicRetention = described(
        "How long MetaQ's own files of the topic are kept.", default=TopicRetention
    )
    dialects: Dialects = described(
        "Protocols whose clients may use the topic. Immutable: records are written for them.",
        default=Dialects.ALL,
    )
    ordered: bool = described(
        "Whether routes mark the topic as ordered for RocketMQ clients.", default=False
    )
    config: Mapping[str, IntOrText] = described(
        "Further attributes of the topic, as docs/configuration.md lists them.",
        default=dict,
        size_max=32,
        item_size_max=1024,
    )
    placement: Placement = described(
        "Shards that hold queues of the topic; all unless given.", default=Placement
    )
    deletion_policy: DeletionPolicy = described(
        "What happens to the messages when this resource is deleted.",
        default=DeletionPolicy.RETAIN,
    )
    adoption_policy: AdoptionPolicy = described(
        "What happens when the topic already exists on the brokers.", default=AdoptionPolicy.ADOPT
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCounts:
    """Partitions in numbers, over all shards."""

    total: int = described("All partitions.", default=0, low=0)
    online: int = described("Partitions on shards that have a master.", default=0, low=0)
    sealed: int = described("Partitions that accept no more messages.", default=0, low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatus:
    """Observed state of the topic."""

    observed_generation: int = generation_field()
    conditions: Conditions = conditions_field()
    topic_name: str | None = described("Name of the topic.", default=None, size_max=TOPIC_SIZE_MAX)
    partitions: PartitionCounts | None = described(
        "Counts of partitions; absent until counted.", default=None
    )
    shards: tuple[int, ...] = described(
        "Shards that hold queues of the topic.", default=(), size_max=SHARDS_MAX
    )
    applied_hash: str | None = described(
        "Hash of the settings that brokers have confirmed.", default=None, size_max=64
    )


COLUMNS: Final = (
    READY,
    STATUS,
    CLUSTER_OF,
    Column("Topic", ".status.topicName"),
    Column("Partitions", ".status.partitions.total", "integer"),
    AGE,
    Column("Online", ".status.partitions.online", "integer", priority=1),
    MESSAGE,
)
"""What `kubectl get` shows."""
