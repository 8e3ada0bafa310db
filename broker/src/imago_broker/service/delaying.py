"""Delayed messages on their way in: parked until they are due, by level or by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.model import names
from imago_broker.service.copies import joined
from imago_broker.service.parked import SHAPE
from imago_broker.service.timers import bucket_of
from imago_wire import properties as props
from imago_wire.record import make_entry

if TYPE_CHECKING:
    from imago_broker.service.delay import DelayService
    from imago_log.store import MessageStore
    from imago_wire.record import Entry

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


def delayed_entry(
    store: MessageStore,
    delay: DelayService,
    level: int,
    *,
    topic: str,
    queue_id: int,
    body: bytes,
    properties: bytes,
    flag: int,
    sys_flag: int,
    born_ms: int,
    born_host: bytes,
    reconsume_times: int,
    shape: tuple[int, int] | None = None,
    prepared_offset: int = 0,
) -> Entry:
    """Return the entry that parks a message in its level's queue; a higher level is the last.

    `shape` is that of a compressed body whose real topic MetaQ clients read: found now, so that
    a body that cannot be inflated is refused and not lost when it is due. `prepared_offset` names
    the half message of one that a transaction has committed.
    """
    level = min(level, delay.level_max)
    kept = props.without(properties, _REPLACED)
    where = b"DELAY\x01%d\x02" % level + _belonging(topic, queue_id, shape)
    return make_entry(
        store.tail(names.SCHEDULE_TOPIC, level - 1),
        body,
        joined(kept, where),
        flag=flag,
        sys_flag=sys_flag,
        born_ms=born_ms,
        born_host=born_host,
        reconsume_times=reconsume_times,
        prepared_offset=prepared_offset,
        # Like RocketMQ: the unit of a parked message holds when it is due, not its tag.
        unit_tag=delay.due_ms(level),
    )


def timed_entry(
    store: MessageStore,
    due_ms: int,
    *,
    topic: str,
    queue_id: int,
    body: bytes,
    properties: bytes,
    flag: int,
    sys_flag: int,
    born_ms: int,
    born_host: bytes,
    reconsume_times: int,
    shape: tuple[int, int] | None = None,
    prepared_offset: int = 0,
) -> Entry:
    """Return the entry that parks a message until a time of its own; `shape` as above."""
    kept = props.without(properties, _TIMER_REPLACED)
    where = b"TIMER_OUT_MS\x01%d\x02" % due_ms + _belonging(topic, queue_id, shape)
    return make_entry(
        store.tail(names.TIMER_TOPIC, bucket_of(due_ms)),
        body,
        joined(kept, where),
        flag=flag,
        sys_flag=sys_flag,
        born_ms=born_ms,
        born_host=born_host,
        reconsume_times=reconsume_times,
        prepared_offset=prepared_offset,
        unit_tag=due_ms,
    )


def _belonging(topic: str, queue_id: int, shape: tuple[int, int] | None) -> bytes:
    where = b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % (topic.encode(), queue_id)
    return where if shape is None else where + SHAPE + b"\x01%d,%d\x02" % shape
