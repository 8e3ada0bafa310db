"""Actual state, preconditions and status: plain values.

`Observed` is one look at a cluster. A field that could not be read is None or absent, never a
guess: where information is missing, only what adds something may be done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from imago_operator.spec.cluster.cluster_status import ClusterStatus, DeletedForRoom
from imago_operator.spec.cluster.zookeeper import QuorumTls, RegistryAccess, RegistryTls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.broker_rules.keys import Scalar

STATEFUL_SET: Final = "StatefulSet"
STUCK: Final = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "Unschedulable",
    }
)
"""Why a pod may never run by itself: reasons of its containers, or of the scheduler."""
CANNOT_BEGIN: Final = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)
"""Those that say that something is missing which the container needs."""
NO_IMAGE: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName"})
"""Those that say that there is no image to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedObject:
    """An object that belongs to the cluster: owned by its uid."""

    kind: str
    name: str
    uid: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    shard: int | None = None
    replicas: int | None = None
    """Of a StatefulSet: what its spec says."""
    managed: tuple[tuple[str, Mapping[str, Any]], ...] | None = None
    """Who says which fields, as Kubernetes keeps account of it; None: not known."""
    live: Mapping[str, Any] = field(default_factory=dict)
    """The object as it is."""
    spared: frozenset[str] = frozenset()
    """Fields that are not put back now, whatever changed them."""
    contested: frozenset[str] = frozenset()
    """Fields that were put back not long ago: who changes them again fights for them."""
    deleting: bool = False

    @property
    def template(self) -> Mapping[str, Any]:
        """Of a StatefulSet: what its pods are made of."""
        found: Mapping[str, Any] = self.live.get("spec", {}).get("template", {})
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartCheck:
    """A broker's answer to whether it may be restarted now."""

    safe: bool
    risks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Whether a broker says that clients of its shard are refused."""

    why: str
    """Empty: they are served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What the broker in a pod reports. Its identity is on its disk, not in its name."""

    uuid: str
    shard: int
    role: str
    """master, slave, electing or fenced."""
    settled: bool
    version: str
    config: Mapping[str, Scalar] = field(default_factory=dict)
    """Settings that may change while it runs, as they are now."""
    restart: RestartCheck | None = None
    caught_up: bool = False
    full: bool = False
    """Whether its disk is full: messages are refused."""
    used: float | None = None
    """Share of its disk that is used; None: it does not say."""
    bucket_away: bool = False
    """Whether it does not reach what has the old messages."""
    fenced: bool = False
    """Whether it keeps its log and serves nobody, since somebody has asked for that."""
    puts: Refusal | None = None
    gets: Refusal | None = None
    """None: the broker does not say."""
    log: tuple[int, int] = (0, 0)
    """Epoch and end of its log: of two, the greater has more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod, found by its owner's uid and its name, never by labels of a template."""

    name: str
    uid: str
    shard: int | None
    """None: a server of ZooKeeper."""
    ordinal: int
    annotations: Mapping[str, str] = field(default_factory=dict)
    node: str | None = None
    host: str = ""
    """Address of its node; empty: it is on none."""
    ready: bool = False
    turned: datetime | None = None
    """Since when it is ready, or is not; None: not known."""
    deleting: bool = False
    waiting: str | None = None
    """Reason why the server's container waits, or why the pod is not scheduled."""
    unscheduled: str = ""
    """What the scheduler says of a pod that it finds no node for."""
    missing_image: str = ""
    """The image that a container of it waits for and that cannot be had; empty: none."""
    failure: str = ""
    """How its container ended last or why it cannot begin, in its own words; empty: it runs."""
    role_label: str | None = None
    edited: bool = False
    """Whether it was made of a template that somebody had edited."""
    config: str = ""
    """The ConfigMap that it was made with; empty: of no broker, or not known."""
    certified: bool = False
    """Whether it has the files of its shard's certificate: its broker serves TLS."""
    ports: frozenset[str] | None = None
    """Names of its broker's ports; None: not known."""
    registry_access: RegistryAccess = RegistryAccess.NONE
    """Who may change the nodes of its broker in a managed ZooKeeper, as that was told."""
    registry_over_tls: bool = False
    """Whether its broker reaches ZooKeeper over TLS, as that was told."""
    registry_tls: RegistryTls = RegistryTls.NONE
    """Of a server of ZooKeeper: which ports it has for clients, as it was told."""
    quorum_tls: QuorumTls = QuorumTls.NONE
    """Of a server of ZooKeeper: how it meets the others, as it was told."""
    broker: Probe | None = None
    """None: no answer."""

    @property
    def stuck(self) -> bool:
        """Whether it does not run, and may never do so by itself."""
        return self.waiting in STUCK and self.broker is None

    @property
    def serving(self) -> bool:
        return self.ready and not self.deleting

    @property
    def fenced(self) -> bool:
        """Whether its broker keeps its log and serves nobody."""
        return self.broker is not None and self.broker.fenced


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim of a broker."""

    name: str
    uid: str
    shard: int
    """-1: of a server of ZooKeeper."""
    ordinal: int
    requested: int
    """Bytes asked for."""
    capacity: int | None = None
    phase: str = "Bound"
    storage_class: str | None = None
    attributes_class: str | None = None
    """VolumeAttributesClass asked for."""
    attributes_asked: str | None = None
    """The one that we asked for last: a Kubernetes that knows none drops it without a word."""
    conditions: frozenset[str] = frozenset()
    """FileSystemResizePending, Resizing …"""
    grown: datetime | None = None
    """When we last had it grow because its disk was full; None: never."""
    node: str | None = None
    """Node that the volume is on, where it cannot be elsewhere."""
    owned: bool = False
    """Whether it goes with the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeNode:
    """One node."""

    name: str
    rack: str = ""
    """Value of the rack's label; empty: unknown."""
    labels: Mapping[str, str] = field(default_factory=dict)
    open: bool = True
    """Whether any pod may be put there: ready, not cordoned, no taint that keeps pods off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardBroker:
    """One live broker, as the registry has it."""

    uuid: str
    in_sync: bool
    lag_bytes: int | None = None
    damaged: bool = False
    """Whether a part of its log is out of service."""
    problem: str = ""
    """What it cannot do, in its own words or its master's; empty: nothing."""
    feature_level: int = 1
    """The highest that it understands; 1: it says nothing of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One shard, as the registry has it."""

    id: int
    master: str | None
    epoch: int | None
    members: tuple[ShardBroker, ...] = ()
    cordoned: bool = False
    drained: bool = False
    waits_for: str = ""
    """What the brokers themselves say it waits for."""
    deleted_for_room: DeletedForRoom | None = None
    """What went last before it had expired; None: nothing, or its master does not say."""

    @property
    def in_sync(self) -> frozenset[str]:
        """Live members in sync, by uuid."""
        return frozenset(member.uuid for member in self.members if member.in_sync)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryView:
    """The answer of any broker to GET /admin/v1/cluster."""

    cluster_id: str | None
    connected: bool
    operator_epoch: int = 0
    feature_level: int | None = None
    """What all brokers may use; None: those that were asked know nothing of it."""
    shards: Mapping[int, Shard] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingContent:
    """What a shard that is to go still has."""

    writable_queues: int
    unread_messages: int
    """Not yet read by every group that reads the topic, and not expired."""

    @property
    def nothing(self) -> bool:
        return self.writable_queues == 0 and self.unread_messages == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNeeds:
    """What an ImagoTopic of the cluster asks of shards."""

    name: str
    count: int | None = None
    shard_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One look at everything that belongs to a cluster."""

    synced: bool
    """Whether lists and watches of Kubernetes are complete."""
    children: tuple[OwnedObject, ...] = ()
    pods: tuple[Pod, ...] = ()
    claims: tuple[Claim, ...] = ()
    server_claims: tuple[Claim, ...] = ()
    """Those of ZooKeeper's servers."""
    nodes: Mapping[str, KubeNode] | None = None
    """None: not allowed to look, or not read."""
    expandable: Mapping[str, bool] = field(default_factory=dict)
    storage_classes: frozenset[str] | None = None
    """All that there are; None: not allowed to look."""
    """Storage classes by name, and whether their volumes grow; "" is the default one."""
    registry: RegistryView | None = None
    """None: no broker answered."""
    remaining: Mapping[int, RemainingContent] = field(default_factory=dict)
    """Asked only of shards that are to go."""
    topics: tuple[TopicNeeds, ...] = ()
    kept_empty: frozenset[int] = frozenset()
    """Shards that a person's ImagoRebalance has emptied, or is about to."""
    registry_user: bool | None = None
    """Whether there is a Secret of the brokers' user in a managed ZooKeeper; None: not known."""
    registry_user_refused: bool = False
    """Whether the operator may not read that Secret."""
    registry_tls_refused: bool = False
    """Whether the operator may not read the Secrets of a managed ZooKeeper's certificate."""
    window_open: bool = True
    """Whether now lies in a window of the update policy; True where there are none."""
    window_problem: str = ""
    """What is wrong with windows of the update policy; those are never open."""
    certificates: Any = None
    """`certificates.state.SeenCertificates`; None: not read, for the cluster has none."""
    status: ClusterStatus = field(default_factory=ClusterStatus)
    """Our own status: the operator's memory between looks."""

    def child(self, kind: str, name: str) -> OwnedObject | None:
        found = (c for c in self.children if c.kind == kind and c.name == name)
        return next(found, None)

    def sets(self) -> dict[int, OwnedObject]:
        """StatefulSets of shards, by shard."""
        return {c.shard: c for c in self.children if c.kind == STATEFUL_SET and c.shard is not None}

    def pods_of(self, shard: int | None) -> tuple[Pod, ...]:
        return tuple(sorted((p for p in self.pods if p.shard == shard), key=lambda p: p.ordinal))

    def claims_of(self, shard: int) -> tuple[Claim, ...]:
        return tuple(c for c in self.claims if c.shard == shard)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWait:
    """What has to happen before it goes on."""

    key: str
    """The same as long as it is the same wait: its deadline runs from when it began."""
    message: str
    deadline_s: float | None = None
    """After this it counts as late; it is waited for all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionFinding:
    """Something to be said in a condition."""

    type: str
    holds: bool | None
    """None: nobody can say."""
    reason: str
    message: str


def parsed(moment: str) -> datetime:
    """Return a moment of a status; it was written by `written`."""
    return datetime.fromisoformat(moment)


def written(moment: datetime) -> str:
    """Return a moment as a status has it: RFC 3339, whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
