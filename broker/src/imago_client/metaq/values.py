"""What MetaQ producers and consumers hand in and get back, and how answers are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn

from imago_client.checks import check_fields, check_positive, check_text
from imago_client.config import check_addresses, parse_addresses
from imago_client.core.metaq.nodes import DEFAULT_ROOT
from imago_client.credentials import check_user
from imago_client.errors import AnswerError, ClientError, UsageError
from imago_client.messages import check_bytes
from imago_client.tls import check_tls
from imago_wire.crc import crc31
from imago_wire.errors import ProtocolError
from imago_wire.text.commands import PARTITION_ANY, Get, Put, Result, Value
from imago_wire.text.message import encode_body, parse_block
from imago_wire.text.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_wire.text.commands import Command, Response
    from imago_wire.text.message import Message as StoredMessage

BODY_BYTES_MAX: Final = 4 << 20
FETCH_BYTES_MAX: Final = BODY_BYTES_MAX + (64 << 10)
"""Enough for the largest message with its attribute."""
_PREFIX: Final = "meta://"
_POSITIVE: Final = (
    "connect_timeout_s",
    "request_timeout_s",
    "fetch_timeout_s",
    "heartbeat_s",
    "zk_session_timeout_s",
    "rebalance_pause_s",
)


class MetaqError(ClientError):
    """The broker answered with a status other than success; its own words are in `text`."""

    def __init__(self, address: str, status: int, text: str) -> None:
        super().__init__(f"{address} answered status {status}: {text or 'no further text'}")
        self.address, self.status, self.text = address, status, text


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaqConfig:
    """Settings of one client. The defaults are those of the original Java client, but the first."""

    servers: tuple[str, ...] = ()
    """Addresses of the brokers, `host:port` each, one a shard; empty where `zookeeper` is given."""
    zookeeper: str | None = None
    """[zkConnect] `host:port[,host:port…]`, for what a `MetaqSessionFactory` makes."""
    zk_root: str = DEFAULT_ROOT
    """[zkRoot]"""
    zk_session_timeout_s: float = 30.0
    """[zkSessionTimeoutMs] After it others take what a client owned that is gone."""
    rebalance_pause_s: float = 0.5
    """Before a consumer tries again to take partitions that others still own."""
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 3.0
    fetch_timeout_s: float = 10.0
    heartbeat_s: float = 10.0
    """A connection idle for so long is asked for its version; three misses end it."""
    idle_s_max: float = 100.0
    """The blocking client drops a connection idle for so long: it sends no heart beats."""
    tls_ca_file: str | None = None
    """PEM file of authorities: speak TLS, on the brokers' `tls.metaq_port`; None: no TLS."""
    tls_certificate_file: str | None = None
    """PEM file of this client's own certificate, where brokers ask for one; with `tls_key_file`."""
    tls_key_file: str | None = None
    user: str | None = None
    """Whose the connections are, where brokers ask; with `password` or `password_file`. Imago's
    brokers only: MetaQ's own close a connection that says so."""
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None
    """File with the password alone; it is read again when it changes."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_tls(self)
        check_user(self)
        if self.servers or self.zookeeper is None:
            check_addresses(self.servers, "servers")
        check_positive(self, *_POSITIVE)

    @classmethod
    def of(cls, servers: str | MetaqConfig) -> MetaqConfig:
        """Return `servers` itself if it is a configuration, else one made of its addresses."""
        if isinstance(servers, MetaqConfig):
            return servers
        check_text("servers", servers)
        return cls(servers=parse_addresses(servers.replace(_PREFIX, ""), "servers"))


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One partition of a topic on one broker."""

    topic: str
    server: str
    number: int
    broker_id: int = field(default=-1, compare=False)
    """Known where it was found in ZooKeeper."""

    def __str__(self) -> str:
        return f"{self.topic}/{self.server}/{self.number}"


@dataclass(frozen=True, slots=True)
class PutResult:
    """The broker's acknowledgement."""

    message_id: int
    partition: Partition
    offset: int
    """Byte position of the message in its partition."""


@dataclass(frozen=True, slots=True)
class MetaqMessage:
    """A fetched message."""

    partition: Partition
    offset: int
    """Byte position of its header; `next_offset` is that of the message after it."""
    next_offset: int
    message_id: int
    attribute: str | None
    payload: bytes = field(repr=False)

    if not TYPE_CHECKING:  # a type checker refuses such a handler where it is given

        def __iter__(self) -> NoReturn:
            raise TypeError("a MetaQ handler is called with one message, not a list of them")


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer to one get. Nothing new: an empty block, and `next_offset` as asked or moved."""

    partition: Partition
    offset: int
    block: bytes = field(repr=False)
    next_offset: int
    """Where to go on, unless whole messages were found: then after the last of them."""

    def messages(self) -> Iterator[MetaqMessage]:
        """Decode the whole messages of the block. ProtocolError: one of them is damaged."""
        for stored in parse_block(self.block, body_bytes_max=FETCH_BYTES_MAX):
            yield _message(self.partition, self.offset, stored)


def _message(partition: Partition, offset: int, stored: StoredMessage) -> MetaqMessage:
    at = offset + stored.at
    return MetaqMessage(
        partition, at, at + stored.size, stored.id, stored.attribute, stored.payload
    )


def put_command(
    topic: str, payload: bytes, attribute: str | None, partition: int | None, opaque: int
) -> Put:
    """Return the put of a message, with its checksum. UsageError: it is too large, or none."""
    check_bytes("payload", payload)
    if len(payload) > BODY_BYTES_MAX:
        raise UsageError(f"payload: {len(payload)} bytes, the limit is {BODY_BYTES_MAX}")
    checked_word("topic", topic)
    if attribute is not None:
        check_text("attribute", attribute)
    try:
        flag, body = encode_body(payload, attribute)
    except UnicodeEncodeError:
        raise UsageError(f"attribute {attribute!r}: is no text") from None
    number = PARTITION_ANY if partition is None else partition
    return Put(topic, number, flag, body, opaque, crc31(body))


def checked_word(what: str, name: str) -> None:
    """UsageError: a name that MetaQ's lines cannot carry."""
    check_text(what, name)
    if not name.isprintable() or " " in name or not name:
        raise UsageError(f"{what} {name!r}: must be a word, without white space")


def get_command(partition: Partition, group: str, offset: int, size_max: int, opaque: int) -> Get:
    """Return the get of stored messages from `offset` on. UsageError: a name is no word."""
    checked_word("topic", partition.topic)
    checked_word("group", group)
    return Get(partition.topic, group, partition.number, offset, size_max, opaque)


def read_put(address: str, topic: str, answer: Response) -> PutResult:
    """Read the answer to a put. MetaqError: it was refused."""
    text = result_text(address, answer)
    words = text.split(" ")
    try:
        message_id, number, offset = (int(word) for word in words)
    except ValueError:
        raise AnswerError(address, f"put answered {text[:80]!r}") from None
    return PutResult(message_id, Partition(topic, address, number), offset)


def read_get(partition: Partition, offset: int, answer: Response) -> Fetched:
    """Read the answer to a get. MetaqError: neither messages nor one of the usual empty answers."""
    if isinstance(answer, Value):
        return Fetched(partition, offset, answer.body, offset)
    # A closed partition is empty to those who read it; a right that is missing is not.
    is_denied = answer.code == Status.FORBIDDEN and " may not " in answer.text
    if answer.code in (Status.NOT_FOUND, Status.FORBIDDEN) and not is_denied:
        return Fetched(partition, offset, b"", offset)
    if answer.code == Status.MOVED:
        if not answer.text.lstrip("-").isdecimal():
            raise AnswerError(partition.server, f"get moved to {answer.text[:80]!r}")
        return Fetched(partition, offset, b"", int(answer.text))
    raise MetaqError(partition.server, answer.code, answer.text)


def result_text(address: str, answer: Response) -> str:
    """Return the text of a successful result. MetaqError: it is not one."""
    if not isinstance(answer, Result):
        raise AnswerError(address, "answered with messages where none were asked for")
    if answer.code != Status.SUCCESS:
        raise MetaqError(address, answer.code, answer.text)
    return answer.text


def checked_response(command: Command) -> Response:
    """Return the command if it is an answer. ProtocolError: servers send nothing else."""
    if not isinstance(command, Result | Value):
        raise ProtocolError(f"sent a request: {type(command).__name__}")
    return command


def read_stats(text: str) -> dict[str, str]:
    """Return the lines of a stats answer, split at their first space."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name and name not in ("STATS", "END"):
            found[name] = value
    return found


def read_offsets(address: str, topic: str, text: str) -> dict[Partition, tuple[int, int]]:
    """Return the partitions of a topic with their bounds, out of the answer to `stats offsets`."""
    found = {}
    for line in text.splitlines():
        match line.split(" "):
            case [name, "part", number, "min_offset", low, "max_offset", high] if name == topic:
                found[Partition(topic, address, int(number))] = (int(low), int(high))
    return found
