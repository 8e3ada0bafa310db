"""ImagoConsumerGroup: a consumer group, where it begins, and when it is too far behind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from imago_operator.broker_rules.keys import BOUNDS
from imago_operator.spec.schema.column import AGE, CLUSTER_OF, MESSAGE, READY, STATUS, Column
from imago_operator.spec.schema.common import (
    GROUP_SIZE_MAX,
    MESSAGE_NAME_PATTERN,
    TOPIC_SIZE_MAX,
    ClusterRef,
    Conditions,
    conditions_field,
    generation_field,
)
from imago_operator.spec.schema.fields import described
from imago_operator.spec.schema.values import Duration


class GroupMode(StrEnum):
    """Whether members share the messages or each gets all."""

    CLUSTERING = "Clustering"
    BROADCAST = "Broadcast"


class Position(StrEnum):
    """A place in a topic."""

    EARLIEST = "Earliest"
    LATEST = "Latest"
    TIMESTAMP = "Timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxLag:
    """How far behind is too far. Only reported."""

    messages: int | None = described("Limit in messages.", default=None, low=0)
    time: Duration | None = described(
        "Limit on the age of the oldest unread message.", default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequest:
    """A request to go on from somewhere else, carried out once."""

    request_id: str = described(
        "Name of the request; a new name is a new request.",
        pattern=r"^[A-Za-z0-9._-]+$",
        size_max=64,
        size_min=1,
    )
    to: Position = described("Where consumption continues.")
    timestamp: str | None = described(
        "With Timestamp: the time, as in RFC 3339.",
        default=None,
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
        r"(Z|[+-][0-9]{2}:[0-9]{2})$",
        size_max=40,
    )
    topics: tuple[str, ...] = described(
        "Topics to reset; unless given, all for which the group has offsets.",
        default=(),
        size_max=64,
        item_pattern=MESSAGE_NAME_PATTERN,
        item_size_max=TOPIC_SIZE_MAX,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """Desired state of the group."""

    cluster_ref: ClusterRef = described("Cluster of the group. Immutable.")
    group_name: str | None = described(
        "Name of the group; unless given, that of the resource. Immutable.",
        default=None,
        pattern=MESSAGE_NAME_PATTERN,
        size_max=GROUP_SIZE_MAX,
        size_min=1,
    )
    mode: GroupMode = described(
        "Clustering: members share the messages. Broadcast: each member gets all.",
        default=GroupMode.CLUSTERING,
    )
    consume_enabled: bool = described("Whether the group may consume.", default=True)
    ordered: bool = described("Whether the group consumes each queue in order.", default=False)
    retry_queues: int = described(
        "Number of queues of the group's retry topic on each shard, when that is made. 0: what"
        " consumers give back is forgotten.",
        default=1,
        low=BOUNDS["group.retry_queues"][0],
        high=BOUNDS["group.retry_queues"][1],
    )
    max_retries: int = described(
        "How often a message is delivered again before it goes to the dead letters.",
        default=16,
        low=BOUNDS["group.retry_max_times"][0],
        high=BOUNDS["group.retry_max_times"][1],
    )
    max_lag: MaxLag = described("Lag above which the operator reports the group.", default=MaxLag)
    reset: ResetRequest | None = described(
        "Request to continue elsewhere. The operator carries out each requestId once, and"
        " only while the group has no members.",
        default=None,
    )
    deletion_policy: str = described(
        "What happens to settings and offsets when this resource is deleted.",
        default="Retain",
        one_of=("Retain", "Delete"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LastReset:
    """What became of the last request."""

    request_id: str = described("Name of the request.", size_max=64)
    at: str = described("Time of the reset.", size_max=40)
    result: str = described("Result of the reset.", size_max=1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLag:
    """How far the group is behind on one topic, roughly."""

    topic: str = described("Name of the topic.", size_max=255)
    lag: str = described("Unread messages, to one digit: 0, ~20, ~3k.", size_max=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """Observed state of the group."""

    observed_generation: int = generation_field()
    conditions: Conditions = conditions_field()
    group_name: str | None = described("Name of the group.", default=None, size_max=GROUP_SIZE_MAX)
    state: str | None = described(
        "Whether the group has members.", default=None, one_of=("Empty", "Stable", "Unknown")
    )
    members: int | None = described(
        "Number of members; absent while no broker tells.", default=None, low=0
    )
    lag: str | None = described(
        "Unread messages, to one digit: 0, ~20, ~3k; absent while no broker tells.",
        default=None,
        size_max=8,
    )
    topics: tuple[TopicLag, ...] = described(
        "Lag by topic.", default=(), size_max=100, map_key="topic"
    )
    last_reset: LastReset | None = described("Result of the last reset request.", default=None)
    applied_hash: str | None = described(
        "Hash of the settings that brokers have confirmed.", default=None, size_max=64
    )


COLUMNS: Final = (
    READY,
    STATUS,
    CLUSTER_OF,
    Column("Group", ".status.groupName"),
    Column("State", ".status.state"),
    Column("Members", ".status.members", "integer"),
    Column("Lag", ".status.lag"),
    AGE,
    Column("Last-Reset", ".status.lastReset.requestId", priority=1),
    MESSAGE,
)
"""What `kubectl get` shows."""
