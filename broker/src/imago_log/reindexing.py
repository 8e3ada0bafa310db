"""Queues filled from records that others wrote: the leader, or this store's own past.

A follower fills them with what its leader sends; a store that gets a topic back, because the record
that deleted it was cut off, from its own log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.dispatcher import Dispatcher
from imago_log.metadata import QUEUE_KIND
from imago_log.queues import ViewsInvalidError
from imago_log.recovery import LogReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log.consume_queue import ConsumeQueue
    from imago_log.metadata import Metadata
    from imago_log.parts import Parts
    from imago_wire.hot import QueueTail
    from imago_wire.record import RecordView


class TailFinder:
    """Finds the tail that a record's unit goes to; see `index_records`."""

    def __init__(
        self,
        metadata: Metadata,
        queue: Callable[[str, int], ConsumeQueue],
    ) -> None:
        self._metadata, self._queue = metadata, queue

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
        if offset > queue.end and queue.is_bare:
            queue.begin_at(offset, max(position, 0))
        return queue.tail


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

    at = log.start
    while at < log.end:
        at, reason = LogReader(log, take).run(at, log.end)
        if at < log.end:
            lost = parts.damage.at(at)
            if lost is None:
                raise ViewsInvalidError(f"log offset {at}: {reason}")
            at = lost.end


def begin_empty_queues(metadata: Metadata, queue: Callable[[str, int], ConsumeQueue]) -> None:
    """Let queues whose records are all gone go on where they were, not at 0."""
    for key, (offset, position) in metadata.kind(QUEUE_KIND).items():
        name, _, queue_id = key.rpartition("/")
        found = queue(name, int(queue_id))
        if offset > found.end and found.is_bare:
            found.begin_at(offset, position)
