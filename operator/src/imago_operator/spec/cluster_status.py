"""The status of an ImagoCluster: what it is, what is under way, what waits for whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from imago_operator.spec.brokers import SHARD_ID_MAX, MemberStatus
from imago_operator.spec.column import AGE, MESSAGE, READY, STATUS, Column, condition
from imago_operator.spec.common import Conditions, conditions_field, generation_field
from imago_operator.spec.fields import described


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCounts:
    """Brokers in numbers."""

    shards: int = described("Shards there are.", default=0, low=0)
    replicas: int = described("Pods there are to be.", default=0, low=0)
    ready_replicas: int = described("Pods that are ready.", default=0, low=0)
    updated_replicas: int = described("Pods of the newest revision.", default=0, low=0)
    in_sync_replicas: int | None = described(
        "Members in sync; absent while nobody knows.", default=None, low=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStatus:
    """One shard, as it was last seen."""

    id: int = described("Its number.", low=0, high=SHARD_ID_MAX)
    epoch: int | None = described("Its epoch: how often leadership changed.", default=None, low=0)
    master: str | None = described("Pod of its master.", default=None, size_max=63)
    phase: str = described(
        "What it does.",
        one_of=("Serving", "Degraded", "Offline", "Cordoned", "Draining", "Drained", "Unknown"),
    )
    members: tuple[MemberStatus, ...] = described(
        "Its members.", default=(), size_max=8, map_key="pod"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A restart of brokers, one after the other."""

    revision: str = described("Revision that pods get.", size_max=64)
    cause: str = described("Why.", size_max=64)
    updated: int = described("Pods that have it.", default=0, low=0)
    remaining: int = described("Pods that do not.", default=0, low=0)
    current: tuple[str, ...] = described(
        "Pods that are down or handing over for it.", default=(), size_max=16, item_size_max=63
    )
    blocked_by: str | None = described("What it waits for.", default=None, size_max=1024)
    started_at: str = described("Since when.", size_max=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDownStatus:
    """Shards that go."""

    victims: tuple[int, ...] = described("Their numbers.", default=(), size_max=64)
    step: str = described("How far it is.", size_max=32)
    queues_remaining: int | None = described("Queues not yet read out.", default=None, low=0)
    messages_remaining: int | None = described("Messages not yet read.", default=None, low=0)
    claims: tuple[str, ...] = described(
        "Claims that will be deleted; no other ever is.",
        default=(),
        size_max=320,
        item_size_max=253,
    )
    started_at: str = described("Since when.", size_max=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimStatus:
    """One claim."""

    claim: str = described("Its name.", size_max=253)
    requested: str = described("Size asked for.", size_max=20)
    capacity: str | None = described("Size it has.", default=None, size_max=20)
    condition: str | None = described("What Kubernetes says of it.", default=None, size_max=64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileProgress:
    """What the operator is at: the same that `kubectl imago explain` says."""

    row: str = described("Which case decides.", size_max=64)
    step: str = described("Which of its steps, for the operator itself.", size_max=253)
    since: str = described("Since when.", size_max=40)
    waits_for: str | None = described("What it waits for.", default=None, size_max=1024)
    next: str | None = described("What comes after that.", default=None, size_max=1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingApproval:
    """Something that waits for a person."""

    id: str = described("Value for the annotation imago.dev/approve.", size_max=64)
    kind: str = described("What it is about.", size_max=64)
    summary: str = described("What would be done.", size_max=1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedMember:
    """A member whose claim was given up because its node is gone for good."""

    claim: str = described("Its claim.", size_max=253)
    uid: str = described("The claim's uid.", size_max=64)
    node: str = described("The node that is gone.", size_max=253)
    at: str = described("When it was decided.", size_max=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperMove:
    """A server of ZooKeeper that was restarted to get to another node."""

    pod: str = described("Its pod.", size_max=63)
    node: str = described("The node that it was on.", size_max=253)
    at: str = described("When.", size_max=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """What the cluster is."""

    observed_generation: int = generation_field()
    conditions: Conditions = conditions_field()
    cluster_id: str | None = described("Its identity in the registry.", default=None, size_max=64)
    version: str | None = described("Version all brokers have.", default=None, size_max=20)
    desired_version: str | None = described("Version they get.", default=None, size_max=20)
    operator_version: str | None = described(
        "Version of the operator that wrote this.", default=None, size_max=20
    )
    operated_by: str | None = described(
        "Installation of the operator that operates it, as namespace/name of its Lease; others"
        " leave it alone while that one lives.",
        default=None,
        size_max=320,
    )
    brokers: BrokerCounts = described("Brokers in numbers.", default=BrokerCounts)
    selector: str | None = described(
        "Label selector of the masters' pods, for autoscalers.", default=None, size_max=512
    )
    zookeeper: str | None = described(
        "What clients of MetaQ write as zkConnect.", default=None, size_max=4096
    )
    bootstrap: str | None = described(
        "What clients of RocketMQ write as name server.", default=None, size_max=512
    )
    shards: tuple[ShardStatus, ...] = described(
        "The shards.", default=(), size_max=128, map_key="id"
    )
    progress: ReconcileProgress | None = described("What the operator is at.", default=None)
    rollout: Rollout | None = described("A restart under way.", default=None)
    scale_down: ScaleDownStatus | None = described("Shards that go.", default=None)
    storage: tuple[ClaimStatus, ...] = described(
        "Claims that are not as wanted.", default=(), size_max=320, map_key="claim"
    )
    pending_approvals: tuple[PendingApproval, ...] = described(
        "What waits for a person.", default=(), size_max=16, map_key="id"
    )
    replaced_members: tuple[ReplacedMember, ...] = described(
        "Claims given up because their nodes are gone.", default=(), size_max=64, map_key="claim"
    )
    zookeeper_move: ZooKeeperMove | None = described(
        "The last server of ZooKeeper that was moved off a node with a majority.", default=None
    )
    looked_at: str | None = described(
        "When the operator last observed it, to within half a minute: older values may no"
        " longer be true.",
        default=None,
        size_max=40,
    )


COLUMNS: Final = (
    READY,
    STATUS,
    Column("Shards", ".status.brokers.shards", "integer"),
    Column("Brokers", ".status.brokers.replicas", "integer"),
    Column("In-Sync", ".status.brokers.inSyncReplicas", "integer"),
    Column("Looked-At", ".status.lookedAt", "date"),
    Column("Version", ".status.version"),
    AGE,
    Column("Desired", ".status.desiredVersion", priority=1),
    Column("Updating", condition("Updating", "reason"), priority=1),
    Column("ZooKeeper", ".status.zookeeper", priority=1),
    MESSAGE,
)
"""What `kubectl get` shows."""
