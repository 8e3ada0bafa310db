"""Rows on their way to queues: the same rows always become the same requests.

Repeated tasks rely on this: the first request to a queue holds the same messages under the same
numbers as before, and so does each later one. A row's queue, and the borders between requests,
depend on the rows alone, never on time, on their arrival or on brokers' answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from imago_client.core.sending.selection import place_of_key
from imago_client.message_queue import MessageQueue
from imago_client.messages import Message
from imago_spark.errors import SinkError
from imago_spark.sink_options import QueueBy
from imago_wire.record_format.properties import is_reserved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

ROUND: Final = 100
"""Rows without a key that go to one queue before it is the next one's turn."""
MESSAGES_MAX: Final = 1000
"""In one request."""
_OVERHEAD: Final = 300
"""Bytes around a body in a request, roughly: properties and numbers."""
_READ: Final = (
    *("topic", "value", "key", "tags", "flag", "properties", "shard", "queue"),
    *("delayLevel", "deliverAt"),
)
_NONE: Final[Mapping[str, str]] = {}


def producer_id(sink_id: str, partition: int) -> int:
    """Return the 64 bits that identify one partition of a sink to brokers, in every attempt."""
    return int.from_bytes(blake2b(f"{sink_id}/{partition}".encode(), digest_size=8).digest(), "big")


Request: TypeAlias = tuple[MessageQueue, list[Message]]


@dataclass(slots=True)
class _Waiting:
    queue: MessageQueue
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
        waits_alone: bool = True,
    ) -> None:
        """`waits_alone`: a message that is to be delivered later is a request of its own."""
        self._waits_alone = waits_alone
        self._rows_max = rows_max
        self._queues_of, self._topic = queues_of, topic
        self._queue_by, self._send_bytes, self._partition = queue_by, send_bytes, partition
        self._waiting: dict[tuple[str, int], _Waiting] = {}
        """By topic, and place among its queues."""
        self._keyless = 0
        self.rows = 0
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[Request]:
        """Accept rows; yield the requests that they complete."""
        given = {
            name: _values(name, batch.column(at))
            for at, name in enumerate(batch.schema.names)
            if name in _READ
        }
        nothing = [None] * batch.num_rows
        columns = [given.get(name, nothing) for name in _READ]
        for (
            topic, value, key, tags, flag, properties, shard, number, level, due_ms,
        ) in zip(*columns, strict=True):  # fmt: skip
            to = self._topic or topic
            if to is None or value is None:
                missing = "topic" if to is None else "value"
                raise SinkError(f"a row's {missing} is null: filter such rows out, or fill it in")
            body = value.encode() if isinstance(value, str) else value
            keys = tuple(key.split()) if key else ()
            own = _own_properties(properties) if properties else _NONE
            message = Message(
                to,
                body,
                tags,
                keys,
                delay_level=level or 0,
                deliver_at_ms=due_ms,
                flag=flag or 0,
                properties=own,
            )
            queues = self._queues_of(to)
            place = self._place(to, queues, key if keys else None, shard, number)
            self.rows += 1
            self.bytes += len(body)
            if self._waits_alone and message.waits:
                yield queues[place], [message]
                continue
            waiting = self._waiting.get((to, place))
            if waiting is None:
                waiting = self._waiting[to, place] = _Waiting(queues[place])
            size = len(body) + _OVERHEAD
            for name, text in own.items():
                size += 4 * (len(name) + len(text))
            full = waiting.size + size > self._send_bytes
            if waiting.messages and (full or len(waiting.messages) >= self._rows_max):
                yield waiting.queue, waiting.messages
                waiting.messages, waiting.size = [], 0
            waiting.messages.append(message)
            waiting.size += size

    def rest(self) -> Iterator[Request]:
        """Yield the incomplete requests."""
        for waiting in sorted(self._waiting.values(), key=lambda one: one.queue):
            if waiting.messages:
                yield waiting.queue, waiting.messages
        self._waiting.clear()

    def _place(
        self,
        topic: str,
        queues: Sequence[MessageQueue],
        key: str | None,
        shard: str | None,
        number: int | None,
    ) -> int:
        """Return which of the topic's queues a row goes to."""
        if self._queue_by is QueueBy.COLUMN:
            queue = MessageQueue(topic, shard or "", -1 if number is None else number)
            if queue not in queues:
                raise SinkError(f"{queue} is not a queue of the topic that takes messages")
            return queues.index(queue)
        if self._queue_by is QueueBy.KEY and key is not None:
            return place_of_key(key, len(queues))
        place = (self._partition + self._keyless // ROUND) % len(queues)
        self._keyless += 1
        return place


def _values(name: str, column: pa.Array) -> list[Any]:
    """Return the values of a column; of times milliseconds since 1970."""
    if name == "deliverAt":
        import pyarrow as pa  # only here: who has no such column loads nothing more

        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _own_properties(properties: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Return those that the system does not use."""
    return {
        name: text or ""
        for name, text in properties
        if not is_reserved(name) and not name.startswith("__")
    }
