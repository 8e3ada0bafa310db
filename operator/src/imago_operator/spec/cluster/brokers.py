"""The part of an ImagoCluster that says how its brokers are to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from imago_operator.spec.cluster.tiered import TieredStorage
from imago_operator.spec.schema.common import (
    NAME_SIZE_MAX,
    AcknowledgementLevel,
    ChildMetadata,
    Resources,
    Retention,
)
from imago_operator.spec.schema.fields import IntOrText, Json, described
from imago_operator.spec.schema.values import Duration, Quantity

SHARDS_MAX: Final = 64
SHARD_ID_MAX: Final = 1023
REPLICAS_MAX: Final = 5
SHARD_POOLS_MAX: Final = 16


class StorageType(StrEnum):
    """Where the log lies."""

    CLAIM = "PersistentClaim"
    EPHEMERAL = "Ephemeral"


class AntiAffinity(StrEnum):
    """Whether members of one shard may share a node."""

    REQUIRED = "Required"
    PREFERRED = "Preferred"
    NONE = "None"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRetention:
    """What happens to claims; the names are those of a StatefulSet."""

    when_deleted: Retention = described(
        "When the cluster is deleted; applies to a managed ZooKeeper too. A cluster of the"
        " same name adopts retained claims.",
        default=Retention.RETAIN,
    )
    when_scaled: Retention = described(
        "When a shard or a member is removed. Delete never deletes a claim before its shard"
        " is recorded as drained.",
        default=Retention.RETAIN,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoGrow:
    """Claims that grow by themselves."""

    above: int = described(
        "Percent of its disk that a broker uses when its claim grows.", default=80, low=50, high=95
    )
    step: int = described(
        "Percent of its size that a claim gets more, in whole Gi.", default=25, low=5, high=100
    )
    max: Quantity = described("How large a claim may become so.")
    cool_down: Duration = described(
        "How long a claim does not grow again. Some drivers let a volume grow every 6 hours only.",
        default=Duration("6h"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Volumes of the brokers."""

    type: StorageType = described(
        "PersistentClaim, or Ephemeral for trials: a deleted pod loses its log. Immutable.",
        default=StorageType.CLAIM,
    )
    size: Quantity | None = described(
        "Size of each claim; may grow and never shrinks. The operator leaves a claim that"
        " somebody enlarged at its size. Required with PersistentClaim.",
        default=None,
    )
    auto_grow: AutoGrow | None = described(
        "Has a claim grow whose broker's disk is nearly full; `size` stays the least of all.",
        default=None,
    )
    storage_class_name: str | None = described(
        "Storage class; the cluster's default unless given. Another one is given to members one"
        " by one: each begins on a new claim and copies its shard.",
        default=None,
        size_max=253,
    )
    volume_attributes_class_name: str | None = described(
        "VolumeAttributesClass of the claims.", default=None, size_max=253
    )
    persistent_volume_claim_retention_policy: ClaimRetention = described(
        "What happens to claims that are no longer needed.", default=ClaimRetention
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rack:
    """What tells failure domains apart."""

    topology_key: str = described(
        "Node label whose values are failure domains: the operator spreads members of a shard"
        " over them, and each broker knows its own as its zone.",
        default="topology.kubernetes.io/zone",
        size_max=317,
        size_min=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """How members of a shard keep the same log."""

    ack_timeout: Duration = described(
        "How long a put waits for its acknowledgement level.", default=Duration("5s")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """What is added to the pods; Kubernetes itself checks these parts."""

    metadata: ChildMetadata = described(
        "Labels and annotations of the pods.", default=ChildMetadata
    )
    affinity: Json = described("Affinity that replaces the operator's own.", default=dict)
    tolerations: tuple[Json, ...] = described(
        "Tolerations.", default=(), size_max=32, plain_list=True
    )
    node_selector: Mapping[str, str] = described(
        "Labels that nodes must have.", default=dict, item_size_max=63
    )
    topology_spread_constraints: tuple[Json, ...] = described(
        "Spread constraints that replace the operator's own.",
        default=(),
        size_max=16,
        plain_list=True,
    )
    priority_class_name: str | None = described("Priority class.", default=None, size_max=253)
    security_context: Json = described(
        "Merged into the pod's security context; the default satisfies Pod Security restricted.",
        default=dict,
    )
    termination_grace_period_seconds: int = described(
        "How long a broker may take to hand over and stop.", default=120, low=30, high=3600
    )
    volumes: tuple[Json, ...] = described(
        "Additional volumes.", default=(), size_max=32, plain_list=True
    )
    init_containers: tuple[Json, ...] = described(
        "Additional init containers.", default=(), size_max=8, plain_list=True
    )
    sidecars: tuple[Json, ...] = described(
        "Additional containers beside the broker.", default=(), size_max=8, plain_list=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerTemplate:
    """What is added to the broker's container."""

    env: tuple[Json, ...] = described(
        "Additional environment variables.", default=(), size_max=64, plain_list=True
    )
    volume_mounts: tuple[Json, ...] = described(
        "Additional volume mounts.", default=(), size_max=32, plain_list=True
    )
    security_context: Json = described(
        "Merged into the container's security context.", default=dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildTemplate:
    """What is added to a child."""

    metadata: ChildMetadata = described("Labels and annotations.", default=ChildMetadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTemplate:
    """What is added to the children of the brokers."""

    pod: PodTemplate = described("Additions to the pods.", default=PodTemplate)
    container: ContainerTemplate = described(
        "Additions to the broker's container.", default=ContainerTemplate
    )
    service: ChildTemplate = described("Additions to the Services.", default=ChildTemplate)
    persistent_volume_claim: ChildTemplate = described(
        "Additions to the claims.", default=ChildTemplate
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPool:
    """Nodes for some of the shards."""

    shards: tuple[int, ...] = described(
        "Ids of the shards whose members belong there; the first pool that names a shard counts.",
        size_max=SHARDS_MAX,
        item_low=0,
        item_high=SHARD_ID_MAX,
    )
    node_selector: Mapping[str, str] = described(
        "Labels that their nodes must have, beside those of `template`.", item_size_max=63
    )
    tolerations: tuple[Json, ...] = described(
        "Tolerations of their pods, beside those of `template`.",
        default=(),
        size_max=32,
        plain_list=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """The brokers of a cluster."""

    shards: int = described(
        "Number of shards; each is a log of its own, kept by its members.",
        default=1,
        low=1,
        high=SHARDS_MAX,
    )
    replicas_per_shard: int = described(
        "Number of members of each shard. May change: members that are added count once all are in"
        " sync, and leave one at a time.",
        default=3,
        low=1,
        high=REPLICAS_MAX,
    )
    remove_shards: tuple[int, ...] = described(
        "Ids of the shards to remove first when `shards` decreases; unless given, the highest.",
        default=(),
        size_max=SHARDS_MAX - 1,
        item_low=0,
        item_high=SHARD_ID_MAX,
    )
    acknowledgement: AcknowledgementLevel | None = described(
        "What a put waits for on topics without a level of their own: the leader's memory or"
        " disk, or that of every member in sync. Unless given, replicated with two members or"
        " more, otherwise leader.",
        default=None,
    )
    min_in_sync: int | None = described(
        "Minimum number of members in sync; with fewer, brokers refuse puts that wait for"
        " replicas. Unless given, 2 with two members or more, otherwise 1.",
        default=None,
        low=1,
        high=REPLICAS_MAX,
    )
    replication: Replication = described(
        "Replication between the members of a shard.", default=Replication
    )
    storage: Storage = described("Volumes of the brokers.")
    config: Mapping[str, IntOrText] = described(
        "Settings of the brokers by `section.key`, as docs/configuration.md lists them. The"
        " operator applies those that may change at run time without a restart.",
        default=dict,
        size_max=128,
        item_size_max=4096,
    )
    tiered_storage: TieredStorage | None = described(
        "A bucket for old messages, which are read from there as before; cannot be taken away.",
        default=None,
    )
    resources: Resources = described("Resource requests and limits of a broker.", default=Resources)
    rack: Rack = described("Failure domains.", default=Rack)
    shard_pools: tuple[ShardPool, ...] = described(
        "Node pools of shards; shards that none names go where `template` says. Members move there"
        " by a restart, or, where their volumes cannot follow, onto new claims.",
        default=(),
        size_max=SHARD_POOLS_MAX,
        plain_list=True,
    )
    anti_affinity: AntiAffinity = described(
        "Whether members of one shard may share a node.", default=AntiAffinity.PREFERRED
    )
    template: BrokerTemplate = described(
        "Additions to pods, Services and claims.", default=BrokerTemplate
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """One member of a shard, as it was last seen."""

    pod: str = described("Name of its pod.", size_max=NAME_SIZE_MAX)
    role: str = described(
        "Role of the member; Slave means follower.", one_of=("Master", "Slave", "Unknown")
    )
    state: str = described(
        "Whether the member has all that the master has.",
        one_of=("InSync", "CatchingUp", "Offline", "Fenced"),
    )
    lag: str | None = described(
        "Approximate distance behind the master: 0, <1Mi, <64Mi or more.", default=None, size_max=8
    )
