"""What a pull brings, and the messages in it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from imago_client.errors import BodyError
from imago_client.naming import RETRY_PREFIX
from imago_wire.compression import inflate
from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.record_format import properties as names
from imago_wire.record_format.layout import SYS_COMPRESSED
from imago_wire.records.received_twins import CutRecord, cut_records
from imago_wire.records.stored import StoredMessage, decode_record

INFLATED_BYTES_MAX: Final = 64 << 20
"""For all compressed bodies of one answer together: brokers take bodies of 4 MiB."""

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from imago_client.message_queue import MessageQueue
    from imago_client.messages import PullStatus

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pulled:
    """The answer to one pull: whole records as stored, and where to go on."""

    status: PullStatus
    queue: MessageQueue
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes = field(default=b"", repr=False)
    read_from: int = 0
    """Broker id (0 is the master) that the broker suggests for the next pull."""
    remark: str = ""
    """What the broker says of an answer without messages."""

    def messages(
        self, *, inflated_bytes_max: int = INFLATED_BYTES_MAX
    ) -> Iterator[ReceivedMessage]:
        """Decode the records one by one (bulk readers take `body` as it is instead).

        ProtocolError: they are damaged. A message whose body cannot be inflated, or not within
        what is left of `inflated_bytes_max`, comes too, with its `error`: one producer's mistake
        may not hold up a queue.
        """
        room = inflated_bytes_max
        for raw in self.cut():
            message = inflated(raw, room)
            if message.error is not None:
                log_unreadable(message)
            room -= message.inflated_bytes
            yield message

    def cut(self) -> Iterable[ReceivedMessage]:
        """Return the messages, compressed bodies as stored. ProtocolError: they are damaged, where
        that is: those before come."""
        try:
            return cut(self.queue, self.body)
        except ProtocolError:
            return (
                ReceivedMessage(self.queue, _origin(self.queue, stored), stored)
                for stored in self.records()
            )

    def records(self) -> Iterator[StoredMessage]:
        """Decode the records as they are stored. ProtocolError: they are damaged."""
        at = 0
        while at < len(self.body):
            stored = decode_record(self.body, at)
            at += stored.size
            yield stored


class ReceivedMessage(CutRecord):
    """A message as a consumer sees it.

    What is not asked for is not decoded: `stored` is every field of the record that it came in.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        queue: MessageQueue
        """Where it was pulled from (a retried message: a queue of the group's retry topic)."""
        topic: str
        """The topic that was subscribed (of a retried message: the one it came from)."""
        error: BodyError | None
        """Why the body cannot be given as it was sent; None: it can."""

        def __init__(
            self,
            queue: MessageQueue,
            topic: str,
            stored: StoredMessage,
            error: BodyError | None = None,
        ) -> None: ...

    @property
    def stored(self) -> StoredMessage:
        """The record, an inflated body in the place of its own."""
        if self.decoded is None:
            record = b"".join((self.head, self.held, self.tail))
            self.keep(decode_record(record, verify=False))
        assert self.decoded is not None
        return self.decoded

    @property
    def properties(self) -> dict[str, str]:
        """As stored, with those that brokers add."""
        return self.stored.properties

    @property
    def user_properties(self) -> dict[str, str]:
        """Those that its sender chose: what a message may carry that passes it on."""
        found = self.stored.properties
        return {name: value for name, value in found.items() if not names.is_reserved(name)}

    @property
    def body(self) -> bytes:
        """As it was sent: inflated if the producer compressed it.

        BodyError: that would take too much; `error` tells before, `stored.body` is the rest of it.
        """
        if self.error is not None and self.error.is_too_large:
            raise self.error.with_traceback(None)
        return self.held

    @property
    def size(self) -> int:
        """Bytes of the body as it is held."""
        return len(self.held)

    @property
    def is_compressed(self) -> bool:
        """Whether its producer deflated the body."""
        return bool(self.sys_flag & SYS_COMPRESSED)

    @property
    def inflated_bytes(self) -> int:
        """Bytes that the body takes because it was inflated."""
        return len(self.held) if self.is_compressed and self.error is None else 0

    @property
    def tags(self) -> str | None:
        return self._text_of(names.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple((self._text_of(names.KEYS) or "").split())

    @property
    def message_id(self) -> str:
        """The id that the producer gave, else the broker's."""
        return self._text_of(names.UNIQ_KEY) or self.stored_id

    @property
    def stored_id(self) -> str:
        """The broker's id: address and log offset in hexadecimal."""
        return self.stored.offset_message_id

    @property
    def reconsume_times(self) -> int:
        """How often the group has failed on it so far."""
        return self.stored.reconsume_times

    def _text_of(self, name: str) -> str | None:
        """Return a property's value, the others not decoded."""
        if self.decoded is not None:
            return self.decoded.properties.get(name)
        value = names.find(self.tail[self.properties_at :], name.encode())
        return None if value is None else value.decode("utf-8", "replace")

    def _parts(self) -> tuple[object, ...]:
        return self.queue, self.topic, self.stored, self.error

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return type(self), self._parts()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReceivedMessage) or type(self) is not type(other):
            return NotImplemented
        return self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((self.queue, self.offset))

    def __repr__(self) -> str:
        named = {"topic": self.topic, "tags": self.tags, "keys": self.keys}
        told = "".join(f", {name}={value!r}" for name, value in named.items() if value)
        error = f", error={self.error}" if self.error else ""
        return (
            f"{type(self).__name__}({self.queue}@{self.offset}{told},"
            f" body=<{self.size} bytes>{error})"
        )


def cut(queue: MessageQueue, data: bytes) -> list[ReceivedMessage]:
    """Return the messages of an answer, compressed bodies as stored: see `inflated`.

    ProtocolError: one of the records is damaged.
    """
    found = cut_records(ReceivedMessage, data, queue, queue.topic)
    if queue.topic.startswith(RETRY_PREFIX):  # elsewhere a producer may have set the property
        return [ReceivedMessage(queue, _origin(queue, one.stored), one.stored) for one in found]
    return found


def _origin(queue: MessageQueue, stored: StoredMessage) -> str:
    """Return the topic that a message was sent to."""
    if queue.topic.startswith(RETRY_PREFIX):
        return stored.properties.get(names.RETRY_TOPIC, stored.topic)
    return stored.topic


def received(
    queue: MessageQueue, stored: StoredMessage, room: int = INFLATED_BYTES_MAX
) -> ReceivedMessage:
    """Return the consumer's view of a record as stored: a retried message under its own topic
    again, a compressed body inflated if that takes no more than `room` bytes."""
    return inflated(ReceivedMessage(queue, _origin(queue, stored), stored), room)


def inflated(message: ReceivedMessage, room: int = INFLATED_BYTES_MAX) -> ReceivedMessage:
    """Return the message with its body as it was sent, if that takes no more than `room` bytes."""
    if not message.is_compressed:
        return message
    queue, topic, stored = message.queue, message.topic, message.stored
    try:
        body = inflate(stored.body, stored.sys_flag, max(0, room))
    except LimitExceededError:
        reason = (
            f"its compressed body of {len(stored.body)} bytes takes more than the {room} that are"
            " left for inflated ones; if that is right, raise inflated_bytes_max"
        )
        return _unreadable(queue, topic, stored, reason, is_too_large=True)
    except ProtocolError as error:
        return _unreadable(queue, topic, stored, f"{error}; it comes as stored", is_too_large=False)
    return ReceivedMessage(queue, topic, replace(stored, body=body))


def _unreadable(
    queue: MessageQueue, topic: str, stored: StoredMessage, reason: str, *, is_too_large: bool
) -> ReceivedMessage:
    message_id = stored.unique_key or stored.offset_message_id
    error = BodyError(queue, stored.queue_offset, message_id, reason, is_too_large=is_too_large)
    return ReceivedMessage(queue, topic, stored, error)


def log_unreadable(message: ReceivedMessage) -> None:
    """Say once, where a message is handed over, that its body is not what was sent."""
    log.warning("body_unreadable error=%s", message.error)
