"""ImagoConsumerGroup: a consumer group, where it begins, and when it is too far behind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from imago_operator.spec.column import AGE, CLUSTER_OF, MESSAGE, READY, STATUS, Column
from imago_operator.spec.common import (
    GROUP_SIZE_MAX,
    MESSAGE_NAME_PATTERN,
    TOPIC_SIZE_MAX,
    ClusterRef,
    Conditions,
    conditions_field,
    generation_field,
)
from imago_operator.spec.fields import described
from imago_operator.spec.values import Duration


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

    messages: int | None = described("In messages.", default=None, low=0)
    time: Duration | None = described("In time since the oldest unread one.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequest:
    """A request to go on from somewhere else, carried out once."""

    request_id: str = described(
        "Name of the request; another name is another request.",
        pattern=r"^[A-Za-z0-9._-]+$",
        size_max=64,
        size_min=1,
    )
    to: Position = described("Where to go on.")
    timestamp: str | None = described(
        "With Timestamp: the moment, as in RFC 3339.",
        default=None,
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
        r"(Z|[+-][0-9]{2}:[0-9]{2})$",
        size_max=40,
    )
    topics: tuple[str, ...] = described(
        "On which topics; on all that the group has offsets of unless given.",
        default=(),
        size_max=64,
        item_pattern=MESSAGE_NAME_PATTERN,
        item_size_max=TOPIC_SIZE_MAX,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """What the group is to be."""

    cluster_ref: ClusterRef = described("Its cluster. Immutable.")
    group_name: str | None = described(
        "Its name; that of the resource unless given. Immutable.",
        default=None,
        pattern=MESSAGE_NAME_PATTERN,
        size_max=GROUP_SIZE_MAX,
        size_min=1,
    )
    mode: GroupMode = described(
        "Whether members share the messages or each gets all.", default=GroupMode.CLUSTERING
    )
    consume_enabled: bool = described("Whether it may consume at all.", default=True)
    ordered: bool = described("Whether it consumes each queue in order.", default=False)
    retry_queues: int = described(
        "Queues of its retry topic on each shard.", default=1, low=1, high=64
    )
    max_retries: int = described(
        "How often a message is tried again before it goes to the dead letters.",
        default=16,
        low=0,
        high=1000,
    )
    max_lag: MaxLag = described("How far behind is too far. Only reported.", default=MaxLag)
    reset: ResetRequest | None = described(
        "Go on from somewhere else: carried out once for each requestId, and only while the"
        " group has no members.",
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

    request_id: str = described("Its name.", size_max=64)
    at: str = described("When.", size_max=40)
    result: str = described("What became of it.", size_max=1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLag:
    """How far the group is behind on one topic, roughly."""

    topic: str = described("The topic.", size_max=255)
    lag: str = described("Messages, to one digit: 0, ~20, ~3k.", size_max=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """What the group is."""

    observed_generation: int = generation_field()
    conditions: Conditions = conditions_field()
    group_name: str | None = described("Its name.", default=None, size_max=GROUP_SIZE_MAX)
    state: str | None = described(
        "Whether it has members.", default=None, one_of=("Empty", "Stable", "Unknown")
    )
    members: int = described("How many.", default=0, low=0)
    lag: str | None = described(
        "Messages not yet consumed, to one digit: 0, ~20, ~3k.", default=None, size_max=8
    )
    topics: tuple[TopicLag, ...] = described(
        "Lag by topic.", default=(), size_max=100, map_key="topic"
    )
    last_reset: LastReset | None = described("What became of the last request.", default=None)
    applied_hash: str | None = described(
        "Fingerprint of the settings that brokers have confirmed.", default=None, size_max=64
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
