"""ImagoCluster: brokers, ZooKeeper, ways in, and how changes are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from imago_operator.spec.cluster.backups import BackupPlace, Bootstrap
from imago_operator.spec.cluster.brokers import Brokers
from imago_operator.spec.cluster.listeners import ExternalListener
from imago_operator.spec.cluster.tls import Tls
from imago_operator.spec.cluster.zookeeper import ExternalZooKeeper, RegistryAccess, RegistryTls
from imago_operator.spec.schema.common import (
    USER_PATTERN,
    USER_SIZE_MAX,
    ChildMetadata,
    ObjectName,
    Resources,
)
from imago_operator.spec.schema.fields import Json, described
from imago_operator.spec.schema.values import Duration, Quantity


class PullPolicy(StrEnum):
    """When an image is pulled."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


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
        "Additional environment variables.", default=(), size_max=64, plain_list=True
    )
    volume_mounts: tuple[Json, ...] = described(
        "Additional volume mounts.", default=(), size_max=32, plain_list=True
    )
    security_context: Json = described(
        "Merged into the container's security context.", default=dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperTemplate:
    """What is added to the pods of ZooKeeper."""

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
    volumes: tuple[Json, ...] = described(
        "Additional volumes.", default=(), size_max=32, plain_list=True
    )
    container: ZooKeeperContainer = described(
        "Additions to the server's container.", default=ZooKeeperContainer
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperStorage:
    """Volumes of ZooKeeper."""

    size: Quantity = described(
        "Size of each claim; may grow and never shrinks.", default=Quantity("5Gi")
    )
    storage_class_name: str | None = described(
        "Storage class; the cluster's default unless given.", default=None, size_max=253
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedZooKeeper:
    """A ZooKeeper that the operator runs for this cluster alone."""

    replicas: int = described(
        "Number of servers: 1, 3 or 5. May change: they join and leave one at a time.",
        default=3,
        low=1,
        high=5,
    )
    image: str | None = described(
        "Image of ZooKeeper 3.9 with zkServer.sh, zkCli.sh and bash on its path; unless given, the"
        " official one.",
        default=None,
        size_max=512,
    )
    storage: ZooKeeperStorage = described("Volumes of the servers.", default=ZooKeeperStorage)
    resources: Resources = described("Resource requests and limits of a server.", default=Resources)
    template: ZooKeeperTemplate = described("Additions to the pods.", default=ZooKeeperTemplate)
    authentication: RegistryAccess = described(
        "Who may change the brokers' nodes. Enforcing: their user alone, whose password the"
        " operator makes, in the Secret CLUSTER-zookeeper-user; others read what MetaQ's clients"
        " need, and write the groups of these. Permissive: brokers have that user, and anyone may"
        " change nodes. None: no user. A running cluster is moved step by step, both ways.",
        default=RegistryAccess.ENFORCING,
    )
    tls: RegistryTls = described(
        "Who is served with TLS. Permissive: brokers reach it over TLS alone, and the plain port"
        " stays for MetaQ's clients, which know no other. Enforcing: there is no plain port. None:"
        " nobody. Unless it is None, servers also meet each other over TLS alone. The cluster's"
        " authority signs (spec.tls.ca; without spec.tls one that the operator makes). A running"
        " cluster is moved step by step, both ways.",
        default=RegistryTls.PERMISSIVE,
    )
    allowed_peers: tuple[Json, ...] | None = described(
        "Peers that may reach its plain client port besides the cluster's brokers, as in a"
        " NetworkPolicy; an empty list: nobody. Unless given, everybody: MetaQ's clients find"
        " brokers there.",
        default=None,
        size_max=32,
        plain_list=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeper:
    """The registry: exactly one of managed and external."""

    managed: ManagedZooKeeper | None = described(
        "A ZooKeeper that the operator runs for this cluster.", default=None
    )
    external: ExternalZooKeeper | None = described("An existing ZooKeeper.", default=None)


class AuthorizationType(StrEnum):
    """Whether brokers check who may do what."""

    NONE = "None"
    SIMPLE = "Simple"


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorization:
    """Who may do what."""

    type: AuthorizationType = described(
        "None: anyone who reaches a port may send, read and administer, unless brokers.config sets"
        " acl.enabled. Simple: each request needs a user with the right to it.",
        default=AuthorizationType.NONE,
    )
    super_users: tuple[str, ...] = described(
        "Names of users that may do everything; each needs an ImagoUser in the cluster's"
        " namespace. ImagoUsers of other namespaces may not have these names.",
        default=(),
        size_max=32,
        item_pattern=USER_PATTERN,
        item_size_max=USER_SIZE_MAX,
    )
    token_review: bool | None = described(
        "Whether tokens of service accounts, made for the audience imago, count at the admin"
        " interface, as those of the user ACCOUNT@NAMESPACE. The brokers' account needs the right"
        " to create TokenReviews: tokenReview.clusters of the chart.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedNamespaces:
    """Namespaces whose topics, groups, users and pipelines may refer to this cluster."""

    from_: NamespacesFrom = described(
        "Same: the cluster's own. All: every namespace. Selector: those that match the selector.",
        default=NamespacesFrom.SAME,
    )
    selector: Json | None = described("Label selector of namespaces.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A time in which brokers may be restarted."""

    schedule: str = described(
        "Beginning of the window: five fields of cron.",
        pattern=r"^[-0-9*/,A-Za-z]+( [-0-9*/,A-Za-z]+){4}$",
        size_max=100,
    )
    duration: Duration = described("Length of the window.")
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
        "What a new operator version does to brokers whose spec nobody changed. Hold: wait"
        " for approval or for the next restart. Roll: restart them.",
        default=OnOperatorUpgrade.HOLD,
    )
    windows: tuple[Window, ...] = described(
        "Maintenance windows for mode Window.", default=(), size_max=16, plain_list=True
    )
    max_unavailable_shards: int = described(
        "How many shards may have a member down for a restart at the same time.",
        default=1,
        low=1,
        high=16,
    )
    handover_timeout: Duration = described(
        "How long a handover may take before the operator reports it as late.",
        default=Duration("30s"),
    )
    ready_timeout: Duration = described(
        "How long a pod may take to become ready before the operator reports it as late.",
        default=Duration("10m"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDown:
    """How shards go."""

    drain: DrainPolicy = described(
        "Move: open queues on other shards, then close the old ones to new messages. Seal:"
        " only close them. Both wait until all messages are consumed or expired.",
        default=DrainPolicy.MOVE,
    )
    timeout: Duration = described(
        "How long a drain may take before the operator reports it as late.", default=Duration("24h")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUp:
    """What new shards are for."""

    fill: bool = described(
        "Whether topics get queues on a new shard once it is in sync.", default=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A part that can be left out."""

    enabled: bool = described("Whether the operator creates them.", default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    """What brokers write about themselves."""

    level: str = described(
        "Lowest level to log.", default="info", one_of=("debug", "info", "warning", "error")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """Desired state of the cluster."""

    version: str | None = described(
        "Version of the brokers; unless given, that of the operator.",
        default=None,
        pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$",
        size_max=20,
    )
    feature_level: int | None = described(
        "Highest feature level that brokers may use; unless given, all that they understand. While"
        " it holds them back, the version before can come back; it never takes a level away.",
        default=None,
        low=1,
        high=32768,
    )
    image: str | None = described(
        "Image of the brokers, with tag or digest; unless given, imago/broker of the version.",
        default=None,
        size_max=512,
        size_min=1,
    )
    image_pull_policy: PullPolicy = described(
        "When to pull the image.", default=PullPolicy.IF_NOT_PRESENT
    )
    image_pull_secrets: tuple[ObjectName, ...] = described(
        "Secrets for pulling the image.", default=(), size_max=8, map_key="name"
    )
    hibernated: bool = described(
        "Whether no pod runs: all brokers stop, then a managed ZooKeeper; claims are kept. False"
        " wakes them, ZooKeeper first.",
        default=False,
    )
    brokers: Brokers = described("The brokers.")
    zookeeper: ZooKeeper = described("The registry: exactly one of managed and external.")
    listeners: tuple[ExternalListener, ...] = described(
        "Ways in for clients outside Kubernetes, and how those inside come in. A single one of type"
        " NodePort, or with advertisedHostTemplate, without metaq and perBroker, is told to clients"
        " inside, too; with any other list these have addresses of their own.",
        default=(),
        size_max=6,
        map_key="name",
    )
    tls: Tls | None = described(
        "Certificates of the brokers; without this field no traffic is encrypted.", default=None
    )
    authorization: Authorization = described("Who may do what.", default=Authorization)
    allowed_namespaces: AllowedNamespaces = described(
        "Namespaces whose topics, groups, users and pipelines may refer to this cluster.",
        default=AllowedNamespaces,
    )
    backup: BackupPlace | None = described(
        "Where backups of the cluster go; without this field none are taken.", default=None
    )
    bootstrap: Bootstrap | None = described("How the cluster begins, unless empty.", default=None)
    update_policy: UpdatePolicy = described(
        "When and how the operator restarts brokers.", default=UpdatePolicy
    )
    scale_up: ScaleUp = described("What happens when shards are added.", default=ScaleUp)
    scale_down: ScaleDown = described(
        "How the operator empties shards before it removes them.", default=ScaleDown
    )
    pod_disruption_budget: Switch = described(
        "One PodDisruptionBudget for each shard: draining a node waits until members are in sync.",
        default=Switch,
    )
    network_policy: Switch = described(
        "NetworkPolicies that restrict who may reach which port.", default=Switch
    )
    logging: Logging = described("Logging of the brokers.", default=Logging)
