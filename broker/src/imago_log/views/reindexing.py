"""Queues filled from records that others wrote: the leader, or this store's own past.

A follower fills them with what its leader sends; a store that gets a topic back, because the record
that deleted it was cut off, from its own log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_log.lifecycle.recovery import LogReader
from imago_log.metadata.state import QUEUE_KIND, queue_key
from imago_log.repair.inspecting import find_damage
from imago_log.views.dispatcher import Dispatcher
from imago_log.views.lost import lose_before, lose_gap, lost_from
from imago_log.views.queues import ViewsInvalidError
from imago_log.views.unit_files import LOST_SIZE_FIELD
from imago_log.views.unit_proof import ends_right

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log.lifecycle.parts import Parts
    from imago_log.metadata.state import Metadata, Topic
    from imago_log.views.consume_queue import ConsumeQueue
    from imago_wire.hot import QueueTail
    from imago_wire.record import RecordView


logger = logging.getLogger(__name__)


class TailFinder:
    """Finds the tail that a record's unit goes to; see `index_records`."""

    def __init__(self, parts: Parts, queue: Callable[[str, int], ConsumeQueue]) -> None:
        self._parts, self._metadata, self._queue = parts, parts.metadata, queue
        self._refilled: tuple[ConsumeQueue | None, int] = (None, -1)

    def __call__(
        self, topic: bytes, queue_id: int, offset: int, place: int, position: int
    ) -> QueueTail | None:
        name = topic.decode("utf-8", "replace")
        try:
            found = self._metadata.topic(name)
        except KeyError:
            return None  # deleted meanwhile
        if place < found.birth:
            return None  # of an earlier topic of this name
        queue = self._queue(name, queue_id)
        if offset != queue.end:
            self._reach(queue, found, (offset, place, position))
        return queue.tail

    def _reach(self, queue: ConsumeQueue, topic: Topic, record: tuple[int, int, int]) -> None:
        """Let a queue end where a record's queue offset is, if damage tells why it does not."""
        parts, (offset, _, position) = self._parts, record
        if offset < queue.end:
            if queue.first <= offset == max(offset, lost_from(queue, queue.end)):
                queue.truncate(offset)  # lost messages that were cut off, and are others now
        else:
            lose_before(queue, parts.damage, topic.birth, parts.log.start, record)
            if offset > queue.end and queue.is_bare and topic.birth < parts.log.start:
                queue.begin_at(offset, max(position, 0))
        if offset != queue.end and self._refilled != (queue, queue.end):
            self._refilled = (queue, queue.end)
            if offset < queue.end:
                parts.queues.clear(queue)  # noise in its files looks like units
            refill(parts, queue, topic)
            lose_before(queue, parts.damage, topic.birth, parts.log.start, record)
            lose_gap(queue, parts.damage, topic.birth, record)


def reindex(parts: Parts, topics: frozenset[str]) -> None:
    """Fill the queues of topics from the log, from nothing. ViewsInvalidError: it cannot be done.

    Everything else that the log tells is known already.
    """
    log, names = parts.log, {topic.encode() for topic in topics}
    parts.keys.digest()
    dispatcher = Dispatcher(
        parts.metadata, parts.queues, parts.keys, parts.damage,
        log_start=log.start, queues_from=log.start,
    )  # fmt: skip

    def take(data: bytes, offset: int, views: list[RecordView]) -> None:
        dispatcher.block(data, offset, [view for view in views if view.topic in names])

    births = [parts.metadata.topics[topic].birth for topic in topics]
    at = max(log.start, min(births, default=log.start))
    _read_to_end(parts, at, take)


def _read_to_end(
    parts: Parts, at: int, take: Callable[[bytes, int, list[RecordView]], None]
) -> None:
    """Read the log from a border on; what is found to be damaged is noted and passed over."""
    log, damage = parts.log, parts.damage
    while at < log.end:
        at, reason = LogReader(log, take).run(at, log.end)
        if at < log.end and damage.at(at) is None:
            found = find_damage(log, at, log.end, parts.witness)
            if found is None:
                raise ViewsInvalidError(f"log offset {at}: {reason}")
            damage.add(*found)
            damage.save_later()
        lost = damage.at(at)
        if lost is not None:
            at = lost.end


def refill(parts: Parts, queue: ConsumeQueue, topic: Topic) -> None:
    """Give a queue the units that its files have lost: those behind its newest one, from the log.

    What is lost between is not told by damage of the log: its own files are damaged.
    """
    log, name, queue_id = parts.log, queue.tail.topic, queue.tail.queue_id
    before = queue.end

    def take(_: bytes, __: int, views: list[RecordView]) -> None:
        for view in views:
            if (view.topic, view.queue_id) == (name, queue_id) and view.queue_offset >= queue.end:
                _add_behind_gap(parts, queue, topic, view)

    at = max(log.start, topic.birth)
    if queue.end > queue.first:
        place, size, _ = queue.unit(queue.end - 1)
        if not ends_right(parts, queue, log.end):
            parts.queues.clear(queue)
        elif size != LOST_SIZE_FIELD and parts.damage.at(place) is None:
            if place < log.start:
                parts.queues.clear(queue)  # what it has has expired
            else:
                at = place + size
    _read_to_end(parts, at, take)
    _begin_empty(queue, parts.metadata.kind(QUEUE_KIND).get(queue_key(topic.name, queue_id)))
    parts.materialiser.rebuild(topic.name, queue_id, log.start)
    logger.warning("queue.refilled queue=%s/%d from=%d to=%d", name, queue_id, before, queue.end)


def add_record(parts: Parts, queue: ConsumeQueue, topic: Topic, view: RecordView) -> bool:
    """Append the units of a record behind a queue's end; false: those before it are missing."""
    offset, place = view.queue_offset, view.physical_offset
    record = (offset, place, view.metaq_position)
    lose_before(queue, parts.damage, topic.birth, parts.log.start, record)
    if offset > queue.end and queue.is_bare and topic.birth < parts.log.start:
        queue.begin_at(offset, max(view.metaq_position, 0))
    position = (view.metaq_position, view.metaq_size)
    return queue.add(place, view.size, view.tag_code, offset, position)


def _add_behind_gap(parts: Parts, queue: ConsumeQueue, topic: Topic, view: RecordView) -> None:
    """Append the units of a record that all records before it have been looked for."""
    if add_record(parts, queue, topic, view):
        return
    record = (view.queue_offset, view.physical_offset, view.metaq_position)
    if lose_gap(queue, parts.damage, topic.birth, record):
        add_record(parts, queue, topic, view)


def _begin_empty(queue: ConsumeQueue, end: tuple[int, int] | None) -> None:
    """Let a queue whose records are all gone go on where it was: queue offset and position."""
    if end is not None and end[0] > queue.end and queue.is_bare:
        queue.begin_at(*end)


def begin_empty_queues(metadata: Metadata, queue: Callable[[str, int], ConsumeQueue]) -> None:
    """Let queues whose records are all gone go on where they were, not at 0."""
    for key, end in metadata.kind(QUEUE_KIND).items():
        name, _, queue_id = key.rpartition("/")
        try:
            found = queue(name, int(queue_id))
        except KeyError:
            continue  # its creation is lost in damage
        _begin_empty(found, end)
