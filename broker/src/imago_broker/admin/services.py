"""What the admin interface reads and changes, handed over by the assembly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from imago_broker.config import BrokerConfig
    from imago_broker.config.changes import Changes
    from imago_broker.model.topics import TopicConfig
    from imago_broker.ports import (
        Clock,
        MetaqConsumers,
        MetaqSlaveControl,
        PipelineRecords,
        Registry,
        ShardControl,
        SharedMarks,
    )
    from imago_broker.processors.metaq.peer import Peer
    from imago_broker.service.access import AccessService
    from imago_broker.service.groups import GroupService
    from imago_broker.service.metaq_transactions.service import MetaqTransactions
    from imago_broker.service.offsets import ConsumerOffsets
    from imago_broker.service.throttling import QuotaService
    from imago_broker.service.topics import TopicService
    from imago_log import MessageStore
    from imago_log.results import StoreHealth
    from imago_wire.text.items import Item


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer of a group, as its heartbeat said."""

    client_id: str
    address: str
    language: str
    version: int


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminServices:
    """Everything that a route may use. Callables are cheap and answer for this moment."""

    current_config: Callable[[], BrokerConfig]
    replace_config: Callable[[BrokerConfig], None]
    """Put changed dynamic settings in force."""
    topics: TopicService
    groups: GroupService
    access: AccessService
    quotas: QuotaService
    offsets: ConsumerOffsets
    reset_offsets: Callable[[str, str, Mapping[int, int]], None]
    """(group, topic, queue to offset): set them, and have live consumers go on from there."""
    metaq_transactions: MetaqTransactions
    store: MessageStore
    coordinator: Registry
    marks: SharedMarks
    pipelines: PipelineRecords
    metaq_consumers: MetaqConsumers
    clock: Clock
    peer_tls: Callable[[], ssl.SSLContext | None]
    """With what the admin ports of other brokers are asked; None: without TLS."""
    registry: CollectorRegistry
    control: ShardControl
    uuid: str
    replica: Callable[[], int]
    health: Callable[[], StoreHealth]
    problems: Callable[[], list[str]]
    """Why the broker is not ready; empty when it is."""
    write_problems: Callable[[], list[str]]
    """Why a broker that is ready takes no messages; empty when it does."""
    connections: Callable[[], Mapping[str, int]]
    counters: Callable[[], Counters]
    replicated: Callable[[], Awaitable[str]]
    """Wait until every in-sync member has the log so far; returns why not, or ""."""
    members: Callable[[str], list[GroupMember]]
    """Consumers of a group that are connected now."""
    member_groups: Callable[[], list[str]]
    """Groups that have a connected consumer."""
    metaq: MetaqManagement
    on_topic_made: list[Callable[[TopicConfig, str], None]]
    """Told each topic that a send has made here, and the template that it is made of."""
    version: str
    not_compiled: Sequence[str] | None
    """Hot modules and names that the plain Python twins serve; None: all, by `IMAGO_PURE=1`."""

    @property
    def config(self) -> BrokerConfig:
        """The configuration in force, dynamic changes included."""
        return self.current_config()
