"""ImagoRebalance: one change of where topics have their queues, as an object."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from imago_operator.spec.brokers import SHARD_ID_MAX, SHARDS_MAX
from imago_operator.spec.column import AGE, CLUSTER_OF, MESSAGE, READY, Column
from imago_operator.spec.common import (
    TOPIC_SIZE_MAX,
    ClusterRef,
    Conditions,
    conditions_field,
    generation_field,
)
from imago_operator.spec.fields import described

TOPIC_GLOB = r"^[%|A-Za-z0-9_*-][%|A-Za-z0-9_.*-]*$"


class RebalanceMode(StrEnum):
    """What is to be reached."""

    FULL = "Full"
    DRAIN = "Drain"
    SEAL = "Seal"
    FILL = "Fill"


class Approval(StrEnum):
    """Who says that it may begin."""

    AUTO = "Auto"
    MANUAL = "Manual"


class Phase(StrEnum):
    """How far it is."""

    PROPOSED = "Proposed"
    APPROVED = "Approved"
    RUNNING = "Running"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFilter:
    """Which topics it concerns; * stands for anything."""

    include: tuple[str, ...] = described(
        "Only these; all unless given.",
        default=(),
        size_max=64,
        item_size_max=TOPIC_SIZE_MAX,
        item_pattern=TOPIC_GLOB,
    )
    exclude: tuple[str, ...] = described(
        "Not these.", default=(), size_max=64, item_size_max=TOPIC_SIZE_MAX, item_pattern=TOPIC_GLOB
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceSpec:
    """What is to be done. Immutable: another request is another object."""

    cluster_ref: ClusterRef = described("Its cluster.")
    mode: RebalanceMode = described(
        "Full: topics get queues on every shard. Drain: the shards take no more messages, and"
        " others get the queues. Seal: they take no more, and nobody gets any. Fill: the shards"
        " get queues of the topics."
    )
    shards: tuple[int, ...] = described(
        "Which shards; none with Full.",
        default=(),
        size_max=SHARDS_MAX,
        item_low=0,
        item_high=SHARD_ID_MAX,
    )
    topics: TopicFilter = described("Which topics it concerns.", default=TopicFilter)
    concurrent_topics: int = described(
        "How many topics are worked on at one time.", default=4, low=1, high=64
    )
    approval: Approval = described(
        "Whether it begins by itself, or after the annotation imago.dev/approve.",
        default=Approval.AUTO,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What would be done."""

    topics: int = described("Topics that change.", default=0, low=0)
    opened: int = described("Queues that are opened.", default=0, low=0)
    sealed: int = described("Queues that are closed to new messages.", default=0, low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """How much is done."""

    done: int = described("Topics done.", default=0, low=0)
    remaining: int = described("Topics not done.", default=0, low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceStatus:
    """How far it is."""

    observed_generation: int = generation_field()
    conditions: Conditions = conditions_field()
    phase: Phase | None = described("How far it is.", default=None)
    plan: Proposal | None = described("What would be done.", default=None)
    progress: Moved | None = described("How much is done.", default=None)


COLUMNS: Final = (
    READY,
    Column("Phase", ".status.phase"),
    CLUSTER_OF,
    Column("Mode", ".spec.mode"),
    Column("Done", ".status.progress.done", "integer"),
    Column("Remaining", ".status.progress.remaining", "integer"),
    AGE,
    MESSAGE,
)
"""What `kubectl get` shows."""
