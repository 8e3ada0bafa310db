"""What is wrong when a record cannot be read: the log itself, or the unit that led there.

Damage of the log is noted and goes out of service. A wrong unit is put right from the log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_log.borders import border_behind, first_record, segment_end
from imago_log.recovery import LogReader
from imago_log.unit_files import LOST_SIZE_FIELD
from imago_wire.hot import queue_records, view_record, whole_records
from imago_wire.layout import POSITION_UNIT, UNIT
from imago_wire.record import ScanStop

if TYPE_CHECKING:
    from imago_log.commit_log import CommitLog
    from imago_log.consume_queue import ConsumeQueue
    from imago_log.parts import Parts
    from imago_log.recovery import Extent
    from imago_wire.record import RecordView

logger = logging.getLogger(__name__)

LOOK_BACK_BYTES = 1 << 20
"""So far before a place a whole record is looked for, to follow the chain from there."""
CHUNK_BYTES = 1 << 20
UNITS_MAX = 2048
"""Units that are looked at for the wrong one: what a read takes."""
NEIGHBOURS_MAX = 64
MEND_BYTES_MAX = 64 << 20
"""Of the log, so much is searched for the record of a wrong unit."""


def find_damage(log: CommitLog, place: int, limit: int) -> Extent | None:
    """Return the damage that covers a log offset; None: whole records stand there.

    `limit` is a border behind it, such as the end of the log.
    """
    if not log.start <= place < limit:
        return None
    at, chunk = _border_before(log, place), CHUNK_BYTES
    limit = min(limit, segment_end(log, place))
    while at <= place:
        data = log.read(at, min(chunk, limit - at))
        good, stop, reason = whole_records(data, at)
        at += good
        if stop is ScanStop.BLANK or at > place:
            return None
        if good and stop in (ScanStop.END, ScanStop.SHORT) and at < limit:
            chunk = CHUNK_BYTES
        elif stop is ScanStop.SHORT and len(data) == chunk:
            chunk *= 2
        else:
            following = border_behind(log, at, limit)
            if following > place:
                return at, following, reason or _reason(stop, data)
            at = following
    return None


def _reason(stop: ScanStop, data: bytes) -> str:
    if not data:
        return "the file ends here"
    return "zeros" if stop is ScanStop.UNWRITTEN else "a cut record"


def _border_before(log: CommitLog, place: int) -> int:
    """Return where a whole record begins some way before a place, or the file."""
    base = max(place - place % log.segment_size, log.start)
    near = place - LOOK_BACK_BYTES
    if near <= base:
        return base
    found, _ = first_record(log, near, place)
    return base if found is None else found


class Inspector:
    """Looks into what readers stumble over, in the store's thread."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._log, self._damage = parts, parts.log, parts.damage
        self.mended = 0
        """Units that were wrong."""

    def look(self, place: int, queue: ConsumeQueue | None = None, offset: int = 0) -> bool:
        """Find out why the record of a queue is not at a place; false: nothing wrong was found.

        The wrong unit is at `offset` or among the next ones.
        """
        found = find_damage(self._log, place, self._log.end)
        if found is not None:
            self._damage.add(*found)
            self._damage.save_later()
            return True
        if queue is None:
            return False
        mended = self.mended
        for at in range(offset, min(offset + UNITS_MAX, queue.end)):
            if not self._is_right(queue, at):
                self._mend(queue, at)
        return self.mended > mended

    def read_through(self, start: int, end: int) -> bool:
        """Look at the first place from a border on where no whole record is, up to `end`."""
        end = min(end, self._log.end)
        at, _ = LogReader(self._log, _ignore).run(start, end)
        return at < end and self.look(at)

    def mend(self, queue: ConsumeQueue, offset: int) -> bool:
        """Put a unit right if it is wrong; true when that was done."""
        mended = self.mended
        if not self._is_right(queue, offset):
            self._mend(queue, offset)
        return self.mended > mended

    def _is_right(self, queue: ConsumeQueue, offset: int) -> bool:
        place, size, _ = queue.unit(offset)
        if size == LOST_SIZE_FIELD or self._damage.at(place) is not None:
            return True
        if not 0 < size <= self._log.segment_size:
            return False
        data = self._log.read(place, size)
        tail = queue.tail
        good = queue_records(data, place, tail.topic, tail.queue_id, offset)
        return good == size == len(data) and _is_of(queue, offset, data)

    def _mend(self, queue: ConsumeQueue, offset: int) -> None:
        """Write a unit anew, from the record that lies between those of its neighbours."""
        low, high = self._between(queue, offset)
        wanted = (queue.tail.topic, queue.tail.queue_id, offset)
        found: list[RecordView] = []

        def take(_: bytes, __: int, views: list[RecordView]) -> None:
            found.extend(v for v in views if (v.topic, v.queue_id, v.queue_offset) == wanted)

        while low < high and not found:
            low, _ = LogReader(self._log, take).run(low, high)
            damaged = self._damage.at(low)
            if damaged is None:
                break
            low = damaged.end
        if not found:
            logger.error("queue.unit-wrong queue=%s/%d offset=%d", *wanted)
            return
        rewrite(queue, found[0])
        self.mended += 1
        logger.warning("queue.unit-mended queue=%s/%d offset=%d", *wanted)

    def _between(self, queue: ConsumeQueue, offset: int) -> tuple[int, int]:
        """Return a border before the record of a unit and one behind it."""
        low, high = self._log.start, self._log.end
        for before in range(offset - 1, max(queue.first, offset - NEIGHBOURS_MAX) - 1, -1):
            place, size, _ = queue.unit(before)
            if size > 0 and place >= low and self._is_right(queue, before):
                low = place + size
                break
        for after in range(offset + 1, min(queue.end, offset + NEIGHBOURS_MAX)):
            place, size, _ = queue.unit(after)
            if size > 0 and self._is_right(queue, after) and self._damage.at(place) is None:
                high = place
                break
        return low, min(high, low + MEND_BYTES_MAX)


def _is_of(queue: ConsumeQueue, offset: int, record: bytes) -> bool:
    """Whether tag and MetaQ position in a message's units are those of its record."""
    view = view_record(record)
    if view.tag_code != queue.unit(offset)[2]:
        return False
    position = (view.metaq_position, view.metaq_size)
    return not queue.tail.dual or position == queue.position(offset)


def rewrite(queue: ConsumeQueue, view: RecordView) -> None:
    """Write the units of one message anew."""
    position = POSITION_UNIT.pack(view.metaq_position, view.metaq_size)
    unit = UNIT.pack(view.physical_offset, view.size, view.tag_code)
    queue.overwrite(view.queue_offset, unit, position if queue.tail.dual else b"")


def _ignore(_: bytes, __: int, ___: list[RecordView]) -> None:
    """Reading is enough."""
