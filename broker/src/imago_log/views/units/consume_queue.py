"""One queue: from queue offset to log offset, size and tag, and to MetaQ position.

Two sequences of units with the same index: RocketMQ's 20 bytes (i64 log offset, i32 size, i64 tag
code) and, where the topic is dual, 12 bytes (i64 position, i32 size in MetaQ's form). The newest
units are in the queue's tail, where the record builder puts them; `write_behind` moves them to
the files. A view: all of it can be built again from the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.views.units.unit_files import BLANK_SIZE_FIELD, LOST_SIZE_FIELD, UnitFiles
from imago_log.views.units.unit_lookup import UnitLookup
from imago_wire.record_format.layout import DEAD_OFFSET, POSITION_UNIT, UNIT
from imago_wire.record_format.references import LIGHT_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_wire.hot import QueueTail

UNIT_SIZE = UNIT.size
POSITION_SIZE = POSITION_UNIT.size


class ConsumeQueue:
    """The index of one queue. `tail` is shared with every entry of the queue."""

    __slots__ = (
        "_positions",
        "_rewritten",
        "_units",
        "light",
        "lookup",
        "synced",
        "tail",
    )

    def __init__(self, tail: QueueTail, units: UnitFiles, positions: UnitFiles | None) -> None:
        self.tail, self._units, self._positions = tail, units, positions
        self.light = tail.topic.startswith(LIGHT_PREFIX.encode())
        """Whether records may be there that refer to messages in other queues."""
        self.synced = units.end
        """Units before it are on the device."""
        self._rewritten: int | None = None
        """The first unit written again since a sync was planned."""
        self.lookup = UnitLookup(self)
        self._take_ends()

    def load(self) -> None:
        """Find what the files hold."""
        for files in self.files():
            files.load()
        self.synced = self._units.end
        self._take_ends()

    def reload(self) -> None:
        """Find again what the files hold, and forget what is in memory."""
        self.tail.units.clear()
        self.tail.positions.clear()
        self.load()
        self._rewrote(self.first)
        self.lookup.forget()

    @property
    def agrees(self) -> bool:
        """Whether both sequences hold the same offsets."""
        positions, units = self._positions, self._units
        return positions is None or (positions.first, positions.end) == (units.first, units.end)

    @property
    def exists(self) -> bool:
        """Whether it has files."""
        return self._units.exists

    @property
    def written(self) -> int:
        """Units before it are in the files."""
        return self._units.end

    def _take_ends(self) -> None:
        self.tail.next_offset = self._units.end
        if self._positions is not None:
            self.tail.next_position = _end_position(self._units, self._positions)

    # Reading

    @property
    def first(self) -> int:
        """The first unit that is kept, whether or not its record still is."""
        return self._units.first

    @property
    def end(self) -> int:
        """The queue offset that the next record gets."""
        return self.tail.next_offset

    def units(self, start: int, count: int) -> bytes:
        """Return up to `count` units from `start` on, which is within first … end."""
        return _joined(self._units, self.tail.units, UNIT_SIZE, start, count)

    def unit(self, offset: int) -> tuple[int, int, int]:
        """Return log offset, size and tag code of one message."""
        return UNIT.unpack(self.units(offset, 1))

    def position_units(self, start: int, count: int) -> bytes:
        """Return up to `count` 12-byte units; the queue is dual."""
        assert self._positions is not None, "only dual queues have positions"
        return _joined(self._positions, self.tail.positions, POSITION_SIZE, start, count)

    def position(self, offset: int) -> tuple[int, int]:
        """Return MetaQ position and size of one message of a dual queue."""
        return POSITION_UNIT.unpack(self.position_units(offset, 1))

    # Writing behind

    def write_behind(self) -> None:
        """Move the units from memory to the files."""
        tail = self.tail
        for files in self.files():
            files.settle()
        if self._positions is not None:
            _move(tail.positions, self._positions, POSITION_SIZE)
        _move(tail.units, self._units, UNIT_SIZE)

    def files(self) -> Iterator[UnitFiles]:
        """The sequences of files behind the queue."""
        yield self._units
        if self._positions is not None:
            yield self._positions

    def drop_before(self, offset: int) -> None:
        """Remove the files whose messages are all before `offset`.

        The newest synced unit stays: offset and position of the next message come from it.
        """
        for files in self.files():
            files.drop_before(min(offset, self.synced - 1))

    # Rebuilding

    def add(self, place: int, size: int, tag: int, offset: int, position: tuple[int, int]) -> bool:
        """Append the unit of a record read back from the log, unless it is there already.

        False: the queue does not reach up to this record, so units before it are missing.
        """
        tail = self.tail
        if offset < tail.next_offset:
            return True
        if offset > tail.next_offset:
            if tail.next_offset or any(files.exists for files in self.files()):
                return False
            self.begin_at(offset, position[0])
        tail.units += UNIT.pack(place, size, tag)
        tail.next_offset = offset + 1
        if tail.dual:
            tail.positions += POSITION_UNIT.pack(*position)
            tail.next_position = position[0] + position[1]
        return True

    def lose(self, end: int, position: int, place: int) -> None:
        """Let lost units stand for the messages up to `end`, which are damaged in the log.

        They tell where the damage begins, where the first of them began by position, and, in place
        of a tag, where the last one ended.
        """
        tail = self.tail
        count = end - tail.next_offset
        tail.units += UNIT.pack(place, LOST_SIZE_FIELD, position if tail.dual else 0) * count
        tail.next_offset = end
        if tail.dual:
            tail.positions += POSITION_UNIT.pack(tail.next_position, LOST_SIZE_FIELD) * count
            tail.next_position = position
        self.lookup.forget_end_below()

    def overwrite(self, offset: int, units: bytes, positions: bytes) -> None:
        """Write units again that are there already, in the files or in memory."""
        for files, memory, data, unit in (
            (self._units, self.tail.units, units, UNIT_SIZE),
            (self._positions, self.tail.positions, positions, POSITION_SIZE),
        ):
            if files is not None:
                filed = max(0, files.end - offset) * unit
                files.overwrite(offset, data[:filed])
                at = max(0, offset - files.end) * unit
                memory[at : at + len(data[filed:])] = data[filed:]
        if self.tail.dual and offset + len(units) // UNIT_SIZE == self.end:
            position, size = self.position(self.end - 1)
            if size not in (BLANK_SIZE_FIELD, LOST_SIZE_FIELD):
                self.tail.next_position = position + size
        self._rewrote(offset)
        self.lookup.forget()

    def _rewrote(self, offset: int) -> None:
        self.synced = min(self.synced, offset)
        self._rewritten = offset if self._rewritten is None else min(self._rewritten, offset)

    def plan_sync(self) -> tuple[int, int]:
        """Return up to where the files are synced, and up to where they will be."""
        self._rewritten = None
        return self.synced, self.written

    def mark_synced(self, end: int) -> None:
        """Note that what was planned is on the device; what was written again since is not."""
        synced = max(self.synced, min(end, self.written))
        self.synced = synced if self._rewritten is None else min(synced, self._rewritten)

    def reach_back(self, offset: int) -> None:
        """Let the files begin at or before an offset whose record is there again."""
        if offset >= self.first:
            return
        if self._positions is not None:
            position, _ = self.position(self.first)
            self._positions.reach_back(offset, POSITION_UNIT.pack(position, BLANK_SIZE_FIELD))
        self._units.reach_back(offset, UNIT.pack(0, BLANK_SIZE_FIELD, 0))
        self._rewrote(self.first)
        self.lookup.forget_bounds()

    def begin_at(self, offset: int, position: int) -> None:
        """Let an empty queue begin where its messages, which are gone, have ended.

        Blank units stand for them, in RocketMQ's form; those of the positions repeat where the
        next message is.
        """
        self._units.start_at(offset, UNIT.pack(0, BLANK_SIZE_FIELD, 0))
        if self._positions is not None:
            self._positions.start_at(offset, POSITION_UNIT.pack(position, BLANK_SIZE_FIELD))
        self._take_ends()
        self.lookup.forget_bounds()

    def truncate(self, end: int, *, torn: bool = False) -> None:
        """Forget the units from `end` on; with `torn` also what the files hold behind their end."""
        self.write_behind()
        if torn or end < self._units.end:
            self.synced = min(self.synced, end - 1)  # that something was cut is to be synced
        for files in self.files():
            files.truncate(max(end, files.first), torn=torn)
        self.lookup.forget()
        self._take_ends()


def owes(queue: ConsumeQueue) -> bool:
    """Whether what a queue begins with is not in its files, for want of room."""
    return any(files.owes for files in queue.files())


def end_tail(queue: ConsumeQueue) -> None:
    """Refuse holders of the queue's tail, until the queue is loaded again."""
    queue.tail.next_offset = DEAD_OFFSET


def _joined(files: UnitFiles, memory: bytearray, unit: int, start: int, count: int) -> bytes:
    """Return units from the files, from memory, or from both."""
    at = start - files.end
    if at >= 0:
        return bytes(memory[at * unit : (at + count) * unit])
    data = files.read(start, count)
    missing = count - len(data) // unit
    return data + memory[: missing * unit] if missing > 0 else data


def _move(memory: bytearray, files: UnitFiles, unit: int) -> None:
    """Move units from memory to files; units without room stay in memory."""
    if not memory:
        return
    end = files.end
    try:
        files.append(bytes(memory))
    finally:
        del memory[: (files.end - end) * unit]


def _end_position(units: UnitFiles, positions: UnitFiles) -> int:
    if positions.end == positions.first:
        return 0
    position, size = POSITION_UNIT.unpack(positions.read(positions.end - 1, 1))
    if size == LOST_SIZE_FIELD and units.first < units.end == positions.end:
        _, _, behind = UNIT.unpack(units.read(units.end - 1, 1))
        return max(int(position), int(behind))
    return int(position if size in (BLANK_SIZE_FIELD, LOST_SIZE_FIELD) else position + size)
