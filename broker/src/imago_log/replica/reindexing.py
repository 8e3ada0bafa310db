"""Queues filled from records that others wrote: the leader, or this store's own past.

A follower fills them with what its leader sends; a store that gets a topic back, because the record
that deleted it was cut off, from its own log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.views.units.lost import lose_before, lose_gap, lost_from

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log.metadata.changes import Topic
    from imago_log.state import StoreState
    from imago_log.views.units.consume_queue import ConsumeQueue
    from imago_wire.hot import QueueTail
    from imago_wire.records.record import RecordView


class TailFinder:
    """Finds the tail that a record's unit goes to; see `index_records`."""

    def __init__(self, s: StoreState, queue: Callable[[str, int], ConsumeQueue]) -> None:
        self._log, self._damage, self._metadata = s.log, s.damage, s.metadata
        self._folders, self._refiller = s.queue_folders, s.refiller
        self._queue = queue
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
        damage, log_start, (offset, _, position) = self._damage, self._log.start, record
        if offset < queue.end:
            if queue.first <= offset == max(offset, lost_from(queue, queue.end)):
                queue.truncate(offset)  # lost messages that were cut off, and are others now
        else:
            lose_before(queue, damage, topic.birth, log_start, record)
            if offset > queue.end and queue.lookup.is_bare and topic.birth < log_start:
                queue.begin_at(offset, max(position, 0))
        if offset != queue.end and self._refilled != (queue, queue.end):
            self._refilled = (queue, queue.end)
            if offset < queue.end:
                self._folders.clear(queue)  # noise in its files looks like units
            self._refiller.refill(queue, topic)
            lose_before(queue, damage, topic.birth, log_start, record)
            lose_gap(queue, damage, topic.birth, record)


class Reindexer:
    """Fills the queues of topics that are back."""

    def __init__(self, s: StoreState) -> None:
        self._log, self._metadata, self._refiller = s.log, s.metadata, s.refiller
        self._fill = s.views.queues.fill

    def reindex(self, topics: frozenset[str]) -> None:
        """Fill the queues of topics from the log, from nothing. ViewsInvalidError: it cannot be.

        Everything else that the log tells is known already.
        """
        log, names = self._log, {topic.encode() for topic in topics}

        def take(_data: bytes, _offset: int, views: list[RecordView]) -> None:
            self._fill((view for view in views if view.topic in names), log.start)

        births = [self._metadata.topics[topic].birth for topic in topics]
        at = max(log.start, min(births, default=log.start))
        self._refiller.read_to_end(at, take)
