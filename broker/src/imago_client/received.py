"""What a pull brings, and the messages in it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from imago_client.errors import BodyError
from imago_client.messages import RETRY_PREFIX
from imago_wire import properties as names
from imago_wire.compression import inflate
from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.layout import SYS_COMPRESSED
from imago_wire.record import StoredMessage, decode_record

INFLATED_BYTES_MAX: Final = 64 << 20
"""For all compressed bodies of one answer together: brokers take bodies of 4 MiB."""

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    body: bytes = b""
    read_from: int = 0
    """Broker id (0 is the master) that the broker suggests for the next pull."""

    def messages(
        self, *, inflated_bytes_max: int = INFLATED_BYTES_MAX
    ) -> Iterator[ReceivedMessage]:
        """Decode the records one by one (bulk readers take `body` as it is instead).

        ProtocolError: they are damaged. A message whose body cannot be inflated, or not within
        what is left of `inflated_bytes_max`, comes too, with its `error`: one producer's mistake
        may not hold up a queue.
        """
        room = inflated_bytes_max
        for stored in self.records():
            message = received(self.queue, stored, room)
            if message.error is not None:
                log_unreadable(message)
            room -= message.inflated_bytes
            yield message

    def records(self) -> Iterator[StoredMessage]:
        """Decode the records as they are stored. ProtocolError: they are damaged."""
        at = 0
        while at < len(self.body):
            stored = decode_record(self.body, at)
            at += stored.size
            yield stored


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message as a consumer sees it; `stored` is the record it came in."""

    queue: MessageQueue
    """Where it was pulled from (a retried message: a queue of the group's retry topic)."""
    topic: str
    """The topic that was subscribed (of a retried message: the one it came from)."""
    stored: StoredMessage
    error: BodyError | None = None
    """Why the body cannot be given as it was sent; None: it can."""

    @property
    def properties(self) -> dict[str, str]:
        """As stored, with those that brokers add."""
        return self.stored.properties

    @property
    def body(self) -> bytes:
        """As it was sent: inflated if the producer compressed it.

        BodyError: that would take too much; `error` tells before, `stored.body` is the rest of it.
        """
        if self.error is not None and self.error.is_too_large:
            raise self.error.with_traceback(None)
        return self.stored.body

    @property
    def size(self) -> int:
        """Bytes of the body as it is held."""
        return len(self.stored.body)

    @property
    def inflated_bytes(self) -> int:
        """Bytes that the body takes because it was inflated."""
        is_inflated = self.stored.sys_flag & SYS_COMPRESSED and self.error is None
        return len(self.stored.body) if is_inflated else 0

    @property
    def offset(self) -> int:
        return self.stored.queue_offset

    @property
    def tags(self) -> str | None:
        return self.stored.tags

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.stored.keys)

    @property
    def message_id(self) -> str:
        """The id that the producer gave, else the broker's."""
        return self.stored.unique_key or self.stored_id

    @property
    def stored_id(self) -> str:
        """The broker's id: address and log offset in hexadecimal."""
        return self.stored.offset_message_id

    @property
    def reconsume_times(self) -> int:
        """How often the group has failed on it so far."""
        return self.stored.reconsume_times


def received(
    queue: MessageQueue, stored: StoredMessage, room: int = INFLATED_BYTES_MAX
) -> ReceivedMessage:
    """Return the consumer's view of a record as stored: a retried message under its own topic
    again, a compressed body inflated if that takes no more than `room` bytes."""
    topic = stored.topic
    if queue.topic.startswith(RETRY_PREFIX):  # elsewhere a producer may have set the property
        topic = stored.properties.get(names.RETRY_TOPIC, topic)
    if not stored.sys_flag & SYS_COMPRESSED:
        return ReceivedMessage(queue, topic, stored)
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
