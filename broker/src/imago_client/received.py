"""What a pull brings, and the messages in it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from imago_wire import properties as names
from imago_wire.errors import ProtocolError
from imago_wire.record import StoredMessage, decode_record

INFLATED_BYTES_MAX: Final = 64 << 20
"""A compressed body that would grow beyond this is an error: brokers take bodies of 4 MiB."""

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_client.messages import MessageQueue, PullStatus

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

    def messages(self) -> Iterator[ReceivedMessage]:
        """Decode the records one by one (bulk readers take `body` as it is instead).

        ProtocolError: they are damaged. A body that says it is compressed and cannot be inflated
        comes as it is stored: one producer's mistake may not hold up a queue.
        """
        at = 0
        while at < len(self.body):
            stored = self._decode(at)
            at += stored.size
            yield received(self.queue, stored)

    def _decode(self, at: int) -> StoredMessage:
        try:
            return decode_record(self.body, at, inflate=True, inflate_bytes_max=INFLATED_BYTES_MAX)
        except ProtocolError as error:
            stored = decode_record(self.body, at)
            log.warning(
                "body_as_stored queue=%s offset=%d error=%s", self.queue, stored.queue_offset, error
            )
            return stored


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message as a consumer sees it; `stored` is the record it came in."""

    queue: MessageQueue
    """Where it was pulled from (a retried message: a queue of the group's retry topic)."""
    topic: str
    """The topic that was subscribed (of a retried message: the one it came from)."""
    stored: StoredMessage

    @property
    def properties(self) -> dict[str, str]:
        """As stored, with those that brokers add."""
        return self.stored.properties

    @property
    def body(self) -> bytes:
        """As it was sent: inflated if the producer compressed it."""
        return self.stored.body

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


def received(queue: MessageQueue, stored: StoredMessage) -> ReceivedMessage:
    """Return the consumer's view of a record: a retried message under its own topic again."""
    return ReceivedMessage(queue, stored.properties.get(names.RETRY_TOPIC, stored.topic), stored)
