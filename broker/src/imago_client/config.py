"""Frozen settings of clients, producers and consumers, checked on construction."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from imago_client.checks import (
    BODY_BYTES_MAX,
    check_fields,
    check_kind,
    check_positive,
    check_whole,
    names_of,
    refuse,
)
from imago_client.credentials import check_user
from imago_client.errors import UsageError
from imago_client.naming import check_name
from imago_client.observing.interceptors import Interceptor
from imago_client.tls import check_tls

if TYPE_CHECKING:
    from collections.abc import Sequence


def parse_addresses(text: str, what: str = "bootstrap") -> tuple[str, ...]:
    """Return the `host:port` addresses of a list joined with commas or semicolons.

    `what` is what they are called in an error.
    """
    if not isinstance(text, str):
        raise UsageError(f"{what}: {text!r}, must be a string, host:port[,host:port…]")
    addresses = tuple(part.strip() for part in text.replace(";", ",").split(",") if part.strip())
    if not addresses:
        raise UsageError(f"{what}: no address given, expected host:port[,host:port…]")
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not _is_host(host) or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UsageError(f"{what}: {address!r} is not host:port")
    return addresses


def check_addresses(addresses: Sequence[str], what: str) -> None:
    """UsageError: they are no tuple of `host:port`, and a string is the likeliest mistake."""
    if not addresses:
        raise UsageError(f"{what}: no address given, expected host:port[,host:port…]")
    found = names_of(what, addresses, 'a tuple such as ("127.0.0.1:9876",)')
    parse_addresses(",".join(found), what)


def _is_host(text: str) -> bool:
    try:
        text.encode("idna")
    except UnicodeError:  # a label that is too long or empty, or no text at all
        return False
    return text.isprintable() and not {" ", "/"} & set(text) and bool(text.strip("[]"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings of one client, shared by its producers and consumers."""

    bootstrap: tuple[str, ...]
    """Name-service addresses, `host:port` each."""
    connect_timeout_s: float = 3.0
    request_timeout_s: float = 3.0
    failover_timeout_s: float = 10.0
    """How long requests look for the master of a shard that has lost its own; sends do where they
    have no other shard to go to."""
    route_age_max_s: float = 30.0
    """A route older than this is read again; after an error it is read again at once."""
    frame_bytes_max: int = 16 << 20
    in_flight_max: int = 4096
    """Requests without an answer on one connection; more wait their turn."""
    sends_max: int = 1024
    """Sends under way at once; more wait their turn, and their time-outs begin with it. As many
    more may be submitted."""
    sends_bytes_max: int = 32 << 20
    """The same for the bytes of their bodies."""
    tls_ca_file: str | None = None
    """PEM file of authorities: speak TLS, with servers whose certificates they have signed for the
    host that they are reached at; None: no TLS."""
    tls_certificate_file: str | None = None
    """PEM file of this client's own certificate, where servers ask for one; with `tls_key_file`."""
    tls_key_file: str | None = None
    user: str | None = None
    """Whose requests these are, where brokers ask; with `password` or `password_file`."""
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None
    """File with the password alone; it is read again when it changes."""
    trace: bool = False
    """Tell what is sent, and what push consumers handle, for `imago message trace`; asyncio
    alone."""
    trace_topic: str = "RMQ_SYS_TRACE_TOPIC"
    """Where traces go."""
    idle_s_max: float = 100.0
    """The blocking client drops a connection idle for so long: servers close at 120 s."""
    interceptors: tuple[Interceptor, ...] = ()
    """Called with what is sent and received, in this order; see `Interceptor`."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_interceptors(self.interceptors)
        check_addresses(self.bootstrap, "bootstrap")
        check_tls(self)
        check_user(self)
        check_name("trace_topic", self.trace_topic)
        check_positive(
            self,
            "connect_timeout_s",
            "request_timeout_s",
            "failover_timeout_s",
            "route_age_max_s",
            "frame_bytes_max",
            "in_flight_max",
            "sends_max",
            "sends_bytes_max",
            "idle_s_max",
        )

    @classmethod
    def of(cls, bootstrap: str | ClientConfig) -> ClientConfig:
        """Return `bootstrap` itself if it is a configuration, else one made of its addresses."""
        if isinstance(bootstrap, ClientConfig):
            return bootstrap
        return cls(bootstrap=parse_addresses(bootstrap))


def check_interceptors(interceptors: object) -> None:
    """UsageError: they are no tuple of Interceptor objects."""
    if not isinstance(interceptors, tuple):
        raise refuse("interceptors", interceptors, "a tuple, also of one: (Mine(),)")
    for one in interceptors:
        if not isinstance(one, Interceptor):
            raise refuse("interceptors", one, "an object of a class derived from Interceptor")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """Settings of one producer; the defaults are those of the original Java client."""

    group: str = "IMAGO_PRODUCER"
    send_timeout_s: float = 3.0
    """For one send with all its tries."""
    retries_max: int = 2
    """Further tries on other shards, after the first."""
    retry_when_not_stored_ok: bool = False
    """Treat an acknowledgement that reports late flush or replication as a failed try."""
    queues_by_default: int = 4
    """Queues per shard that a topic gets when this producer's first send creates it."""
    compress_over_bytes: int | None = None
    """Deflate larger bodies when that makes them smaller; None: never. (The Java client: 4096.)"""
    batch_bytes_max: int = BODY_BYTES_MAX
    joined_max: int = 256
    """Sends to one queue that wait together leave as one request of up to so many messages, at no
    delay; 1: each leaves alone. Asyncio alone."""
    idempotent: bool = False
    """Store each message once, however often it has to be sent; Imago's brokers only."""
    delivery_timeout_s: float = 30.0
    """Idempotent: for one message with all its tries, whose number `retries_max` does not bound;
    `send_timeout_s` is then that of one try."""
    in_flight_per_queue: int = 5
    """Idempotent: requests without an answer to one queue; more wait their turn."""
    producer_id: int | None = None
    """Idempotent: 64 bits under which brokers know this producer; None: random ones a queue.

    One who starts again with the same id and epoch and sends the same messages in the same order
    to the same queues repeats them, and nothing is stored twice."""
    producer_epoch: int = 0
    """Idempotent, with `producer_id`: a higher one shuts out producers with a lower one."""

    def __post_init__(self) -> None:
        check_name("producer group", self.group, characters_max=120)
        check_fields(self)
        check_positive(
            self,
            "send_timeout_s",
            "queues_by_default",
            "batch_bytes_max",
            "joined_max",
            "delivery_timeout_s",
            "in_flight_per_queue",
        )
        check_whole("retries_max", self.retries_max, 0)
        self._check_identity()

    @classmethod
    def of(cls, config: ProducerConfig | None) -> ProducerConfig:
        """Return `config`, or the default for None. UsageError: it is something else."""
        if config is None:
            return cls()
        check_kind("config", config, cls)
        return config

    def _check_identity(self) -> None:
        if self.producer_id is None:
            if self.producer_epoch:
                raise UsageError("producer_epoch: means nothing without a producer_id")
            return
        if not self.idempotent:
            raise UsageError("producer_id: only an idempotent producer has one")
        if not 0 <= self.producer_id < 1 << 64:
            raise UsageError(f"producer_id: {self.producer_id}, must be a number of 64 bits")
        if not 0 <= self.producer_epoch < 1 << 63:
            raise UsageError(f"producer_epoch: {self.producer_epoch}, must be 0 to 2^63 - 1")


class StartFrom(Enum):
    """Where a group begins in a queue for which it has no committed offset."""

    EARLIEST = "CONSUME_FROM_FIRST_OFFSET"
    LATEST = "CONSUME_FROM_LAST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"

    @classmethod
    def of(cls, value: object) -> StartFrom:
        """Return the value that a word names. UsageError: it names none."""
        if isinstance(value, StartFrom):
            return value
        for one in cls:
            if isinstance(value, str) and value.upper() in (one.name, one.value):
                return one
        words = ", ".join(one.name.lower() for one in cls)
        raise UsageError(f"start_from: {value!r}, must be one of {words}, or a StartFrom")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Settings of one member of a consumer group; defaults as the original Java client has them."""

    group: str
    start_from: StartFrom | str = StartFrom.LATEST
    """Or its name: `earliest`, `latest`, `timestamp`. Queues that come while the member runs are
    read from their beginning, whatever it says."""
    start_timestamp_ms: int = 0
    """With StartFrom.TIMESTAMP: the store time to begin at, ms since 1970."""
    orderly: bool = False
    """Lock each queue and handle its messages one after the other."""
    concurrency: int = 20
    """Handlers running at once, over all queues."""
    batch_messages_max: int = 1
    """Messages given to one handler call."""
    pull_messages_max: int = 256
    """Messages asked for in one pull; RocketMQ's own brokers give at most 32."""
    reconsume_times_max: int | None = None
    """After so many retries a message goes to the group's dead-letter topic.

    None: 16, or without end where `orderly` (a message in order may not simply be skipped).
    """
    suspend_s: float = 1.0
    """Orderly: the wait before the same message is tried again."""
    cached_messages_max: int = 1000
    cached_bytes_max: int = 100 << 20
    """Per queue: pulling pauses above either."""
    inflated_bytes_max: int = 64 << 20
    """Of all queues: what compressed bodies that are held take, inflated; more wait. A message
    that alone takes more is handed over with its `error`."""
    poll_s: float = 15.0
    """How long the broker may hold a pull that finds nothing."""
    heartbeat_s: float = 30.0
    rebalance_s: float = 20.0
    commit_s: float = 5.0
    lock_s: float = 20.0
    error_pause_s: float = 1.0
    """After a failed pull, before the next one."""
    drain_s: float = 10.0
    """When stopping: how long running handlers may take to end."""
    release_s: float = 30.0
    """Orderly: how long a queue that goes to another member waits for its handler here to end."""

    def __post_init__(self) -> None:
        check_name("consumer group", self.group, characters_max=120)
        check_fields(self)
        object.__setattr__(self, "start_from", StartFrom.of(self.start_from))
        check_positive(
            self,
            "concurrency",
            "batch_messages_max",
            "pull_messages_max",
            "suspend_s",
            "cached_messages_max",
            "cached_bytes_max",
            "inflated_bytes_max",
            "poll_s",
            "heartbeat_s",
            "rebalance_s",
            "commit_s",
            "lock_s",
            "error_pause_s",
            "drain_s",
            "release_s",
        )
        if self.reconsume_times_max is not None:
            check_whole("reconsume_times_max", self.reconsume_times_max, 0)
        check_whole("start_timestamp_ms", self.start_timestamp_ms, 0)
        if self.begins is StartFrom.TIMESTAMP and not self.start_timestamp_ms:
            raise UsageError("start_from: timestamp needs start_timestamp_ms, ms since 1970")

    @classmethod
    def of(cls, config: ConsumerConfig | str) -> ConsumerConfig:
        """Return `config` itself if it is one, else one made of a group's name."""
        if isinstance(config, cls):
            return config
        if not isinstance(config, str):
            raise refuse("config", config, "a ConsumerConfig, or the name of a group")
        return cls(group=config)

    @property
    def begins(self) -> StartFrom:
        """`start_from`, never as a word."""
        return StartFrom.of(self.start_from)
