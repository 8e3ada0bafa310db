"""Rows on their way to queues: the same rows always become the same requests.

Repeated tasks rely on this: the first request to a queue holds the same messages under the same
numbers as before, and so does each later one. A row's queue, and the borders between requests,
depend on the rows alone, never on time, on their arrival or on brokers' answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from imago_client.core.sending.selection import queue_for_key
from imago_client.message_queue import MessageQueue
from imago_client.messages import Message
from imago_spark.errors import SinkError
from imago_spark.sink_options import QueueBy
from imago_wire.record_format.properties import is_reserved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

ROUND: Final = 100
"""Rows without a key that go to one queue before it is the next one's turn."""
MESSAGES_MAX: Final = 1000
"""In one request."""
_OVERHEAD: Final = 300
"""Bytes around a body in a request, roughly: properties and numbers."""


def producer_id(sink_id: str, partition: int) -> int:
    """Return the 64 bits that identify one partition of a sink to brokers, in every attempt."""
    return int.from_bytes(blake2b(f"{sink_id}/{partition}".encode(), digest_size=8).digest(), "big")


@dataclass(slots=True)
class _Waiting:
    messages: list[Message] = field(default_factory=list)
    size: int = 0


class Outbox:
    """Gathers the rows of one task by queue and yields whole requests."""

    def __init__(
        self,
        queues_of: Callable[[str], Sequence[MessageQueue]],
        *,
        topic: str | None,
        queue_by: QueueBy,
        send_bytes: int,
        partition: int,
        rows_max: int = MESSAGES_MAX,
    ) -> None:
        self._rows_max = rows_max
        self._queues_of, self._topic = queues_of, topic
        self._queue_by, self._send_bytes, self._partition = queue_by, send_bytes, partition
        self._waiting: dict[MessageQueue, _Waiting] = {}
        self._keyless = 0
        self.rows = 0
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[tuple[MessageQueue, list[Message]]]:
        """Accept rows; yield the requests that they complete."""
        names = batch.schema.names
        for values in zip(*[column.to_pylist() for column in batch.columns], strict=True):
            row = dict(zip(names, values, strict=True))
            message = self._message(row)
            queue = self._queue(row, message)
            self.rows += 1
            self.bytes += len(message.body)
            yield from self._put(queue, message)

    def rest(self) -> Iterator[tuple[MessageQueue, list[Message]]]:
        """Yield the incomplete requests."""
        for queue, waiting in sorted(self._waiting.items()):
            if waiting.messages:
                yield queue, waiting.messages
        self._waiting.clear()

    def _put(
        self, queue: MessageQueue, message: Message
    ) -> Iterator[tuple[MessageQueue, list[Message]]]:
        waiting = self._waiting.setdefault(queue, _Waiting())
        size = _size(message)
        full = waiting.size + size > self._send_bytes or len(waiting.messages) >= self._rows_max
        if waiting.messages and full:
            yield queue, waiting.messages
            waiting = self._waiting[queue] = _Waiting()
        waiting.messages.append(message)
        waiting.size += size

    def _message(self, row: Mapping[str, Any]) -> Message:
        topic, value = self._topic or row.get("topic"), row["value"]
        if topic is None or value is None:
            missing = "topic" if topic is None else "value"
            raise SinkError(f"a row's {missing} is null: filter such rows out, or fill it in")
        properties = dict(row.get("properties") or ())
        return Message(
            topic,
            value.encode() if isinstance(value, str) else value,
            tags=row.get("tags"),
            keys=tuple((row.get("key") or "").split()),
            flag=row.get("flag") or 0,
            properties={
                name: text or ""
                for name, text in properties.items()
                if not is_reserved(name) and not name.startswith("__")
            },
        )

    def _queue(self, row: Mapping[str, Any], message: Message) -> MessageQueue:
        queues = self._queues_of(message.topic)
        if self._queue_by is QueueBy.COLUMN:
            queue = MessageQueue(message.topic, row["shard"] or "", _number(row["queue"]))
            if queue not in queues:
                raise SinkError(f"{queue} is not a queue of the topic that takes messages")
            return queue
        if self._queue_by is QueueBy.KEY and message.keys:
            return queue_for_key(row["key"], queues)
        chosen = queues[(self._partition + self._keyless // ROUND) % len(queues)]
        self._keyless += 1
        return chosen


def _number(value: int | None) -> int:
    return -1 if value is None else value


def _size(message: Message) -> int:
    texts = sum(len(name) + len(text) for name, text in message.properties.items())
    return len(message.body) + _OVERHEAD + 4 * texts
