"""The values that producers and consumers hand in and get back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_client.checks import (
    BODY_BYTES_MAX,
    check_text,
    check_texts,
    check_whole,
    of_wrong_kind,
    refuse,
)
from imago_client.errors import UsageError
from imago_client.naming import check_name
from imago_wire.record_format import properties as names
from imago_wire.record_format.tags import named_tags
from imago_wire.remoting.sent_twins import fill_message

if TYPE_CHECKING:
    from imago_client.message_queue import MessageQueue

PROPERTIES_BYTES_MAX: Final = 32767
DELAY_LEVEL_MAX: Final = 18


def check_bytes(what: str, value: object) -> None:
    """Raise UsageError unless `value` is bytes."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise of_wrong_kind(what, value, "bytes (text: .encode() it)")


def body_of(message: Message) -> bytes:
    """Return the body as it is now: what is not bytes may have changed since it was checked.

    UsageError: it is too large, or a memoryview that was released.
    """
    body = message.body
    if type(body) is bytes:
        return body  # of the size that it had when the message was made
    _check_size(body)
    return bytes(body)


def _check_size(body: bytes) -> None:
    size = size_of(body)
    if size > BODY_BYTES_MAX:
        raise UsageError(f"body: {size} bytes, the limit is {BODY_BYTES_MAX}")


def size_of(body: bytes) -> int:
    """Return how many bytes it is, of a memoryview of larger items too. UsageError: of none."""
    try:
        return memoryview(body).nbytes
    except ValueError:
        raise UsageError("body: a memoryview that was released; hand in its bytes") from None


def check_tag(tag: str) -> None:
    """Raise UsageError unless consumers can ask for this tag by its name."""
    check_text("tags", tag)
    if "|" in tag or tag == "*" or named_tags(tag) != {tag}:
        raise refuse("tags", tag, "one name without `|` and blanks around it, and not `*`")


def _check_keys(keys: object) -> None:
    if isinstance(keys, str) or not isinstance(keys, Collection):
        raise of_wrong_kind("keys", keys, "a tuple of strings")
    if any(not isinstance(key, str) or " " in key or not key for key in keys):
        raise UsageError(f"keys {keys!r}: a key is a string, may be neither empty nor hold a space")


def _joined(keys: tuple[str, ...]) -> str:
    _check_keys(keys)
    return " ".join(keys)


_NO_PROPERTIES: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, init=False)
class Message:
    """A message to send. `properties` may hold any further names but the reserved ones.

    Of a body, keys and properties that can change, what they are when it is sent is checked again.
    """

    topic: str
    body: bytes
    tags: str | None = None
    """One tag, on which consumers can filter; it holds no `|`, begins and ends with no blank."""
    keys: tuple[str, ...] = ()
    """What the message can be looked up by; no key may hold a space."""
    ordering_key: str | None = None
    """Messages with one ordering key go to one queue, in order, while the queues stay the same."""
    delay_level: int = 0
    """1…18 on the broker's scale (1 s, 5 s, 10 s, 30 s, 1 min, …); 0 delivers at once."""
    deliver_at_ms: int | None = None
    """When to deliver, in epoch milliseconds; a time that is over means at once."""
    delay_ms: int = 0
    """How long to wait by the broker's clock; 0 delivers at once."""
    wait_stored: bool = True
    """False: the broker may acknowledge before flush and replication."""
    flag: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    """Others than those that the system uses: TRAN_MSG, POP_CK, TIMER_… and their like."""

    def __init__(
        self,
        topic: str,
        body: bytes,
        tags: str | None = None,
        keys: tuple[str, ...] = (),
        ordering_key: str | None = None,
        delay_level: int = 0,
        deliver_at_ms: int | None = None,
        delay_ms: int = 0,
        wait_stored: bool = True,
        flag: int = 0,
        properties: Mapping[str, str] = _NO_PROPERTIES,
    ) -> None:
        own = {} if properties is _NO_PROPERTIES else properties
        times = (delay_level, deliver_at_ms, delay_ms)
        values = (topic, body, tags, keys, ordering_key, *times, wait_stored, flag, own)
        if not fill_message(self, values):
            self._check()

    def _check(self) -> None:
        check_name("topic", self.topic)
        check_bytes("body", self.body)
        _check_size(self.body)
        _check_keys(self.keys)
        if self.tags is not None and self.tags != "":
            check_tag(self.tags)
        if self.ordering_key is not None:
            check_text("ordering_key", self.ordering_key)
        if self.delay_level != 0 or self.delay_ms != 0 or self.deliver_at_ms is not None:
            _check_times(self)
        if self.properties or not isinstance(self.properties, dict):
            _check_properties(self.properties)
        if type(self.flag) is not int or not -(1 << 31) <= self.flag < 1 << 31:
            made = refuse if type(self.flag) is int else of_wrong_kind
            raise made("flag", self.flag, "a number of 32 bits")

    def __repr__(self) -> str:
        values = [(one.name, getattr(self, one.name), one.default) for one in fields(self)[2:]]
        told = [f"{name}={value!r}" for name, value, usual in values if value not in (usual, {})]
        return ", ".join([f"Message({self.topic!r}", f"<{size_of(self.body)} bytes>", *told]) + ")"

    @property
    def waits(self) -> bool:
        """Whether it asks to be delivered later than it is sent."""
        return bool(self.delay_level or self.delay_ms) or self.deliver_at_ms is not None

    def all_properties(self, unique_key: str) -> dict[str, str]:
        """Return the properties as they go on the wire. UsageError: they may not any more."""
        found = dict(self.properties)
        _check_properties(found)
        found[names.UNIQ_KEY] = unique_key
        if self.tags:
            found[names.TAGS] = self.tags
        if self.keys:
            found[names.KEYS] = _joined(tuple(self.keys))
        if self.ordering_key is not None:
            found[names.SHARDING_KEY] = self.ordering_key
        if self.delay_level:
            found[names.DELAY] = str(self.delay_level)
        if self.deliver_at_ms is not None:
            found[names.TIMER_DELIVER_MS] = str(self.deliver_at_ms)
        if self.delay_ms:
            found[names.TIMER_DELAY_MS] = str(self.delay_ms)
        if not self.wait_stored:
            found[names.WAIT] = "false"
        return found


def _check_properties(properties: Mapping[str, str]) -> None:
    check_texts("properties", properties, 'a dict of texts: {"region": "eu"}')
    reserved = [name for name in properties if names.is_reserved(name)]
    if reserved:
        raise UsageError(
            f"properties: {', '.join(sorted(reserved))}: reserved; a Message has fields for tags,"
            " keys and times, and ReceivedMessage.user_properties are without such names"
        )


def _check_times(message: Message) -> None:
    check_whole("delay_level", message.delay_level, 0, DELAY_LEVEL_MAX)
    check_whole("delay_ms", message.delay_ms, 0)
    if message.deliver_at_ms is not None:
        check_whole("deliver_at_ms", message.deliver_at_ms, 0)
    ways = (message.delay_level, message.delay_ms, message.deliver_at_ms is not None)
    if sum(map(bool, ways)) > 1:
        raise UsageError("delay_level, delay_ms and deliver_at_ms: only one of them can be")


class SendStatus(Enum):
    """How far a stored message got before the broker answered. All of them mean: stored."""

    OK = "stored as asked"
    FLUSH_DISK_TIMEOUT = "stored, not yet on disk in time"
    FLUSH_SLAVE_TIMEOUT = "stored, not yet on the replicas in time"
    SLAVE_NOT_AVAILABLE = "stored, no replica in sync"


@dataclass(frozen=True, slots=True)
class SendResult:
    """The broker's acknowledgement."""

    status: SendStatus
    queue: MessageQueue
    offset: int
    """Queue offset of the message (of a batch: of its first message)."""
    message_id: str
    """The unique key this client gave the message (of a batch: of its first message)."""
    stored_id: str
    """The broker's id: address and log offset in hexadecimal (of a batch: joined with commas)."""
    recall_handle: str | None = None
    """For `recall`, until it is due; of a message that waits for a time of its own."""
    trace_region: str | None = None
    """What a trace of the message names as its region; None: the broker wants no traces."""


class QueueEnd(NamedTuple):
    """Where a queue ends, in one moment."""

    offset: int
    """That the next message will get."""
    incarnation: int | None
    """Another number after the topic was deleted and made again; None: not an Imago broker."""
    topic_id: int | None = None
    """What no other topic in the world has; None: not an Imago broker, or an older one."""
    cluster_id: str | None = None
    """Of the cluster that the queue is in."""


class ShardBounds(NamedTuple):
    """Where the queues of a topic begin and end on one shard, and which topic it is."""

    queues: tuple[tuple[int, int], ...]
    """Of each queue by its number: the first offset, and that the next message will get."""
    incarnation: int | None
    topic_id: int | None
    cluster_id: str | None


class PullStatus(IntEnum):
    """What a pull found; the numbers are the response codes."""

    FOUND = 0
    NO_NEW_MESSAGE = 19
    NO_MATCH = 20
    OFFSET_ILLEGAL = 21
