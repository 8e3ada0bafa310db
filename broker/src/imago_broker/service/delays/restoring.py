"""Delayed messages that are due: put again, to where they belong."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_broker.errors import RequestError
from imago_broker.model import names
from imago_broker.service.puts.copies import joined
from imago_wire.errors import ProtocolError
from imago_wire.record_format import properties as props
from imago_wire.record_format.layout import (
    CLIENT_PROPERTIES_BYTES_MAX,
    SYS_COMPRESSED,
    SYS_COMPRESSION_MASK,
)
from imago_wire.records.record import make_entry

if TYPE_CHECKING:
    from imago_broker.service.puts.copies import StoredCopy
    from imago_broker.service.topics.topics import TopicService
    from imago_log.store import MessageStore
    from imago_wire.records.record import Entry

log = logging.getLogger(__name__)

SHAPE = b"IMAGO_SHAPE"
"""Property of a parked message with a compressed body: length and checksum of MetaQ's form,
found when it came. Only there; what is delivered carries it as every record does."""
_OF_THE_WAIT = (b"REAL_TOPIC", b"REAL_QID", b"DELAY", b"TIMER_OUT_MS")
"""What the broker noted while a message waited. One whose properties would be too long with what
says that it was delivered goes without these, which are always longer."""


def run_bytes_max(store: MessageStore) -> int:
    """Return how much is read at once for a run, which is to fit into one file of the log as it is
    written: with a longer topic, and with what says where each message waited.
    """
    return store.config.segment_bytes_max // 4


def restored_entry(
    store: MessageStore, topics: TopicService, parked: StoredCopy, more: bytes = b""
) -> Entry | None:
    """Return the message as it was meant, or None when there is no place for it any more.

    `more`: properties that it gets beside its own.
    """
    topic, queue = parked.text(b"REAL_TOPIC"), parked.text(b"REAL_QID")
    if names.is_derived(topic) and not names.topic_problem(topic):
        topics.ensure_own(topic)  # it may be deleted; what was given back is not to be lost
    config = topics.get(topic)
    if config is None or not queue.isdecimal() or topic in names.PARKING_TOPICS:
        log.warning("delayed_message_dropped topic=%r offset=%d", topic, parked.queue_offset)
        return None
    queue_id, handle = min(int(queue), max(config.queues - 1, 0)), topics.handles.of(topic)
    if handle is not None and queue_id < handle.partitions:
        tail = topics.handles.tail(handle, queue_id)
    else:
        try:
            topics.light.make_again(config)
        except RequestError as error:
            log.warning("delayed_message_dropped topic=%r reason=%s", topic, error)
            return None
        tail = store.tail(topic, queue_id)
    sys_flag = parked.sys_flag & (SYS_COMPRESSED | SYS_COMPRESSION_MASK)
    shape = shape_of(parked)
    if tail.dual and sys_flag and shape is None:
        # The topic was made again since, for MetaQ too. Its readers get the body as it is.
        log.warning("delayed_message_left_packed topic=%r", topic)
        sys_flag = 0
    own, named = topics.light.take_mark(topic, parked.properties)
    properties = joined(props.without(own, (SHAPE,)), more)
    if len(properties) > CLIENT_PROPERTIES_BYTES_MAX:
        properties = props.without(properties, _OF_THE_WAIT)
    try:
        entry = make_entry(
            tail,
            parked.body,
            properties,
            flag=parked.flag,
            sys_flag=sys_flag,
            born_ms=parked.born_ms,
            born_host=parked.born_host,
            reconsume_times=parked.reconsume_times,
            metaq_shape=shape,
        )
        return topics.light.late_entry(entry, named)
    except ProtocolError as error:
        log.error("delayed_message_dropped topic=%r reason=%s", topic, error)  # noqa: TRY400  the reason is all there is to say
        return None


def shape_of(parked: StoredCopy) -> tuple[int, int] | None:
    """Return the shape that was found when the message came."""
    length, comma, checksum = parked.text(SHAPE).partition(",")
    if not comma or not (length + checksum).isdecimal():
        return None
    return int(length), int(checksum)
