"""Reads of the messages whose properties a filter wants: each is tested, in bounded turns.

One read checks no more messages, bytes and properties than these limits; the reader goes on from
where it ended with its next read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from imago_log.results import ReadResult, ReadStatus
from imago_log.views.units.unit_files import LOST_SIZE_FIELD
from imago_wire.hot import fitting_units, view_record
from imago_wire.record_format.layout import UNIT

if TYPE_CHECKING:
    from imago_log.commitlog.damage import Damage
    from imago_log.commitlog.records import LogRecords
    from imago_log.views.units.consume_queue import ConsumeQueue

EXAMINED_MAX = 800
"""Messages that one read inspects, as RocketMQ does, unless more are wanted."""
EXAMINED_BYTES_MAX = 4 << 20
"""Bytes of records that one read inspects, unless one message is larger."""
WORK_MAX = 8 << 20
"""Bytes of properties that one read inspects, times the filter's cost: some milliseconds."""
FIXED_WORK = 64
"""What a message without properties counts for."""
UNITS_AT_ONCE = 64


class Wanted(Protocol):
    """Says which messages a reader wants."""

    @property
    def cost(self) -> int:
        """How often it goes through a message's properties, about."""

    def matches(self, properties: bytes) -> bool:
        """Whether the message with this property string is wanted."""


class _Search:
    """What one read may still do, and what it has found."""

    __slots__ = ("_bytes", "_bytes_max", "_cost", "_messages_max", "_work", "found", "full", "size")

    def __init__(self, limits: tuple[int, int], cost: int) -> None:
        self._messages_max, self._bytes_max = max(limits[0], 1), limits[1]
        self._bytes, self._work, self._cost = EXAMINED_BYTES_MAX, WORK_MAX, cost
        self.found: list[memoryview] = []
        self.size = 0
        self.full = False

    def has_room(self, record: memoryview) -> bool:
        """Whether a wanted record fits; at least one does."""
        if self.found and self.size + len(record) > self._bytes_max:
            self.full = True
            return False
        return True

    def take(self, record: memoryview) -> None:
        self.found.append(record)
        self.size += len(record)
        self.full = len(self.found) >= self._messages_max

    def examined(self, record_size: int, properties_size: int) -> None:
        self._bytes -= record_size
        self._work -= (FIXED_WORK + properties_size) * self._cost
        if self._bytes <= 0 or self._work <= 0:
            self.full = True


def read_wanted(
    queue: ConsumeQueue,
    records: LogRecords,
    bounds: tuple[int, int],
    offset: int,
    limits: tuple[int, int],
    wanted: Wanted,
) -> ReadResult:
    """Read from one queue, at an offset within it, what a filter wants.

    Lost messages are passed over.
    """
    low, high = bounds
    search, lost, damage = _Search(limits, wanted.cost), False, records.damage
    last = min(high, offset + max(EXAMINED_MAX, limits[0]))
    while offset < last and not search.full:
        units = queue.units(offset, min(last - offset, UNITS_AT_ONCE))
        units = units[: _kept(units, damage) * UNIT.size]
        if not units:
            place = UNIT.unpack_from(queue.units(offset, 1))[0]
            if damage.may_heal(place):
                break  # the reader comes again
            damage.skip(place, 1)
            offset, last, lost = offset + 1, min(high, last + 1), True
            continue
        count, _ = fitting_units(units, EXAMINED_BYTES_MAX)
        window = records.each(queue.tail, units[: max(count, 1) * UNIT.size], offset)
        offset += _look(window, wanted, search)
    if search.found:
        body = b"".join(search.found)
        return ReadResult(ReadStatus.FOUND, offset, low, high, len(search.found), body)
    # RocketMQ's name for a record that cannot be read: its clients go on behind it at once.
    status = ReadStatus.MESSAGE_WAS_REMOVING if lost else ReadStatus.NO_MATCHED_MESSAGE
    return ReadResult(status, offset, low, high)


def _look(window: list[memoryview], wanted: Wanted, search: _Search) -> int:
    """Take what is wanted of neighbours in the queue; return how many were read."""
    for index, record in enumerate(window):
        view = view_record(record)
        start = view.properties_at
        properties = bytes(record[start : start + view.properties_size])
        if wanted.matches(properties):
            if not search.has_room(record):
                return index
            search.take(record)
        search.examined(len(record), len(properties))
        if search.full:
            return index + 1
    return len(window)


def _kept(units: bytes, damage: Damage) -> int:
    """Return how many of the units at the start lead to records that are not lost."""
    if not damage.may_lose:
        return len(units) // UNIT.size
    count = 0
    for place, size, _ in UNIT.iter_unpack(units):
        if size == LOST_SIZE_FIELD or (damage.ranges and damage.at(place) is not None):
            break
        count += 1
    return count
