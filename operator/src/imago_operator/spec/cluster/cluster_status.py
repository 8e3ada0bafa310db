"""The status of an ImagoCluster: what it is, what is under way, what waits for whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from imago_operator.spec.cluster.brokers import SHARD_ID_MAX, MemberStatus
from imago_operator.spec.schema.column import AGE, MESSAGE, STATUS, Column, condition
from imago_operator.spec.schema.common import Conditions, conditions_field, generation_field
from imago_operator.spec.schema.fields import described


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCounts:
    """Brokers in numbers."""

    shards: int = described("Existing shards.", default=0, low=0)
    replicas: int = described("Desired pods.", default=0, low=0)
    ready_replicas: int = described("Ready pods.", default=0, low=0)
    updated_replicas: int = described("Pods of the newest revision.", default=0, low=0)
    in_sync_replicas: int | None = described(
        "Members in sync; absent while unknown.", default=None, low=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedForRoom:
    """A part of a shard's log that went before it had expired."""

    start: int = described("Log offset at which it begins.", low=0)
    end: int = described("Log offset at which it ends.", low=0)
    messages: int = described("Messages in it.", low=0)
    at: str = described("Time at which the last of it went.", size_max=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStatus:
    """One shard, as it was last seen."""

    id: int = described("Id of the shard.", low=0, high=SHARD_ID_MAX)
    epoch: int | None = described(
        "Number of its mastership; each new master raises it.", default=None, low=0
    )
    master: str | None = described("Pod of the master.", default=None, size_max=63)
    phase: str = described(
        "Phase of the shard.",
        one_of=(
            *("Serving", "Degraded", "Offline", "Cordoned", "Draining", "Drained", "Hibernated"),
            "Unknown",
        ),
    )
    puts: str = described(
        "Whether clients can put messages, as its master says.",
        default="Unknown",
        one_of=("Accepted", "Refused", "Unknown"),
    )
    gets: str = described(
        "Whether clients can get messages, as its master says.",
        default="Unknown",
        one_of=("Accepted", "Refused", "Unknown"),
    )
    refusal: str | None = described(
        "Why puts or gets are refused, or why nobody knows.", default=None, size_max=1024
    )
    deleted_for_room: DeletedForRoom | None = described(
        "What went last, in one piece, since no member's disk had room.", default=None
    )
    members: tuple[MemberStatus, ...] = described(
        "Members of the shard.", default=(), size_max=8, map_key="pod"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A restart of brokers, one after the other."""

    revision: str = described("Revision that the pods get.", size_max=64)
    cause: str = described("Reason for the restart.", size_max=64)
    updated: int = described("Pods that were restarted for it so far.", default=0, low=0)
    remaining: int = described("Pods still to be restarted for it.", default=0, low=0)
    current: tuple[str, ...] = described(
        "Pods that are down or handing over for it.", default=(), size_max=16, item_size_max=63
    )
    blocked_by: str | None = described("What the restart waits for.", default=None, size_max=1024)
    started_at: str = described("Time of its beginning.", size_max=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDownStatus:
    """Shards that go."""

    victims: tuple[int, ...] = described("Ids of the shards to remove.", default=(), size_max=64)
    step: str = described("Current step.", size_max=32)
    queues_remaining: int | None = described("Queues with unread messages.", default=None, low=0)
    messages_remaining: int | None = described("Unread messages.", default=None, low=0)
    claims: tuple[str, ...] = described(
        "Claims that will be deleted; no other ever is.",
        default=(),
        size_max=320,
        item_size_max=253,
    )
    started_at: str = described("Time of its beginning.", size_max=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimStatus:
    """One claim."""

    claim: str = described("Name of the claim.", size_max=253)
    requested: str = described("Requested size.", size_max=20)
    capacity: str | None = described("Actual size.", default=None, size_max=20)
    condition: str | None = described(
        "Condition that Kubernetes reports.", default=None, size_max=64
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """Where clients outside find a broker."""

    pod: str = described("Name of its pod.", size_max=63)
    rocketmq: str = described("host:port that RocketMQ clients are told.", size_max=320)
    metaq: str = described("host:port that MetaQ clients are told.", size_max=320)
    grpc: str | None = described(
        "host:port that RocketMQ 5's SDKs are told; absent where they do not come in.",
        default=None,
        size_max=320,
    )
    leads_to: str | None = described(
        "Address of its load balancer: what that host's name has to lead to.",
        default=None,
        size_max=253,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerStatus:
    """One way in for clients outside the Kubernetes cluster."""

    name: str = described("Name of the listener.", size_max=11)
    bootstrap: str | None = described(
        "host:port at which RocketMQ clients ask the name service; absent while unknown.",
        default=None,
        size_max=320,
    )
    bootstrap_servers: str | None = described(
        "The same in full, as clients write it: host:port, with a semicolon between several;"
        " absent while unknown.",
        default=None,
        size_max=1024,
    )
    grpc: str | None = described(
        "host:port that RocketMQ 5's SDKs take for endpoints; absent while unknown, and where they"
        " do not come in.",
        default=None,
        size_max=320,
    )
    zookeeper: str | None = described(
        "host:port of a managed ZooKeeper for MetaQ clients, with a comma between several; absent"
        " while unknown.",
        default=None,
        size_max=1024,
    )
    admin: str | None = described(
        "host:port of the brokers' administration; absent where it is not open, and while unknown.",
        default=None,
        size_max=320,
    )
    brokers: tuple[BrokerAddress, ...] = described(
        "Where its clients are sent; of large clusters the first ones.",
        default=(),
        size_max=256,
        map_key="pod",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileProgress:
    """What the operator is at: the same that `kubectl imago explain` says."""

    row: str = described("Row of the operator's decision table that applies.", size_max=64)
    step: str = described("Step of that row, for the operator itself.", size_max=253)
    since: str = described("Time since which it applies.", size_max=40)
    waits_for: str | None = described("What the operator waits for.", default=None, size_max=1024)
    next: str | None = described("What the operator does afterwards.", default=None, size_max=1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingApproval:
    """Something that waits for a person."""

    id: str = described("Value for the annotation imago.dev/approve.", size_max=64)
    kind: str = described("Kind of the action.", size_max=64)
    summary: str = described("What the operator does once approved.", size_max=1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedMember:
    """A member whose claim was given up because its node is gone for good."""

    claim: str = described("Name of the claim.", size_max=253)
    uid: str = described("Uid of the claim.", size_max=64)
    node: str = described("Node that is gone.", size_max=253)
    at: str = described("Time of the decision.", size_max=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftMember:
    """A member that has left its shard, whose claim is to go."""

    claim: str = described("Name of the claim.", size_max=253)
    uid: str = described("Uid of the claim.", size_max=64)
    at: str = described("Time of the decision.", size_max=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedMember:
    """A member that gets another claim."""

    pod: str = described("Name of its pod.", size_max=63)
    claim: str = described("Name of the claim.", size_max=253)
    uid: str = described("Uid of the claim that goes.", size_max=64)
    reason: str = described(
        "Why it moves.", one_of=("Ordered", "StorageClass", "Size", "Placement")
    )
    at: str = described("Time of the decision.", size_max=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperMove:
    """A server of ZooKeeper that was restarted to get to another node."""

    pod: str = described("Pod of the server.", size_max=63)
    node: str = described("Node that it left.", size_max=253)
    at: str = described("Time of the move.", size_max=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """Observed state of the cluster."""

    observed_generation: int = generation_field()
    conditions: Conditions = conditions_field()
    cluster_id: str | None = described(
        "Identity of the cluster in the registry.", default=None, size_max=64
    )
    recovered_from: str | None = described(
        "The backup of spec.bootstrap, once every shard has begun with it.",
        default=None,
        size_max=63,
    )
    version: str | None = described("Version that all brokers run.", default=None, size_max=20)
    desired_version: str | None = described(
        "Version that the brokers are to run.", default=None, size_max=20
    )
    feature_level: int | None = described(
        "What all brokers may use; brokers that understand less do not start.", default=None, low=1
    )
    operator_version: str | None = described(
        "Version of the operator that wrote this status.", default=None, size_max=20
    )
    operated_by: str | None = described(
        "Installation of the operator that is in charge, as namespace/name of its Lease;"
        " while it lives, others leave the cluster alone.",
        default=None,
        size_max=320,
    )
    brokers: BrokerCounts = described("Counts of shards and pods.", default=BrokerCounts)
    selector: str | None = described(
        "Label selector of the masters' pods, for autoscalers.", default=None, size_max=512
    )
    zookeeper: str | None = described("zkConnect for MetaQ clients.", default=None, size_max=4096)
    bootstrap: str | None = described(
        "Name server address for RocketMQ clients.", default=None, size_max=512
    )
    grpc: str | None = described("Endpoints for RocketMQ 5's SDKs.", default=None, size_max=512)
    listeners: tuple[ListenerStatus, ...] = described(
        "Addresses for clients outside the Kubernetes cluster.",
        default=(),
        size_max=8,
        map_key="name",
    )
    shards: tuple[ShardStatus, ...] = described(
        "The shards.", default=(), size_max=128, map_key="id"
    )
    progress: ReconcileProgress | None = described("What the operator is doing.", default=None)
    rollout: Rollout | None = described("Restart in progress.", default=None)
    scale_down: ScaleDownStatus | None = described("Removal of shards in progress.", default=None)
    storage: tuple[ClaimStatus, ...] = described(
        "Claims that differ from the spec.", default=(), size_max=320, map_key="claim"
    )
    pending_approvals: tuple[PendingApproval, ...] = described(
        "Actions that wait for a person's approval.", default=(), size_max=16, map_key="id"
    )
    replaced_members: tuple[ReplacedMember, ...] = described(
        "Claims given up because their nodes are gone.", default=(), size_max=64, map_key="claim"
    )
    left_members: tuple[LeftMember, ...] = described(
        "Claims that will be deleted since their members have left their shards.",
        default=(),
        size_max=320,
        map_key="claim",
    )
    moved_member: MovedMember | None = described(
        "The member that is given another claim, until it is in sync on that one.", default=None
    )
    accepted_spec: str | None = described(
        "The last spec that the operator accepted, as JSON: it keeps the cluster by that one while"
        " a later one is refused.",
        default=None,
        size_max=262144,
    )
    zookeeper_move: ZooKeeperMove | None = described(
        "The last ZooKeeper server that the operator moved off a node with a majority.",
        default=None,
    )
    ready: str | None = described(
        "Whether it is Ready, and when that was observed: what `kubectl get` shows.",
        default=None,
        size_max=64,
    )
    serving: str | None = described(
        "What clients can do on every shard, and when that was observed.",
        default=None,
        size_max=64,
    )
    looked_at: str | None = described(
        "When the operator last observed it, to within half a minute: older values may no"
        " longer be true.",
        default=None,
        size_max=40,
    )


COLUMNS: Final = (
    # The condition itself would stand there for ever once no operator is left to change it.
    Column("Ready", ".status.ready"),
    STATUS,
    Column("Serving", ".status.serving"),
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
