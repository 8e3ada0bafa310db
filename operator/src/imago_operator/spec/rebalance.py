"""ImagoRebalance: one change of where topics have their queues, as an object."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from imago_operator.spec.cluster.brokers import SHARD_ID_MAX, SHARDS_MAX
from imago_operator.spec.schema.column import AGE, CLUSTER_OF, MESSAGE, READY, Column
from imago_operator.spec.schema.common import (
    TOPIC_SIZE_MAX,
    ClusterRef,
    Conditions,
    conditions_field,
    generation_field,
)
from imago_operator.spec.schema.fields import described

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
    """Progress of the change."""

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
        "Topics to change; all unless given.",
        default=(),
        size_max=64,
        item_size_max=TOPIC_SIZE_MAX,
        item_pattern=TOPIC_GLOB,
    )
    exclude: tuple[str, ...] = described(
        "Topics to leave as they are.",
        default=(),
        size_max=64,
        item_size_max=TOPIC_SIZE_MAX,
        item_pattern=TOPIC_GLOB,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceSpec:
    """The requested change. Immutable: create another object for another request."""

    cluster_ref: ClusterRef = described("Cluster to change.")
    mode: RebalanceMode = described(
        "Full: open queues of the topics on every shard. Drain: close the shards to new"
        " messages and open queues elsewhere. Seal: only close them. Fill: open queues of the"
        " topics on the shards."
    )
    shards: tuple[int, ...] = described(
        "Ids of the shards; none with Full.",
        default=(),
        size_max=SHARDS_MAX,
        item_low=0,
        item_high=SHARD_ID_MAX,
    )
    topics: TopicFilter = described("Topics to change.", default=TopicFilter)
    concurrent_topics: int = described(
        "How many topics may change at the same time.", default=4, low=1, high=64
    )
    approval: Approval = described(
        "Whether the change starts by itself or waits for the annotation imago.dev/approve.",
        default=Approval.AUTO,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What would be done."""

    topics: int = described("Topics to change.", default=0, low=0)
    opened: int = described("Queues to open.", default=0, low=0)
    sealed: int = described("Queues to close to new messages.", default=0, low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """How much is done."""

    done: int = described("Topics done.", default=0, low=0)
    remaining: int = described("Topics left.", default=0, low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceStatus:
    """Progress of the change."""

    observed_generation: int = generation_field()
    conditions: Conditions = conditions_field()
    phase: Phase | None = described("Phase of the change.", default=None)
    plan: Proposal | None = described("The planned change.", default=None)
    progress: Moved | None = described("Progress of the change.", default=None)


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
