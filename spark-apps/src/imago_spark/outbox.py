"""Rows on their way to queues: the same rows always become the same requests.

Repeated tasks rely on this: the first request to a queue holds the same messages under the same
numbers as before, and so does each later one. A row's queue, and the borders between requests,
depend on the rows alone, never on time, on their arrival or on brokers' answers.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from imago_client.core.sending.packed import Packed, pack, pack_entry
from imago_client.core.sending.selection import place_of_key
from imago_client.message_queue import MessageQueue
from imago_client.messages import Message
from imago_client.naming import check_name
from imago_spark.errors import SinkError
from imago_spark.packing import _packing_py
from imago_spark.packing.rules import COST, ROUND, is_own
from imago_spark.packing.waiting import WaitingRows
from imago_spark.sink_options import QueueBy
from imago_wire.compiled import compiled_twins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

MESSAGES_MAX: Final = 1000
"""In one request."""
_READ: Final = (
    *("topic", "value", "key", "tags", "flag", "properties", "shard", "queue"),
    *("delayLevel", "deliverAt"),
)
_NONE: Final[Mapping[str, str]] = {}
_WAYS: Final = {
    QueueBy.KEY: _packing_py.BY_KEY,
    QueueBy.ROUND_ROBIN: _packing_py.ROUND_ROBIN,
    QueueBy.COLUMN: _packing_py.BY_COLUMN,
}
RowPacker = cast(
    "type[_packing_py.RowPacker]",
    compiled_twins("imago_spark.packing._packing_c", ["RowPacker"]).get(
        "RowPacker", _packing_py.RowPacker
    ),
)


def producer_id(sink_id: str, partition: int) -> int:
    """Return the 64 bits that identify one partition of a sink to brokers, in every attempt."""
    return int.from_bytes(blake2b(f"{sink_id}/{partition}".encode(), digest_size=8).digest(), "big")


Request: TypeAlias = tuple[MessageQueue, Packed]


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
        self._slots: dict[str, list[WaitingRows]] = {}
        """By topic, in the order of its queues."""
        self._places: dict[str, dict[tuple[str, int], int]] = {}
        self._keyless = 0
        self.rows = 0
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[Request]:
        """Accept rows; yield the requests that they complete."""
        given = {
            name: batch.column(at) for at, name in enumerate(batch.schema.names) if name in _READ
        }
        packer = RowPacker(given, batch.num_rows)
        careful = _Careful(given)
        at = 0
        while at < batch.num_rows:
            topic = self._topic or careful.topic(at)
            slots: list[WaitingRows] = []
            why, begun = _packing_py.CARE, at
            if topic is not None:
                slots = self._slots_of(topic)
                named = None if self._topic else topic.encode()
                at, why, self._keyless, size = packer.pack(
                    at, named, slots, self._places[topic], _WAYS[self._queue_by],
                    self._partition, self._keyless, self._send_bytes, self._rows_max,
                )  # fmt: skip
                self.rows += at - begun
                self.bytes += size
            if why >= 0:
                yield slots[why].queue, slots[why].taken()
            elif why == _packing_py.CARE:
                yield from self._with_care(topic, slots, careful.row(at))
                at += 1

    def _with_care(
        self, topic: str | None, slots: Sequence[WaitingRows], row: tuple[Any, ...]
    ) -> Iterator[Request]:
        """Accept any row, or say what is wrong with it."""
        _, body, key, tags, flag, properties, shard, number, level, due_ms = row
        if topic is None or body is None:
            missing = "topic" if topic is None else "value"
            raise SinkError(f"a row's {missing} is null: filter such rows out, or fill it in")
        keys = tuple(key.split()) if key else ()
        own = _own_properties(properties) if properties else _NONE
        message = Message(
            topic,
            body,
            tags,
            keys,
            delay_level=level or 0,
            deliver_at_ms=due_ms,
            flag=flag or 0,
            properties=own,
        )
        slot = slots[self._place(topic, len(slots), key if keys else None, shard, number)]
        self.rows += 1
        self.bytes += len(body)
        if self._waits_alone and message.waits:
            yield slot.queue, pack([message])
            return
        cost = len(body) + COST
        for name, text in own.items():
            cost += 4 * (len(name) + len(text))
        full = slot.cost + cost > self._send_bytes
        if slot.count and (full or slot.count >= self._rows_max):
            yield slot.queue, slot.taken()
        slot.add(pack_entry(message), cost)

    def rest(self) -> Iterator[Request]:
        """Yield the incomplete requests."""
        waiting = [slot for slots in self._slots.values() for slot in slots if slot.count]
        for slot in sorted(waiting, key=lambda one: one.queue):
            yield slot.queue, slot.taken()

    def _slots_of(self, topic: str) -> list[WaitingRows]:
        found = self._slots.get(topic)
        if found is None:
            check_name("topic", topic)
            queues = self._queues_of(topic)
            found = self._slots[topic] = [WaitingRows(queue) for queue in queues]
            self._places[topic] = {
                (queue.shard, queue.queue_id): place for place, queue in enumerate(queues)
            }
        return found

    def _place(
        self, topic: str, queues: int, key: str | None, shard: str | None, number: int | None
    ) -> int:
        """Return which of the topic's queues a row goes to."""
        if self._queue_by is QueueBy.COLUMN:
            queue = MessageQueue(topic, shard or "", -1 if number is None else number)
            place = self._places[topic].get((queue.shard, queue.queue_id))
            if place is None:
                raise SinkError(f"{queue} is not a queue of the topic that takes messages")
            return place
        if self._queue_by is QueueBy.KEY and key is not None:
            return place_of_key(key, queues)
        place = (self._partition + self._keyless // ROUND) % queues
        self._keyless += 1
        return place


class _Careful:
    """The rows of a batch as Python's values, made where somebody asks for one."""

    def __init__(self, columns: Mapping[str, pa.Array]) -> None:
        self._columns = columns
        self._values: dict[str, list[Any]] = {}

    def topic(self, row: int) -> str | None:
        return None if "topic" not in self._columns else self._column("topic")[row]

    def row(self, row: int) -> tuple[Any, ...]:
        """Return a row, in the order of `_READ`; of a column that is not there None."""
        return tuple(self._column(name)[row] if name in self._columns else None for name in _READ)

    def _column(self, name: str) -> list[Any]:
        found = self._values.get(name)
        if found is None:
            found = self._values[name] = _values(name, self._columns[name])
        return found


def _values(name: str, column: pa.Array) -> list[Any]:
    """Return the values of a column; of times milliseconds since 1970, of bodies bytes."""
    import pyarrow as pa  # only here: the driver plans without loading it

    if name == "deliverAt":
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    elif name == "value" and pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif name == "value" and pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    values: list[Any] = column.to_pylist()
    return values


def _own_properties(properties: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Return those that the system does not use."""
    return {name: text or "" for name, text in properties if is_own(name)}
