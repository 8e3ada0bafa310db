"""ImagoMirror: topics of a cluster in another one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from imago_operator.spec.schema.column import AGE, MESSAGE, READY, Column
from imago_operator.spec.schema.common import (
    ClusterRef,
    Conditions,
    Resources,
    conditions_field,
    generation_field,
)
from imago_operator.spec.schema.fields import described
from imago_operator.spec.schema.rule import Rule, exactly_one, resource_name


class MirrorState(StrEnum):
    """What a mirror is to do."""

    COPYING = "Copying"
    SUSPENDED = "Suspended"
    FAILED_OVER = "FailedOver"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPlace:
    """One of the clusters."""

    cluster_ref: ClusterRef | None = described("An ImagoCluster.", default=None)
    bootstrap: str | None = described(
        "Or the name-service addresses of any Imago cluster, host:port, joined with commas.",
        default=None,
        pattern=r"^[A-Za-z0-9.\[\]:_-]+:[0-9]{1,5}(,[A-Za-z0-9.\[\]:_-]+:[0-9]{1,5})*$",
        size_max=1024,
    )
    secret_name: str | None = described(
        "Secret of this namespace with who the mirror is there: username and password, or tls.crt"
        " and tls.key; and ca.crt, with which it talks TLS. The Secret of an ImagoUser has them.",
        default=None,
        size_min=1,
        size_max=253,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSpec:
    """What is copied, from where to where."""

    source: MirrorPlace = described("The cluster whose topics are copied.")
    target: MirrorPlace = described("The cluster that gets them.")
    topics: tuple[str, ...] = described(
        "Topics, by name or by a regular expression that the whole name matches.",
        size_min=1,
        size_max=64,
        item_size_max=255,
        plain_list=True,
    )
    groups: tuple[str, ...] = described(
        "Consumer groups whose places are translated, likewise.",
        default=(),
        size_max=64,
        item_size_max=255,
        plain_list=True,
    )
    state: MirrorState = described(
        "Copying; Suspended: it copies nothing for now; FailedOver: it stops, moves groups a last"
        " time, and says in status.lacks how many messages the target lacks.",
        default=MirrorState.COPYING,
    )
    resources: Resources = described("What its container asks for.", default=Resources)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStatus:
    """The mirror as its process tells it."""

    observed_generation: int = generation_field()
    conditions: Conditions = conditions_field()
    state: str | None = described("What it does.", default=None, size_max=16)
    source_cluster: str | None = described("Id of the source.", default=None, size_max=64)
    target_cluster: str | None = described("Id of the target.", default=None, size_max=64)
    topics: int | None = described("Topics that are copied.", default=None, low=0)
    lag_messages: int | None = described("Messages that the target lacks.", default=None, low=0)
    lag_seconds: int | None = described(
        "For how long the oldest of them has waited.", default=None, low=0
    )
    last_copied_at: str | None = described(
        "When a message was copied last.", default=None, size_max=40
    )
    lacks: int | None = described(
        "Messages that the target lacked when the mirror failed over.", default=None, low=0
    )


COLUMNS: Final = (
    READY,
    Column("State", ".status.state"),
    Column("Topics", ".status.topics", "integer"),
    Column("Lag", ".status.lagMessages", "integer"),
    Column("Seconds", ".status.lagSeconds", "integer"),
    Column("Last-Copied", ".status.lastCopiedAt"),
    AGE,
    MESSAGE,
)


RULES: Final[tuple[Rule, ...]] = (
    *resource_name(40, "an ImagoMirror"),
    exactly_one("spec.source", "clusterRef", "bootstrap"),
    exactly_one("spec.target", "clusterRef", "bootstrap"),
)
