"""Delayed messages on their way in: parked until they are due, by level or by time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict, Unpack

from imago_broker.model import names
from imago_broker.service.delays.restoring import SHAPE
from imago_broker.service.delays.timers.timer_bucket import bucket_of
from imago_broker.service.puts.copies import joined
from imago_wire.record_format import properties as props
from imago_wire.records.record import make_entry

if TYPE_CHECKING:
    from imago_broker.service.delays.levels.levels import DelayService
    from imago_log.store import MessageStore
    from imago_wire.records.record import Entry, QueueTail

_REPLACED = (
    b"DELAY",
    b"REAL_TOPIC",
    b"REAL_QID",
    b"TIMER_DELAY_SEC",
    b"TIMER_DELAY_MS",
    b"TIMER_DELIVER_MS",
    b"TIMER_OUT_MS",
    SHAPE,
    *props.RESERVED_NAMES,
)
_TIMER_REPLACED = (b"REAL_TOPIC", b"REAL_QID", b"TIMER_OUT_MS", SHAPE, *props.RESERVED_NAMES)


class MessageParts(TypedDict):
    """A message that may be parked, and where it belongs.

    `shape` is that of a compressed body whose real topic MetaQ clients read: found now, so that a
    body that cannot be inflated is refused and not lost when it is due. `prepared_offset` names the
    half message of one that a transaction has committed.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    reconsume_times: int
    shape: NotRequired[tuple[int, int] | None]
    prepared_offset: NotRequired[int]


def delayed_entry(
    store: MessageStore, delay: DelayService, level: int, **message: Unpack[MessageParts]
) -> Entry:
    """Return the entry that parks a message in its level's queue; a higher level is the last."""
    level = min(level, delay.level_max)
    tail = store.tail(names.SCHEDULE_TOPIC, level - 1)
    kept = props.without(message["properties"], _REPLACED)
    # Like RocketMQ: the unit of a parked message holds when it is due, not its tag.
    return _parked(tail, kept, b"DELAY\x01%d\x02" % level, delay.due_ms(level), message)


def timed_entry(store: MessageStore, due_ms: int, **message: Unpack[MessageParts]) -> Entry:
    """Return the entry that parks a message until a time of its own."""
    tail = store.tail(names.TIMER_TOPIC, bucket_of(due_ms))
    kept = props.without(message["properties"], _TIMER_REPLACED)
    return _parked(tail, kept, b"TIMER_OUT_MS\x01%d\x02" % due_ms, due_ms, message)


def message_entry(
    store: MessageStore,
    delay: DelayService,
    *,
    level: int = 0,
    due_ms: int = 0,
    **message: Unpack[MessageParts],
) -> Entry:
    """Return the entry of a message: parked until then or by its level, or for its own queue."""
    if due_ms:
        return timed_entry(store, due_ms, **message)
    if level:
        return delayed_entry(store, delay, level, **message)
    tail = store.tail(message["topic"], message["queue_id"])
    return _entry(tail, message["properties"], message, shape=message.get("shape"))


def _parked(
    tail: QueueTail, kept: bytes, waits: bytes, due_ms: int, message: MessageParts
) -> Entry:
    where = real_place(message["topic"], message["queue_id"], message.get("shape"))
    return _entry(tail, joined(kept, waits + where), message, unit_tag=due_ms)


def real_place(
    topic: str, queue_id: int, shape: tuple[int, int] | None, more: bytes = b""
) -> bytes:
    """Return the properties that say where a message belongs that waits somewhere else."""
    where = b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02%b" % (topic.encode(), queue_id, more)
    return where if shape is None else where + SHAPE + b"\x01%d,%d\x02" % shape


def _entry(
    tail: QueueTail,
    properties: bytes,
    message: MessageParts,
    *,
    unit_tag: int | None = None,
    shape: tuple[int, int] | None = None,
) -> Entry:
    return make_entry(
        tail,
        message["body"],
        properties,
        flag=message["flag"],
        sys_flag=message["sys_flag"],
        born_ms=message["born_ms"],
        born_host=message["born_host"],
        reconsume_times=message["reconsume_times"],
        prepared_offset=message.get("prepared_offset", 0),
        unit_tag=unit_tag,
        metaq_shape=shape,
    )
