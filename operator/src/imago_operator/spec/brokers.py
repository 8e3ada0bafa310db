"""The part of an ImagoCluster that says how its brokers are to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from imago_operator.spec.common import (
    NAME_SIZE_MAX,
    AcknowledgementLevel,
    ChildMetadata,
    Resources,
    Retention,
)
from imago_operator.spec.fields import IntOrText, Json, described
from imago_operator.spec.values import Duration, Quantity

SHARDS_MAX: Final = 64
SHARD_ID_MAX: Final = 1023
REPLICAS_MAX: Final = 5


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
        "When the cluster is deleted; counts for a managed ZooKeeper, too. A cluster of the"
        " same name adopts retained claims.",
        default=Retention.RETAIN,
    )
    when_scaled: Retention = described(
        "When a shard or a member is taken away. Delete never touches a claim before its shard"
        " is on record as drained.",
        default=Retention.RETAIN,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Volumes of the brokers."""

    type: StorageType = described(
        "PersistentClaim, or Ephemeral for trials: a pod that goes takes its log with it."
        " Immutable.",
        default=StorageType.CLAIM,
    )
    size: Quantity | None = described(
        "Size of each claim; may grow and never shrinks. A claim that somebody made larger stays"
        " larger. Required with PersistentClaim.",
        default=None,
    )
    storage_class_name: str | None = described(
        "Storage class; the cluster's default unless given. Immutable.",
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
        "Label of nodes; members of a shard are spread over its values, and brokers know it as"
        " their zone.",
        default="topology.kubernetes.io/zone",
        size_max=317,
        size_min=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """How members of a shard keep the same log."""

    ack_timeout: Duration = described("How long a put waits for its level.", default=Duration("5s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """What is added to the pods; Kubernetes itself checks these parts."""

    metadata: ChildMetadata = described(
        "Labels and annotations of the pods.", default=ChildMetadata
    )
    affinity: Json = described("Affinity, in place of the operator's own.", default=dict)
    tolerations: tuple[Json, ...] = described(
        "Tolerations.", default=(), size_max=32, plain_list=True
    )
    node_selector: Mapping[str, str] = described(
        "Labels that nodes must have.", default=dict, item_size_max=63
    )
    topology_spread_constraints: tuple[Json, ...] = described(
        "Spread, in place of the operator's own.", default=(), size_max=16, plain_list=True
    )
    priority_class_name: str | None = described("Priority class.", default=None, size_max=253)
    security_context: Json = described(
        "Merged into the pod's security context; the default satisfies Pod Security restricted.",
        default=dict,
    )
    termination_grace_period_seconds: int = described(
        "How long a broker may take to hand over and to stop.", default=120, low=30, high=3600
    )
    volumes: tuple[Json, ...] = described(
        "Further volumes.", default=(), size_max=32, plain_list=True
    )
    init_containers: tuple[Json, ...] = described(
        "Containers that run first.", default=(), size_max=8, plain_list=True
    )
    sidecars: tuple[Json, ...] = described(
        "Containers beside the broker.", default=(), size_max=8, plain_list=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerTemplate:
    """What is added to the broker's container."""

    env: tuple[Json, ...] = described(
        "Further environment.", default=(), size_max=64, plain_list=True
    )
    volume_mounts: tuple[Json, ...] = described(
        "Further mounts.", default=(), size_max=32, plain_list=True
    )
    security_context: Json = described("Merged into its security context.", default=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildTemplate:
    """What is added to a child."""

    metadata: ChildMetadata = described("Labels and annotations.", default=ChildMetadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTemplate:
    """What is added to the children of the brokers."""

    pod: PodTemplate = described("The pods.", default=PodTemplate)
    container: ContainerTemplate = described("The broker's container.", default=ContainerTemplate)
    service: ChildTemplate = described("The Services.", default=ChildTemplate)
    persistent_volume_claim: ChildTemplate = described("The claims.", default=ChildTemplate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """The brokers of a cluster."""

    shards: int = described(
        "How many shards the cluster has; each is a log of its own with its members.",
        default=1,
        low=1,
        high=SHARDS_MAX,
    )
    replicas_per_shard: int = described(
        "Members of each shard.", default=3, low=1, high=REPLICAS_MAX
    )
    remove_shards: tuple[int, ...] = described(
        "Ids of the shards that go first when `shards` is lowered; the highest unless named.",
        default=(),
        size_max=SHARDS_MAX - 1,
        item_low=0,
        item_high=SHARD_ID_MAX,
    )
    acknowledgement: AcknowledgementLevel | None = described(
        "What the answer to a put waits for, on topics without a level of their own: the"
        " leader's memory or disk, or that of every member in sync. replicated with two members"
        " or more, else leader.",
        default=None,
    )
    min_in_sync: int | None = described(
        "Members in sync below which puts that wait for replicas are refused. 2 with two members"
        " or more, else 1.",
        default=None,
        low=1,
        high=REPLICAS_MAX,
    )
    replication: Replication = described("How members keep the same log.", default=Replication)
    storage: Storage = described("Volumes of the brokers.")
    config: Mapping[str, IntOrText] = described(
        "Settings of the brokers by `section.key`, as docs/configuration.md lists them. Those"
        " that may change while a broker runs are applied without a restart.",
        default=dict,
        size_max=128,
        item_size_max=4096,
    )
    resources: Resources = described("What a broker asks for and may use.", default=Resources)
    rack: Rack = described("What tells failure domains apart.", default=Rack)
    anti_affinity: AntiAffinity = described(
        "Whether members of one shard may share a node.", default=AntiAffinity.PREFERRED
    )
    template: BrokerTemplate = described(
        "What is added to pods, Services and claims.", default=BrokerTemplate
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """One member of a shard, as it was last seen."""

    pod: str = described("Its pod.", size_max=NAME_SIZE_MAX)
    role: str = described("What it is.", one_of=("Master", "Slave", "Unknown"))
    state: str = described(
        "Whether it has what the master has.", one_of=("InSync", "CatchingUp", "Offline")
    )
    lag: str | None = described(
        "How far it is behind, roughly: 0, <1Mi, <64Mi or more.", default=None, size_max=8
    )
