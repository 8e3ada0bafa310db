"""What the cluster registry holds, as values: brokers, topic placement, name-service state.

A `ClusterView` is one immutable snapshot. Whoever decides reads one snapshot and decides on it;
changes come as a new snapshot, never as an edit of an old one. Constructors refuse values that
cannot be true (`ValueError`), so that whatever reads a foreign payload has one kind of failure.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from imago_broker.model import feature_level
from imago_broker.model.registry import foreign
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.model.registry.listeners import ListenerAddress
    from imago_broker.model.registry.shard import ShardState

SHARD_MAX = 1023
"""The highest shard number: MetaQ broker ids have ten bits."""

REPLICA_MAX = 255
PORT_MAX = 65535
QUEUES_MAX = 65536
ADDRESSES_MAX = 64
"""Of one broker's machine."""
NUMBER_MAX = (1 << 63) - 1

PERM_WRITE = 2
PERM_READ = 4

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class Role(StrEnum):
    """What a broker process is in its shard at the moment."""

    MASTER = "master"
    SLAVE = "slave"
    ELECTING = "electing"
    FENCED = "fenced"


class RegistryConnection(StrEnum):
    """State of the session with the coordinator.

    CONNECTED: writes may succeed. SUSPENDED: no answer for now, our ephemeral nodes may still
    stand. LOST: the session is over, or the lease that it gives has run out; whatever we
    registered may be gone and another may have taken our place. FENCED: another process of the
    same data folder has taken our place while our session lived; nothing of ours is written any
    more.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"
    FENCED = "fenced"


def shard_name(shard: int) -> str:
    """Name of shard k everywhere: `shard-k`."""
    return f"shard-{shard}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRecord:
    """One registered broker process, as others reach it. Ports are TCP; 0 means "not served"."""

    shard: int
    uuid: str
    """Identity of the data folder; survives restarts, dies with the disk."""
    host: str
    """Address by which other brokers reach it, and clients where `client_host` is empty."""
    metaq: int
    rocketmq: int
    fast: int
    replication: int
    admin: int
    broker_name: str
    """RocketMQ's brokerName: prefix + shard name."""
    role: Role = Role.MASTER
    replica: int = -1
    """Number of this data folder in its shard, never reused; -1 until the registry gave one."""
    slot: int = -1
    """Place in the shard that the configuration gives this broker, whatever its data folder;
    -1: none."""
    incarnation: int = 0
    """Transaction id of the registration: one life of the process. 0 until registered."""
    unclean: bool = False
    """The folder was not closed in order and the machine was started again since: what was
    written and not synced may be gone."""
    log_epoch: int = 0
    """Epoch of the last record in the log when the record was made."""
    log_end: int = 0
    """Log offset behind that record."""
    damaged: bool = False
    """Whether a part of the log is out of service."""
    full: bool = False
    """Whether its disk has no room for messages."""
    crowded: bool = False
    """Whether its disk is so full that old messages would have to go: above
    `store.disk_force_ratio`."""
    epoch_seen: int = 0
    """Highest epoch that the member had promised itself to when the record was made."""
    problem: str = ""
    """What keeps this member from its part for good; "" while nothing is known."""
    zone: str = ""
    """Rack or zone of the machine; "" where nobody said."""
    addresses: tuple[str, ...] = ()
    """Addresses of its machine, from which it may call others: what `host` stands for may be known
    late, and may be another one of several."""
    client_host: str = ""
    """Address for clients where it is not `host`."""
    client_metaq: int = 0
    """Port for MetaQ clients where it is not `metaq`."""
    client_rocketmq: int = 0
    """Port for RocketMQ clients where it is not `rocketmq`."""
    grpc: int = 0
    """Port of RocketMQ 5's SDKs."""
    client_grpc: int = 0
    """Port for them where it is not `grpc`."""
    listeners: tuple[ListenerAddress, ...] = ()
    """Its further listeners."""
    metaq_listener: str = ""
    """Which of them MetaQ's tree names; "": none."""
    feature_level: int = feature_level.FIRST
    """The highest that it understands."""

    def __post_init__(self) -> None:
        _check_range("shard", self.shard, 0, SHARD_MAX)
        _check_range("replica", self.replica, -1, REPLICA_MAX)
        _check_range("slot", self.slot, -1, REPLICA_MAX)
        for name in (
            "metaq",
            "rocketmq",
            "fast",
            "replication",
            "admin",
            "client_metaq",
            "client_rocketmq",
            "grpc",
            "client_grpc",
        ):
            _check_range(f"{name} port", getattr(self, name), 0, PORT_MAX)
        for name in ("uuid", "host", "broker_name"):
            _check_text(name, getattr(self, name))
        for name in ("log_epoch", "log_end", "epoch_seen"):
            _check_range(name, getattr(self, name), 0, NUMBER_MAX)
        _check_range(
            "feature level", self.feature_level, feature_level.FIRST, feature_level.LEVEL_MAX
        )
        for name in ("zone", "client_host", "problem"):
            if text := getattr(self, name):
                _check_text(name, text)
        _check_range("addresses", len(self.addresses), 0, ADDRESSES_MAX)
        for address in self.addresses:
            _check_text("address", address)
        for listener in self.listeners:
            _check_listener(listener)

    def listener(self, name: str) -> ListenerAddress | None:
        """Return one of its further listeners; None: it has none of that name."""
        return next((each for each in self.listeners if each.name == name), None)

    @property
    def rocketmq_address(self) -> str:
        """The address for RocketMQ clients."""
        return f"{self.client_host or self.host}:{self.client_rocketmq or self.rocketmq}"

    @property
    def grpc_address(self) -> str:
        """The address for RocketMQ 5's SDKs; empty: they are not served."""
        port = self.client_grpc or self.grpc
        return f"{self.client_host or self.host}:{port}" if port else ""

    @property
    def replication_address(self) -> str:
        return f"{self.host}:{self.replication}"

    @property
    def metaq_url(self) -> str:
        """The address for MetaQ clients, in the form of MetaQ's tree: `meta://host:port`."""
        told = self.listener(self.metaq_listener)
        if told is not None and told.host:
            return f"meta://{told.host}:{told.told.metaq}"
        return f"meta://{self.client_host or self.host}:{self.client_metaq or self.metaq}"


class ShardQueues(NamedTuple):
    """Queues of one topic on one shard. Queue ids are 0 … n-1 for writers and for readers."""

    write: int
    read: int
    perm: int = PERM_READ | PERM_WRITE


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlacement:
    """Where the queues of a topic are. Each shard publishes its own entry of `shards`."""

    name: str
    shards: Mapping[int, ShardQueues]
    sys_flag: int = 0
    order: bool = False
    dual: bool = True
    """False: not offered to MetaQ clients (system topics, topics that opted out)."""
    attributes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        _check_text("topic", self.name)
        for shard, queues in self.shards.items():
            _check_range("shard", shard, 0, SHARD_MAX)
            _check_range("write queues", queues.write, 0, QUEUES_MAX)
            _check_range("read queues", queues.read, 0, QUEUES_MAX)
            _check_range("perm", queues.perm, 0, 15)

    def only(self, shard: int) -> TopicPlacement:
        """The same topic with the entry of one shard, as that shard publishes it."""
        return replace(self, shards={shard: self.shards[shard]})


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignBroker:
    """A broker that is not ours and registered with our name service (RocketMQ REGISTER_BROKER).

    It lives as long as the session of the name service that holds its connection.
    """

    cluster: str
    broker_name: str
    broker_id: int
    """RocketMQ: 0 = master."""
    address: str
    ha_address: str = ""
    zone: str = ""
    data_version: Mapping[str, Json] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, Mapping[str, Json]] = field(default_factory=lambda: MappingProxyType({}))
    """RocketMQ's topicConfigTable: topic name to TopicConfig members."""
    filter_servers: tuple[str, ...] = ()
    acting_master: bool = False

    def __post_init__(self) -> None:
        for name in ("cluster", "broker_name", "address"):
            foreign.check_word(name, getattr(self, name))
            _check_text(name, getattr(self, name))
        foreign.check_word("ha_address", self.ha_address)
        foreign.check_word("zone", self.zone)
        foreign.check_filter_servers(self.filter_servers)
        foreign.check_topics(self.topics)
        _check_range("broker_id", self.broker_id, 0, NUMBER_MAX)

    @property
    def key(self) -> tuple[str, str, int]:
        return (self.cluster, self.broker_name, self.broker_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """One snapshot of the registry, as last read."""

    cluster: str
    cluster_id: str = ""
    """Made once per cluster; "" before the first read."""
    feature_level: int = feature_level.FIRST
    """What all of its brokers understand, and may use."""
    version: int = 0
    """Grows with every snapshot that differs from the one before. Local to this process."""
    brokers: tuple[BrokerRecord, ...] = ()
    """Live brokers, sorted by (shard, replica)."""
    states: Mapping[int, ShardState] = field(default_factory=lambda: MappingProxyType({}))
    """Leadership of each shard that has ever had one."""
    known: Mapping[int, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    """Replica numbers of all data folders that a shard ever had, by uuid."""
    cordoned: frozenset[int] = frozenset()
    """Shards that take no new topics."""
    draining: frozenset[int] = frozenset()
    """Shards whose topics are being moved to others."""
    staying: frozenset[int] = frozenset()
    """Those among them whose topics are only closed, and opened nowhere else."""
    drained: frozenset[int] = frozenset()
    """Shards on which nothing of value is left."""
    operator_epoch: int = 0
    """Fence of the cluster's operator: calls that carry a lower number are refused."""
    topics: Mapping[str, TopicPlacement] = field(default_factory=lambda: MappingProxyType({}))
    kv: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    """RocketMQ's KV configuration: namespace to key to value."""
    wiped: frozenset[str] = frozenset()
    """Broker names whose write permission was wiped from routes."""
    foreign: tuple[ForeignBroker, ...] = ()
    refused: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Nodes whose content could not be understood, with the reason: their last good content
    is still in this view."""
    away_since: Mapping[int, int] = field(
        default_factory=lambda: MappingProxyType({}), compare=False
    )
    """When this process first saw a shard without its master, of those in `away`, epoch ms."""

    def members(self, shard: int) -> tuple[BrokerRecord, ...]:
        """Live brokers of a shard, by replica number."""
        return tuple(broker for broker in self.brokers if broker.shard == shard)

    def members_known(self, shard: int) -> Mapping[str, int]:
        """Replica number of every data folder that the shard ever had, alive or not, by uuid."""
        return self.known.get(shard, MappingProxyType({}))

    def leads(self, broker: BrokerRecord) -> bool:
        """Whether this life of a broker leads its shard."""
        master, own = self.master(broker.shard), (broker.uuid, broker.incarnation)
        return master is not None and (master.uuid, master.incarnation) == own

    def master(self, shard: int) -> BrokerRecord | None:
        """The live master of a shard, or None: its leader as stored, while registered.

        The shard's state decides; a shard without one has brokers that say it of themselves.
        """
        state, members = self.states.get(shard), self.members(shard)
        if state is None:
            return next((broker for broker in members if broker.role is Role.MASTER), None)
        return next((b for b in members if (b.uuid, b.incarnation) == state.leader), None)

    def away(self) -> tuple[int, ...]:
        """Shards that hold messages, or may, and that have no master now; ascending.

        One that is drained has left: nobody waits for what it had.
        """
        there = {*self.shards(), *self.known} - self.drained
        return tuple(sorted(shard for shard in there if self.master(shard) is None))

    def shards(self) -> tuple[int, ...]:
        """Numbers of the shards that have a live broker, ascending."""
        return tuple(sorted({broker.shard for broker in self.brokers}))


def _check_range(name: str, value: object, low: int, high: int) -> None:
    # bool is an int to Python and never one in a payload.
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise WrongError(f"{name}: {value!r}, must be a number from {low} to {high}")


def _check_listener(listener: ListenerAddress) -> None:
    _check_text("listener", listener.name)
    if listener.host:
        _check_text("listener's host", listener.host)
    for ports in (listener.told, listener.bound):
        for name in ("metaq", "rocketmq", "grpc"):
            _check_range(f"{name} port", getattr(ports, name), 0, PORT_MAX)


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value or len(value) > 1024 or not value.isprintable():
        raise WrongError(f"{name}: {value!r:.80}, must be 1 to 1024 printable characters")
