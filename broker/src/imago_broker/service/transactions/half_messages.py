"""Half messages on their way in, and the messages that they stand for on their way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.errors import RequestError
from imago_broker.model import names
from imago_broker.service.delays.levels.levels import asked_level
from imago_broker.service.delays.parking import message_entry, real_place
from imago_broker.service.delays.restoring import SHAPE, shape_of
from imago_broker.service.delays.timers.timer_properties import asked_ms, is_timed
from imago_broker.service.puts.copies import joined
from imago_wire.errors import LimitExceededError, ProtocolError, ToldError
from imago_wire.record_format import properties as props
from imago_wire.record_format.layout import (
    CLIENT_PROPERTIES_BYTES_MAX,
    SYS_COMMIT,
    SYS_COMPRESSED,
    SYS_COMPRESSION_MASK,
    SYS_PREPARED,
    SYS_TRANSACTION_MASK,
)
from imago_wire.records.record import make_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.service.delays.levels.levels import DelayService
    from imago_broker.service.puts.copies import StoredCopy
    from imago_broker.service.topics.topics import TopicService
    from imago_log.store import MessageStore
    from imago_wire.records.record import Entry, QueueTail


class NoPlaceError(ToldError, LookupError):
    """The topic of a message is gone, or cannot take it."""


_KEPT = SYS_COMPRESSED | SYS_COMPRESSION_MASK
_OF_THE_HALF = (
    b"TRAN_MSG",
    b"REAL_TOPIC",
    b"REAL_QID",
    b"TRANSACTION_CHECK_TIMES",
    b"TRAN_PREPARED_QUEUE_OFFSET",
    SHAPE,
)
"""What a committed message does not carry, and no client may bring but the first."""
_TIMED_SIZE = len(b"TIMER_OUT_MS\x01\x02") + 19
"""Bytes that its properties get more when it is committed and waits for its time."""
_REPLACED = (*_OF_THE_HALF[1:], b"__transactionId__", *props.RESERVED_NAMES)


def is_half(sys_flag: int, properties: bytes) -> bool:
    """Whether a send begins a transaction: by the property, or by the flag alone."""
    marked = props.find(properties, b"TRAN_MSG")
    said = marked is not None and marked.lower() == b"true"
    return said or sys_flag & SYS_TRANSACTION_MASK == SYS_PREPARED


def half_entry(
    tail: QueueTail,
    *,
    topic: str,
    queue_id: int,
    group: str,
    body: bytes,
    properties: bytes,
    flag: int,
    sys_flag: int,
    born_ms: int,
    born_host: bytes,
    shape: tuple[int, int] | None,
) -> Entry:
    """Return the entry of a half message for the queue `tail`.

    `shape` is that of a compressed body whose topic MetaQ clients read: found now, so that a body
    that cannot be inflated is refused and not lost when it is committed.
    """
    unique = props.find(properties, b"UNIQ_KEY") or b""
    where = real_place(topic, queue_id, shape, b"__transactionId__\x01%b\x02" % unique)
    kept = props.without(properties, _REPLACED)
    if not props.find(kept, b"PGROUP"):
        kept = joined(props.without(kept, (b"PGROUP",)), b"PGROUP\x01%b\x02" % group.encode())
    whole = joined(kept, where)
    if is_timed(kept) and len(whole) + _TIMED_SIZE > CLIENT_PROPERTIES_BYTES_MAX:
        # It would be refused when it is committed.
        raise LimitExceededError(
            "properties", size=len(whole) + _TIMED_SIZE, size_max=CLIENT_PROPERTIES_BYTES_MAX
        )
    return make_entry(
        tail,
        body,
        whole,
        flag=flag,
        sys_flag=sys_flag & _KEPT,
        born_ms=born_ms,
        born_host=born_host,
    )


def committed_entry(
    store: MessageStore, delay: DelayService, topics: TopicService, half: StoredCopy
) -> Entry:
    """Return the entry of the message that a half message stands for, its half message named.

    NoPlaceError: its topic is gone, or no longer takes it.
    """
    topic, queue = half.text(b"REAL_TOPIC"), half.text(b"REAL_QID")
    config = topics.get(topic)
    if config is None or not queue.isdecimal() or topic in names.CLOSED_TO_SENDERS:
        raise NoPlaceError(f"topic[{topic}] not exist, apply first please!")
    queue_id = min(int(queue), max(config.queues - 1, 0))
    properties, shape = props.without(half.properties, _OF_THE_HALF), shape_of(half)
    level = asked_level(props.find(properties, b"DELAY") or b"") or 0
    sys_flag = half.sys_flag & _KEPT
    now_ms = delay.now_ms()
    due_ms = (asked_ms(properties, now_ms) or 0) if is_timed(properties) and not level else 0
    waits = level or due_ms > now_ms
    named: Sequence[str] = ()
    if not waits:
        properties, named = topics.light.take_mark(topic, properties)
    try:
        topics.light.make_again(config)
        entry = message_entry(
            store,
            delay,
            level=level,
            due_ms=due_ms if due_ms > now_ms else 0,
            topic=topic,
            queue_id=queue_id,
            body=half.body,
            properties=properties,
            flag=half.flag,
            sys_flag=sys_flag if waits else sys_flag | SYS_COMMIT,
            born_ms=half.born_ms,
            born_host=half.born_host,
            reconsume_times=half.reconsume_times,
            shape=shape,
            prepared_offset=half.physical_offset,
        )
        return topics.light.late_entry(entry, named)
    except (ProtocolError, RequestError) as error:
        raise NoPlaceError(f"topic {topic}: {error}") from error
