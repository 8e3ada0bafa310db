"""Reads by MetaQ position."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from imago_log.errors import NoSpaceError, UnreadableError
from imago_log.results import MetaqRead, MetaqStatus
from imago_log.views.metaq.metaq_batch import first_messages
from imago_log.views.units.lost import UNITS_AT_ONCE, first_kept, first_lost

if TYPE_CHECKING:
    from imago_log.commitlog.damage import Damage
    from imago_log.commitlog.records import LogRecords
    from imago_log.reading.remote import Remote
    from imago_log.reading.rereading import Rereader
    from imago_log.results import FileSlice
    from imago_log.state import StoreState
    from imago_log.views.directory import QueueDirectory
    from imago_log.views.metaq.metaq_segments import MetaqSegments
    from imago_log.views.units.consume_queue import ConsumeQueue

SLICE_BYTES_MIN = 64 << 10
"""Shorter reads of a file are returned as bytes: sendfile would cost more than it saves."""


class PositionReader:
    """Reads messages in MetaQ's form, from its own files where there are any."""

    def __init__(self, s: StoreState, directory: QueueDirectory, rereader: Rereader) -> None:
        self._log, self._damage, self._records = s.log, s.damage, s.records
        self._directory, self._visibility = directory, s.visibility
        self._materialiser, self._rereader = s.materialiser, rereader
        self._metadata = s.metadata
        self.remote: Remote | None = None
        """What of the queues comes before what is here; None: nothing."""

    def read_remote(self, remote: Remote) -> None:
        """Find there what comes before the log's start."""
        self.remote = remote

    def position_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the smallest stored and the visible end MetaQ position; (0, 0) when unknown."""
        queue = self._directory.find(topic, queue_id)
        if queue is None or not queue.tail.dual:
            return 0, 0
        _, _, low, high = self._visible(queue)
        if low and self.remote is not None:
            one = self._metadata.topic(topic).incarnation
            low = self.remote.low_position((topic, queue_id), one, low)
        return low, high

    def position_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the MetaQ position of a queue offset, both clamped to what is stored."""
        queue = self._directory.find(topic, queue_id)
        if queue is None or not queue.tail.dual:
            return 0
        low, high, low_position, high_position = self._visible(queue)
        if offset >= high:
            return high_position
        return max(low_position, queue.position(max(offset, low))[0])

    def offset_of(self, topic: str, queue_id: int, position: int) -> int:
        """Return the queue offset of the first message at or after a MetaQ position."""
        queue = self._directory.find(topic, queue_id)
        if queue is None or not queue.tail.dual:
            return 0
        low, high = self._visibility.bounds(queue)
        return min(high, queue.lookup.offset_of_position(position, low))

    def read(self, topic: str, queue_id: int, position: int, bytes_max: int) -> MetaqRead:
        """Return messages in MetaQ's form from a position on.

        A position inside a message stands for the next message, so nothing is skipped.
        """
        queue = self._directory.find(topic, queue_id)
        if queue is None or not queue.tail.dual or not queue.tail.next_offset:
            return MetaqRead(MetaqStatus.NO_QUEUE, position, 0, 0)
        if self.remote is not None and position < (visible := self._visible(queue)[2:])[0]:
            key, one = (topic, queue_id), self._metadata.topic(topic).incarnation
            return self.remote.read_positions(key, one, visible, position, bytes_max)
        try:
            return self._read(queue, position, bytes_max)
        except UnreadableError as error:
            read = partial(self._read, queue, position, bytes_max)
            low = queue.lookup.min_offset(self._log.start)
            offset = max(low, queue.lookup.offset_of_position(position, low) - 1)
            low_position, high_position = self._visible(queue)[2:]
            later = MetaqRead(MetaqStatus.AT_END, position, low_position, high_position)
            return self._rereader.read(error, queue, offset, read, later)

    def _read(self, queue: ConsumeQueue, position: int, bytes_max: int) -> MetaqRead:
        materialiser = self._materialiser
        segments = materialiser.get(queue.tail.topic.decode(), queue.tail.queue_id)
        visible = self._visible_in(queue, segments)
        if self._damage.may_lose:
            kept = self._up_to_damage(queue, visible, position, bytes_max)
            if isinstance(kept, MetaqRead):
                return kept
            visible = kept
        records = self._records
        try:
            read = read_positions(queue, records, segments, visible, position, bytes_max)
        except WrongFilesError:
            name, queue_id = queue.tail.topic.decode(), queue.tail.queue_id
            materialiser.make_again(name, queue_id)
            read = read_positions(queue, records, None, visible, position, bytes_max)
        if segments is not None and (read.behind or materialiser.is_due):
            with suppress(NoSpaceError):  # the next tick sees it too
                # Without traffic nothing else would for a second.
                materialiser.advance(beside_readers=read.behind)
        return read

    def _up_to_damage(
        self,
        queue: ConsumeQueue,
        visible: tuple[int, int, int, int],
        position: int,
        bytes_max: int,
    ) -> tuple[int, int, int, int] | MetaqRead:
        """Let a read end before the first lost message, or lead it past those that it begins at."""
        low, high, low_position, high_position = visible
        if not low_position <= position < high_position:
            return visible
        damage = self._damage
        offset = queue.lookup.offset_of_position(position, low)
        lost = _kept_until(queue, damage, offset, high, bytes_max)
        if lost > offset or lost == high:
            return low, max(lost, min(high, offset)), low_position, high_position
        if damage.may_heal(queue.unit(offset)[0]):  # the reader comes again
            return MetaqRead(MetaqStatus.AT_END, position, low_position, high_position)
        kept = first_kept(queue, damage, offset, high)
        damage.skip(queue.unit(offset)[0], kept - offset)
        behind = queue.position(kept)[0] if kept < high else high_position
        if behind == position:  # the lost ones take no room: the next message begins here, too
            lost = _kept_until(queue, damage, kept, high, bytes_max)
            return kept, lost, low_position, high_position
        return MetaqRead(MetaqStatus.LOST, behind, low_position, high_position)

    def _visible(self, queue: ConsumeQueue) -> tuple[int, int, int, int]:
        tail = queue.tail
        segments = self._materialiser.get(tail.topic.decode(), tail.queue_id)
        return self._visible_in(queue, segments)

    def _visible_in(
        self, queue: ConsumeQueue, segments: MetaqSegments | None
    ) -> tuple[int, int, int, int]:
        low, high = self._visibility.bounds(queue)
        tail = queue.tail
        end = tail.next_offset
        low_position = queue.lookup.first_position(low) if low < end else tail.next_position
        high_position = queue.position(high)[0] if high < end else tail.next_position
        if segments is not None:
            low_position = min(max(low_position, segments.min_position), high_position)
        return low, high, low_position, high_position


def _kept_until(queue: ConsumeQueue, damage: Damage, offset: int, high: int, bytes_max: int) -> int:
    """Return the first lost message from an offset on, or one that a read does not reach."""
    end_position = queue.position(offset)[0] + bytes_max if offset < high else 0
    while offset < high:
        last = min(high, offset + UNITS_AT_ONCE)
        lost = first_lost(queue, damage, offset, last)
        if lost < last or last == high or queue.position(last)[0] >= end_position:
            return lost
        offset = last
    return offset


class WrongFilesError(Exception):
    """MetaQ's files do not hold what they should: they are to be made again."""


def read_positions(
    queue: ConsumeQueue,
    records: LogRecords,
    segments: MetaqSegments | None,
    visible: tuple[int, int, int, int],
    position: int,
    bytes_max: int,
) -> MetaqRead:
    """Read from one dual queue; `visible` is (min offset, end offset, min and end position)."""
    low, high, position_min, position_max = visible
    if position < position_min:
        return MetaqRead(MetaqStatus.TOO_SMALL, position_min, position_min, position_max)
    if position >= position_max:
        status = MetaqStatus.AT_END if position == position_max else MetaqStatus.BEYOND_END
        return MetaqRead(status, position_max, position_min, position_max)
    offset = queue.lookup.offset_of_position(position, low)
    if offset >= high:  # inside the last message
        return MetaqRead(MetaqStatus.AT_END, position_max, position_min, position_max)
    start, count, end = first_messages(queue, offset, high, bytes_max)
    size = end - start
    if count:
        queue.lookup.remember(end, offset + count)
    if size < bytes_max and offset + count < high:  # the next message is cut
        at, length = queue.position(offset + count)
        count, end = count + 1, at + length
        size = min(bytes_max, end - start)
    kept = None if segments is None else _kept(segments, start, end, size)
    if kept is not None:
        return MetaqRead(MetaqStatus.FOUND, start, position_min, position_max, kept)
    units = queue.units(offset, count)
    data = records.metaq(queue.tail, units, offset, (start, end), size)
    behind = not records.are_recent(units)
    return MetaqRead(MetaqStatus.FOUND, start, position_min, position_max, data, behind)


def _kept(segments: MetaqSegments, start: int, end: int, size: int) -> FileSlice | bytes | None:
    """Return what a file of MetaQ's has of the first `size` bytes of messages, None: nothing."""
    found = segments.slice(start, end - start)
    if found is None:
        return None
    # A shorter slice is whole messages too: files end at message borders.
    if not segments.verify(start, found.size):
        raise WrongFilesError
    if found.size > size:
        found = found._replace(size=size)
    return found if found.size >= SLICE_BYTES_MIN else found.read()
