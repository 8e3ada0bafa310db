"""ImagoCluster: brokers, ZooKeeper, ways in, and how changes are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from imago_operator.spec.brokers import Brokers, ChildTemplate
from imago_operator.spec.common import (
    ChildMetadata,
    ObjectName,
    Resources,
)
from imago_operator.spec.fields import Json, described
from imago_operator.spec.values import Duration, Quantity


class PullPolicy(StrEnum):
    """When an image is pulled."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class ListenerType(StrEnum):
    """How clients outside of the Kubernetes cluster come in."""

    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class NamespacesFrom(StrEnum):
    """Which namespaces may refer to the cluster."""

    SAME = "Same"
    ALL = "All"
    SELECTOR = "Selector"


class UpdateMode(StrEnum):
    """When edits of the spec restart brokers."""

    AUTOMATIC = "Automatic"
    WINDOW = "Window"
    MANUAL = "Manual"


class OnOperatorUpgrade(StrEnum):
    """What a new operator does to brokers whose spec nobody changed."""

    HOLD = "Hold"
    ROLL = "Roll"


class DrainPolicy(StrEnum):
    """How a shard that goes is emptied."""

    MOVE = "Move"
    SEAL = "Seal"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperContainer:
    """What is added to the container of a ZooKeeper server."""

    env: tuple[Json, ...] = described(
        "Further environment.", default=(), size_max=64, plain_list=True
    )
    security_context: Json = described("Merged into its security context.", default=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperTemplate:
    """What is added to the pods of ZooKeeper."""

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
    container: ZooKeeperContainer = described(
        "What is added to the server's container.", default=ZooKeeperContainer
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperStorage:
    """Volumes of ZooKeeper."""

    size: Quantity = described("Size of each claim.", default=Quantity("5Gi"))
    storage_class_name: str | None = described(
        "Storage class; the cluster's default unless given.", default=None, size_max=253
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedZooKeeper:
    """A ZooKeeper that the operator runs for this cluster alone."""

    replicas: int = described("Servers: 1, 3 or 5. Immutable.", default=3, low=1, high=5)
    image: str | None = described(
        "Image with zkServer.sh and bash on its path; ZooKeeper's official one unless given.",
        default=None,
        size_max=512,
    )
    storage: ZooKeeperStorage = described("Its volumes.", default=ZooKeeperStorage)
    resources: Resources = described("What a server asks for and may use.", default=Resources)
    template: ZooKeeperTemplate = described("What is added to pods.", default=ZooKeeperTemplate)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalZooKeeper:
    """A ZooKeeper that is there already."""

    servers: tuple[str, ...] = described(
        "Its servers, as host:port.",
        size_min=1,
        size_max=15,
        item_pattern=r"^[A-Za-z0-9.-]+:[0-9]{1,5}$",
        item_size_max=260,
    )
    chroot: str = described(
        "Path below which everything lies, clients' part included. Immutable.",
        default="",
        pattern=r"^(/[A-Za-z0-9_.-]+)*$",
        size_max=200,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeper:
    """The registry: exactly one of managed and external."""

    managed: ManagedZooKeeper | None = described("Have the operator run one.", default=None)
    external: ExternalZooKeeper | None = described("Use an existing one.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalListener:
    """A way in from outside of the Kubernetes cluster."""

    name: str = described("Its name.", pattern=r"^[a-z][a-z0-9]{0,10}$", size_max=11)
    type: ListenerType = described(
        "NodePort: on the nodes' addresses. LoadBalancer: a load balancer for each broker."
    )
    advertised_host_template: str | None = described(
        "Address that brokers tell their clients; knows {shard}, {ordinal}, {pod} and"
        " {namespace}. With NodePort the address of the pod's node unless given.",
        default=None,
        pattern=r"^([A-Za-z0-9.-]|\{(shard|ordinal|pod|namespace)\})+$",
        size_max=253,
    )
    first_node_port: int | None = described(
        "With NodePort: first port on the nodes, a multiple of 10. Shard s has twenty ports from"
        " first + 20 s on: its member m has + m for MetaQ, + 10 + m for RocketMQ. The name service"
        " is at first + 9, a managed ZooKeeper at first + 8.",
        default=None,
        low=1024,
        high=65535,
    )
    service_template: ChildTemplate = described(
        "What is added to the Services.", default=ChildTemplate
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedNamespaces:
    """Which namespaces may have topics, groups and pipelines of this cluster."""

    from_: NamespacesFrom = described(
        "Same: that of the cluster. All: every one. Selector: those with the labels.",
        default=NamespacesFrom.SAME,
    )
    selector: Json | None = described("Label selector of namespaces.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A time in which brokers may be restarted."""

    schedule: str = described(
        "When it begins: five fields of cron.",
        pattern=r"^[-0-9*/,A-Za-z]+( [-0-9*/,A-Za-z]+){4}$",
        size_max=100,
    )
    duration: Duration = described("How long it lasts.")
    time_zone: str = described(
        "Time zone of the schedule, by its IANA name.",
        default="UTC",
        size_max=64,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePolicy:
    """When and how brokers are restarted."""

    mode: UpdateMode = described(
        "Whether edits of the spec restart brokers at once, in a window, or after approval.",
        default=UpdateMode.AUTOMATIC,
    )
    on_operator_upgrade: OnOperatorUpgrade = described(
        "What a new operator does to brokers whose spec nobody changed: Hold waits for approval"
        " or for the next restart.",
        default=OnOperatorUpgrade.HOLD,
    )
    windows: tuple[Window, ...] = described(
        "Times for mode Window.", default=(), size_max=16, plain_list=True
    )
    max_unavailable_shards: int = described(
        "How many shards may have a member down for a restart at one time.",
        default=1,
        low=1,
        high=16,
    )
    handover_timeout: Duration = described(
        "How long a handover may take before it counts as late.", default=Duration("30s")
    )
    ready_timeout: Duration = described(
        "How long a pod may take to be ready before it counts as late.",
        default=Duration("10m"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDown:
    """How shards go."""

    drain: DrainPolicy = described(
        "Move: queues are opened on other shards, then the old ones take no more messages."
        " Seal: they just take no more. Both wait until all is consumed or expired.",
        default=DrainPolicy.MOVE,
    )
    timeout: Duration = described(
        "How long a drain may take before it counts as late.", default=Duration("24h")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUp:
    """What new shards are for."""

    fill: bool = described(
        "Whether topics get queues on a new shard as soon as it is in sync.", default=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A part that can be left out."""

    enabled: bool = described("Whether it is made.", default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    """What brokers write about themselves."""

    level: str = described(
        "From which level on.", default="info", one_of=("debug", "info", "warning", "error")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """What the cluster is to be."""

    version: str | None = described(
        "Version of the brokers; that of the operator unless given.",
        default=None,
        pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$",
        size_max=20,
    )
    image: str | None = described(
        "Image of the brokers, with tag or digest; imago/broker of the version unless given.",
        default=None,
        size_max=512,
        size_min=1,
    )
    image_pull_policy: PullPolicy = described(
        "When it is pulled.", default=PullPolicy.IF_NOT_PRESENT
    )
    image_pull_secrets: tuple[ObjectName, ...] = described(
        "Secrets to pull it with.", default=(), size_max=8, map_key="name"
    )
    brokers: Brokers = described("The brokers.")
    zookeeper: ZooKeeper = described("The registry: exactly one of managed and external.")
    listeners: tuple[ExternalListener, ...] = described(
        "Ways in from outside. Inside, the Services of the cluster are always there.",
        default=(),
        size_max=1,
        map_key="name",
    )
    allowed_namespaces: AllowedNamespaces = described(
        "Which namespaces may have topics, groups and pipelines of this cluster.",
        default=AllowedNamespaces,
    )
    update_policy: UpdatePolicy = described(
        "When and how brokers are restarted.", default=UpdatePolicy
    )
    scale_up: ScaleUp = described("What new shards are for.", default=ScaleUp)
    scale_down: ScaleDown = described("How shards go.", default=ScaleDown)
    pod_disruption_budget: Switch = described(
        "One PodDisruptionBudget for each shard: a drain of nodes waits until members are in sync.",
        default=Switch,
    )
    network_policy: Switch = described("NetworkPolicies: who may reach which port.", default=Switch)
    logging: Logging = described("What brokers write about themselves.", default=Logging)
