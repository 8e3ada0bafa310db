"""Reading what a store holds: bounds of queues, messages by offset, position, time and key.

The queues and their tails are opened here when they are first asked for.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from imago_log.errors import NoSpaceError, UnreadableError
from imago_log.lifecycle.parts import ALL_VISIBLE
from imago_log.reading import by_offset
from imago_log.reading.by_position import MESSAGES_MAX, WrongFilesError, read_positions
from imago_log.repair.inspecting import Inspector, Look
from imago_log.results import MetaqRead, MetaqStatus, ReadResult, ReadStatus
from imago_log.views.lost import first_kept, first_lost, is_lost
from imago_wire.hot import view_record
from imago_wire.layout import UNIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log.lifecycle.parts import Parts
    from imago_log.metadata.producers import Producers
    from imago_log.views.consume_queue import ConsumeQueue
    from imago_wire.hot import QueueTail
    from imago_wire.record import Placed, RecordView


logger = logging.getLogger(__name__)

LOOKS_MAX = 4096
"""Damaged messages that one read finds: more than it returns."""

_Read = TypeVar("_Read")


class QueueReader:
    """The reading half of a store."""

    def __init__(self, parts: Parts, submit: Callable[[Callable[[], None]], None]) -> None:
        self._parts = parts
        self._log, self._queues, self._recent = parts.log, parts.queues, parts.recent
        self._metadata = parts.metadata
        self._tails: dict[tuple[str, int], QueueTail] = {}
        self._inspector = Inspector(parts, submit)
        parts.materialiser.unreadable = self._look

    # Ends

    @property
    def log_start(self) -> int:
        """Physical offset of the oldest record that is kept."""
        return self._log.start

    @property
    def log_end(self) -> int:
        """Physical offset that the next record gets, unless it needs a new file."""
        return self._log.end

    @property
    def durable_end(self) -> int:
        """Everything below is on the device."""
        return self._log.durable_end

    @property
    def newest_ms(self) -> int:
        """Store time of the newest record; times of the log never go back."""
        return self._parts.store_ms

    @property
    def high_watermark(self) -> int:
        """Everything below is visible to readers; the log's end while there is one member."""
        return min(self._parts.watermark, self._log.end)

    def set_high_watermark(self, offset: int) -> None:
        """Make everything below visible, and nothing else; a record border, never goes back.

        Never above the log's end. From the first call on the log has several members: without
        one, all that is written is visible at once.
        """
        parts = self._parts
        offset = min(offset, self._log.end)
        if parts.watermark == ALL_VISIBLE or offset > parts.watermark:
            parts.watermark = offset

    # Queues

    def tail(self, topic: str, queue_id: int) -> QueueTail:
        """Return the handle that entries of this queue carry; KeyError for an unknown topic.

        The queue is made when it does not exist. A handle dies with its topic: take a new one
        after delete and create.
        """
        found = self._tails.get((topic, queue_id))
        if found is not None:
            return found
        return self._open_queue(topic, queue_id).tail

    def _open_queue(self, name: str, queue_id: int) -> ConsumeQueue:
        topic = self._metadata.topic(name)
        known = self._queues.find(name, queue_id) is not None
        queue = self._queues.get(topic, queue_id)
        self._tails[name, queue_id] = queue.tail
        if topic.materialised and (not known or not self._parts.materialiser.get(name, queue_id)):
            self._parts.materialiser.open(topic, queue, self._log.start)
        return queue

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue that exists, without making one."""
        queue = self._queues.find(topic, queue_id)
        if queue is not None and (topic, queue_id) in self._tails:
            return queue
        try:
            if queue is None and not self._queues.is_on_disk(topic, queue_id):
                return None
            return self._open_queue(topic, queue_id)
        except KeyError:
            return None

    def _queue_to_fill(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue, made when it does not exist; KeyError for an unknown topic."""
        queue = self._queues.find(topic, queue_id)
        if queue is not None and (topic, queue_id) in self._tails:
            return queue
        return self._open_queue(topic, queue_id)

    def incarnation(self, topic: str) -> int | None:
        """Return what tells a topic from earlier ones of its name, on all members of the shard."""
        found = self._metadata.topics.get(topic)
        return None if found is None else found.incarnation

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the smallest stored and the visible end queue offset; (0, 0) when unknown."""
        queue = self._queue(topic, queue_id)
        return (0, 0) if queue is None else self._bounds(queue)

    def position_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the smallest stored and the visible end MetaQ position; (0, 0) when unknown."""
        queue = self._queue(topic, queue_id)
        return (0, 0) if queue is None or not queue.tail.dual else self._visible(queue)[2:]

    def _bounds(self, queue: ConsumeQueue) -> tuple[int, int]:
        low = queue.min_offset(self._log.start)
        watermark = self._parts.watermark
        if watermark < self._log.end:
            return low, max(low, queue.end_below(watermark))
        return low, queue.tail.next_offset

    def _visible(self, queue: ConsumeQueue) -> tuple[int, int, int, int]:
        low, high = self._bounds(queue)
        end = queue.end
        tail = queue.tail
        low_position = queue.first_position(low) if low < end else tail.next_position
        high_position = queue.position(high)[0] if high < end else tail.next_position
        segments = self._parts.materialiser.get(tail.topic.decode(), tail.queue_id)
        if segments is not None:
            low_position = min(max(low_position, segments.min_position), high_position)
        return low, high, low_position, high_position

    # Reading

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        messages_max: int,
        bytes_max: int,
        tags: frozenset[int] | None = None,
    ) -> ReadResult:
        """Return records from a queue offset on, at least one if there is one to return.

        `tags`: signed 32-bit hashes of the wanted tags; None wants all. Messages that are lost in
        a damaged part of the log are passed over.
        """
        queue = self._queue(topic, queue_id)
        bounds = (0, 0) if queue is None else self._bounds(queue)
        limits = (messages_max, bytes_max)
        records = self._parts.records
        try:
            return by_offset.read_queue(queue, records, bounds, offset, limits, tags)
        except UnreadableError as error:
            low, high = bounds

            def read() -> ReadResult:
                again = (0, 0) if queue is None else self._bounds(queue)
                return by_offset.read_queue(queue, records, again, offset, limits, tags)

            later = ReadResult(ReadStatus.MESSAGE_WAS_REMOVING, offset, low, high)
            return self._read_again(error, queue, max(offset, low), read, later)

    def _read_again(
        self,
        error: UnreadableError,
        queue: ConsumeQueue | None,
        offset: int,
        read: Callable[[], _Read],
        pending: _Read | None = None,
    ) -> _Read:
        """Read again whenever it has become clear what was in the way. CorruptLogError: it has not.

        While it is being looked at, `pending` is the answer: that the reader is to come again.
        Each time something is known that was not before, so there are as many as damaged messages.
        """
        for _ in range(LOOKS_MAX):
            seen = self._inspector.look(error.place, queue, max(offset, error.offset))
            if seen is Look.PENDING and pending is not None:
                return pending
            if seen is Look.PENDING:
                raise error
            if seen is Look.NOTHING:
                break
            try:
                return read()
            except UnreadableError as further:
                error = further
        self._parts.folder.forget_views()
        logger.error("views.wrong error=%s: the next start builds them anew", error)
        raise error

    def _look(self, queue: ConsumeQueue, error: UnreadableError) -> bool:
        return self._inspector.look(error.place, queue, error.offset) is not Look.NOTHING

    def read_positions(self, topic: str, queue_id: int, position: int, bytes_max: int) -> MetaqRead:
        """Return messages in MetaQ's form from a position on.

        A position inside a message stands for the next message, so nothing is skipped.
        """
        queue = self._queue(topic, queue_id)
        if queue is None or not queue.tail.dual or not queue.end:
            return MetaqRead(MetaqStatus.NO_QUEUE, position, 0, 0)
        try:
            return self._read_positions(queue, position, bytes_max)
        except UnreadableError as error:
            read = partial(self._read_positions, queue, position, bytes_max)
            low = queue.min_offset(self._log.start)
            offset = max(low, queue.offset_of_position(position, low) - 1)
            low_position, high_position = self._visible(queue)[2:]
            later = MetaqRead(MetaqStatus.AT_END, position, low_position, high_position)
            return self._read_again(error, queue, offset, read, later)

    def _read_positions(self, queue: ConsumeQueue, position: int, bytes_max: int) -> MetaqRead:
        materialiser = self._parts.materialiser
        segments = materialiser.get(queue.tail.topic.decode(), queue.tail.queue_id)
        visible = self._visible(queue)
        if self._parts.damage.may_lose:
            kept = self._up_to_damage(queue, visible, position)
            if isinstance(kept, MetaqRead):
                return kept
            visible = kept
        records = self._parts.records
        try:
            read = read_positions(queue, records, segments, visible, position, bytes_max)
        except WrongFilesError:
            name, queue_id = queue.tail.topic.decode(), queue.tail.queue_id
            materialiser.rebuild(name, queue_id, self._log.start)
            read = read_positions(queue, records, None, visible, position, bytes_max)
        if read.behind and segments is not None:
            with suppress(NoSpaceError):  # the next tick sees it too
                materialiser.advance()  # without traffic nothing else would for a second
        return read

    def _up_to_damage(
        self, queue: ConsumeQueue, visible: tuple[int, int, int, int], position: int
    ) -> tuple[int, int, int, int] | MetaqRead:
        """Let a read end before the first lost message, or lead it past those that it begins at."""
        low, high, low_position, high_position = visible
        if not low_position <= position < high_position:
            return visible
        damage = self._parts.damage
        offset = queue.offset_of_position(position, low)
        lost = first_lost(queue, damage, offset, min(high, offset + MESSAGES_MAX))
        if lost > offset or lost == high:
            return low, max(lost, min(high, offset)), low_position, high_position
        if damage.may_heal(queue.unit(offset)[0]):  # the reader comes again
            return MetaqRead(MetaqStatus.AT_END, position, low_position, high_position)
        kept = first_kept(queue, damage, offset, high)
        damage.skip(queue.unit(offset)[0], kept - offset)
        behind = queue.position(kept)[0] if kept < high else high_position
        if behind == position:  # the lost ones take no room: the next message begins here, too
            lost = first_lost(queue, damage, kept, min(high, kept + MESSAGES_MAX))
            return kept, lost, low_position, high_position
        return MetaqRead(MetaqStatus.LOST, behind, low_position, high_position)

    def record_at(self, physical_offset: int) -> bytes | None:
        """Return the whole record that starts there, or None: there is none, or not visible.

        Its queue must know it, so that of a deleted topic is found no more: a body may hold what
        looks like a record of its own place.
        """
        if physical_offset >= self._parts.watermark:
            return None
        found = self._parts.records.whole(physical_offset)
        if found is None:
            if self._log.start <= physical_offset < self._log.end:
                self._inspector.look(physical_offset)
            return None
        return found if self._is_named(view_record(found)) else None

    def _is_named(self, view: RecordView) -> bool:
        """Whether the unit of its queue names a record."""
        queue = self._queue(view.topic.decode("utf-8", "replace"), view.queue_id)
        if queue is None or not queue.first <= view.queue_offset < queue.end:
            return False
        return queue.unit(view.queue_offset)[:2] == (view.physical_offset, view.size)

    def offset_by_time(self, topic: str, queue_id: int, ms: int, *, upper: bool = False) -> int:
        """Return the first offset stored at or after `ms`; `upper`: the last at or before it."""
        queue = self._queue(topic, queue_id)
        if queue is None:
            return 0
        bounds = self._bounds(queue)
        records = self._parts.records
        read = partial(by_offset.offset_by_time, queue, records, bounds, ms, upper=upper)
        try:
            return read()
        except UnreadableError as error:
            return self._read_again(error, queue, bounds[0], read)

    def position_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the MetaQ position of a queue offset, both clamped to what is stored."""
        queue = self._queue(topic, queue_id)
        if queue is None or not queue.tail.dual:
            return 0
        low, high, low_position, high_position = self._visible(queue)
        if offset >= high:
            return high_position
        return max(low_position, queue.position(max(offset, low))[0])

    def offset_of(self, topic: str, queue_id: int, position: int) -> int:
        """Return the queue offset of the first message at or after a MetaQ position."""
        queue = self._queue(topic, queue_id)
        if queue is None or not queue.tail.dual:
            return 0
        low, high = self._bounds(queue)
        return min(high, queue.offset_of_position(position, low))

    @property
    def producers(self) -> Producers:
        """What idempotent producers have sent, at the log's end. Only to be asked."""
        return self._metadata.producers

    def placed(self, topic: str, queue_id: int, offset: int, count: int) -> list[Placed]:
        """Return where `count` stored messages from a queue offset on are, as `append` told it.

        Without their MetaQ positions and ids; empty where the queue no longer knows all of them.
        """
        queue = self._queue(topic, queue_id)
        if queue is None or offset < queue.first or offset + count > queue.end:
            return []
        units = UNIT.iter_unpack(queue.units(offset, count))
        return [(offset + i, place, size, -1, -1) for i, (place, size, _) in enumerate(units)]

    def store_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Return the store time of one message in epoch milliseconds, or None."""
        queue = self._queue(topic, queue_id)
        if queue is None:
            return None
        low, high = self._bounds(queue)
        if not low <= offset < high:
            return None
        read = partial(self._store_time, queue, offset)
        try:
            return read()
        except UnreadableError as error:
            return self._read_again(error, queue, offset, read)

    def _store_time(self, queue: ConsumeQueue, offset: int) -> int | None:
        place, size, _ = queue.unit(offset)
        lost = is_lost(self._parts.damage, place, size)
        return None if lost else self._parts.records.store_ms(place, offset)

    def find_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int
    ) -> list[bytes]:
        """Return whole records whose KEYS or UNIQ_KEY holds the key, oldest first.

        Of more than `count_max` the newest.
        """
        places = (self._log.start, self.high_watermark)
        times = (begin_ms, end_ms)
        parts = self._parts
        return by_offset.find_key(parts.keys, parts.records, (topic, key), places, times, count_max)
