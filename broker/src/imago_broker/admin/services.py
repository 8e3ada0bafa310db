"""What the admin interface reads and changes, handed over by the assembly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from imago_broker.shard_work.services import ShardServices

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from imago_broker.config import BrokerConfig
    from imago_broker.config.changes import Changes
    from imago_broker.core.figures.day_history import DayHistory
    from imago_broker.ports import MetaqSlaveControl, PipelineRecords
    from imago_broker.processors.metaq.peer import Peer
    from imago_broker.service.access.throttling import QuotaService
    from imago_broker.service.delays.waiting_messages import WaitingMessages
    from imago_broker.service.groups.locks import QueueLocks
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.transactions.service import TransactionService
    from imago_broker.shard_work.work import ShardWork
    from imago_log.results import StoreHealth
    from imago_wire.remoting.texts.message_ids import UniqueKeys
    from imago_wire.text.items import Item


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer of a group, as its heartbeat said."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(slots=True, kw_only=True)
class ClientConnection:
    """One connection of a client to this broker, and what is known of the client."""

    name: str
    """The name that the client gives itself; where it gives none, its address."""
    peer: str
    protocol: str
    tls: bool
    user: str
    """Who it has proved to be; empty: nobody has asked."""
    language: str = ""
    version: str = ""
    producer_groups: list[str] = field(default_factory=list)
    consumer_groups: list[str] = field(default_factory=list)
    topics: Sequence[Collection[str]] = ()
    """What it reads, as each of its groups has it; of RocketMQ 5's SDKs also what it sends to."""
    clients: Sequence[str] = ()
    """The names of all clients of this connection."""

    def is_named(self, name: str) -> bool:
        """Whether this is the name of the client, or the address of the connection."""
        return name in (self.name, self.peer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Totals since start."""

    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaqManagement:
    """What MetaQ's own management asks of a broker."""

    stats: Callable[[str], Awaitable[bytes]] | None
    """What `stats` answers to an item; None: the text protocol is not served."""
    run: Callable[[Peer, Sequence[Item], int], int] | None
    """Works on scanned commands of a peer."""
    config_file: Callable[[], bytes]
    """The configuration in force, in the form of server.ini."""
    reload: Callable[[], Awaitable[Changes]]
    """Read the configuration again; ValueError, RequestError: nothing was changed."""
    slave: MetaqSlaveControl | None
    """The copying of an original master; None: this broker is nobody's slave."""
    stop: Callable[[], None] | None
    """Begin an orderly stop of the process; None: the broker is somebody's part."""


class FenceControl(Protocol):
    """The mark in a member's data folder that it is to serve nobody."""

    def said(self) -> Mapping[str, Any] | None: ...

    def set(self, why: str) -> None: ...

    def lift(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminServices(ShardServices):
    """Everything that a route may use."""

    replace_config: Callable[[BrokerConfig], None]
    """Put changed dynamic settings in force."""
    work: ShardWork
    """What this shard does with the others."""
    quotas: QuotaService
    reset_offsets: Callable[[str, str, Mapping[int, int]], None]
    """(group, topic, queue to offset): set them, and have live consumers go on from there."""
    pipelines: PipelineRecords
    registry: CollectorRegistry
    uuid: str
    replica: Callable[[], int]
    health: Callable[[], StoreHealth]
    problems: Callable[[], list[str]]
    """Why the broker is not ready; empty when it is."""
    write_problems: Callable[[], list[str]]
    """Why a broker that is ready takes no messages; empty when it does."""
    refused: Callable[[], tuple[list[str], list[str]]]
    """Why puts, and gets, of the shard are refused now; both empty: they are served."""
    connections: Callable[[], Mapping[str, int]]
    counters: Callable[[], Counters]
    replicated: Callable[[], Awaitable[str]]
    """Wait until every in-sync member has the log so far; returns why not, or ""."""
    members: Callable[[str], list[GroupMember]]
    """Consumers of a group that are connected now."""
    readers: Callable[[str], Awaitable[Mapping[tuple[str, int], str] | None]]
    """Which connected consumer of a group reads which queue of this shard; None: not all tell."""
    tier: Callable[[], Mapping[str, Any] | None]
    """How old files of the log are in a bucket; None: they are in none."""
    member_groups: Callable[[], list[str]]
    """Groups that have a connected consumer."""
    clients: Callable[[], Awaitable[list[ClientConnection]]]
    """All connections of clients to this broker."""
    close_client: Callable[[str], Awaitable[int]]
    """Close the connections of the client of a name; returns how many."""
    day: DayHistory
    """What the figures of this broker were in the last day."""
    messages: MessageService
    unique_keys: UniqueKeys
    locks: QueueLocks
    waiting: WaitingMessages
    transactions: TransactionService
    metaq: MetaqManagement
    fence: FenceControl
    version: str
    not_compiled: Sequence[str] | None
    """Hot modules and names that the plain Python twins serve; None: all, by `IMAGO_PURE=1`."""
