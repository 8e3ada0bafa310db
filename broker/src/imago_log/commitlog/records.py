"""Records of the log by place; each is verified to be whole and the one that was asked for."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from imago_log.commitlog.borders import is_blank, segment_end
from imago_log.errors import UnreadableError
from imago_wire.errors import RecordError
from imago_wire.hot import gather_records, metaq_records, near_units, queue_records, view_record
from imago_wire.record_format.layout import (
    FIXED_SIZE_V4,
    HEAD,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    SYS_BORN_V6,
    UNIT,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.commitlog.damage import Damage
    from imago_log.commitlog.recent import RecentLog
    from imago_wire.hot import QueueTail

Run = tuple[int, int, int]
"""Records of one queue that are neighbours in the log: log offset, size, first queue offset."""
TIMED_SIZE = HEAD.size + HOST_V6_SIZE + 8
"""From a record's begin to the end of its store time, at most."""
WINDOW_BYTES_MAX = 1 << 20
GAP_BYTES_MAX = 4096
"""Reading over a gap this small is cheaper than a second read."""
SHARED_BYTES_MIN = 64 << 10
"""Who reads over less of the log reads that alone."""
SHARED_GAP_MAX = 16 << 10
"""Of a part of the log with larger gaps a reader uses too little to read all of it."""


class LogRecords:
    """Records of the log by place, from memory where they are recent.

    What comes from the files is verified each time: a checksum costs less than the read. In memory
    stands what was written, so there only the unit that led to it may be wrong.
    """

    def __init__(self, log: CommitLog, recent: RecentLog, damage: Damage) -> None:
        self._log, self._recent, self.damage = log, recent, damage
        self._blocks = LogBlocks(log)

    def are_recent(self, units: bytes) -> bool:
        """Whether the records of some units of one queue are all in memory."""
        return self._recent.holds(int.from_bytes(units[:8], "big"))

    def join(self, tail: QueueTail, runs: Iterable[Run]) -> bytes:
        """Return the bytes of runs of one queue, joined; each lies within one file.

        UnreadableError: one of the records is not whole, or not where the queue's unit says.
        """
        parts = [self._run(tail, run) for run in runs]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def gather(self, tail: QueueTail, units: bytes, offset: int, size: int) -> bytes:
        """Return the records of 20-byte units of one queue, joined; `size` is that of all of them.

        UnreadableError: one of them is not whole, or not where its unit says.
        """
        if not units:
            return b""
        first = int.from_bytes(units[:8], "big")
        last, last_size, _ = UNIT.unpack_from(units, len(units) - UNIT.size)
        if last + last_size - first == size:
            return self._run(tail, (first, size, offset))
        topic, queue_id = tail.topic, tail.queue_id
        count, index, parts = len(units) // UNIT.size, 0, list[bytes]()
        while index < count:
            data, end = self._recent.gather(units, index, tail, offset)
            if end > index:
                parts.append(data)
                index = end
                continue
            window, start, verify, _ = self._window(units, index)
            data, end = gather_records(
                window, start, units, index, topic, queue_id, offset, verify=verify
            )
            if end == index:
                raise self.unreadable(UNIT.unpack_from(units, index * UNIT.size)[0])
            parts.append(data)
            index = end
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _run(self, tail: QueueTail, run: Run) -> bytes:
        place, size, offset = run
        data = self._recent.get(place, size)
        recent = data is not None
        if data is None:
            # A damaged unit may ask for anything.
            left = segment_end(self._log, place) - place
            data = self._log.read(place, size) if 0 < size <= left else b""
        topic, queue_id = tail.topic, tail.queue_id
        good = queue_records(data, place, topic, queue_id, offset, verify=not recent)
        if not 0 < size == good:
            raise self.unreadable(place + good)
        return data

    def unreadable(self, place: int, offset: int = 0) -> UnreadableError:
        """Return the error for a place where no record is, or not the one that was wanted."""
        path, position = self._log.path(place), place % self._log.segment_size
        return UnreadableError(path, position, place, offset)

    def each(self, tail: QueueTail, units: bytes, offset: int) -> list[memoryview]:
        """Return the record of each 20-byte unit from a queue offset on, neighbours by one read.

        UnreadableError: one of them is not whole, or not where its unit says.
        """
        found: list[memoryview] = []
        topic, queue_id = tail.topic, tail.queue_id
        window, verify = memoryview(b""), True
        start = end = 0
        for index, (place, size, _) in enumerate(UNIT.iter_unpack(units)):
            if place < start or place + size > end:
                window, start, verify, _ = self._window(units, index)
                end = start + len(window)
            record = window[place - start : place - start + size]
            good = queue_records(record, place, topic, queue_id, offset + index, verify=verify)
            if not 0 < size == good:
                raise self.unreadable(place)
            found.append(record)
        return found

    def metaq(
        self, tail: QueueTail, units: bytes, offset: int, positions: tuple[int, int], size: int
    ) -> bytes:
        """Return `size` bytes of MetaQ's form of the records of 20-byte units of one queue.

        `offset` is the first one's queue offset, `positions` are where it begins and where the
        last one ends; that may be cut. UnreadableError: one of them is not whole, or not where its
        unit says. RecordError: it cannot be inflated.
        """
        topic, queue_id = tail.topic, tail.queue_id
        position, left, shared = positions[0], size, True
        count, index, parts = len(units) // UNIT.size, 0, list[bytes]()
        while index < count:
            found = self._shared_window(units, index) if shared else None
            window, start, verify, end = found or self._window(units, index)
            while index < end:
                data, behind, position = metaq_records(
                    window, start, units, index, topic, queue_id, offset, position, left,
                    verify=verify,
                )  # fmt: skip
                if behind == index:
                    break
                parts.append(data)
                left, index = left - len(data), behind
            if index < end and found is None:
                raise self._unreadable_unit(units, offset, index)
            if index < end:  # what is shared may be of before the log was mended
                self._blocks.forget()
            shared = index == end
        if left or position != positions[1]:
            raise self._unreadable_unit(units, offset, count - 1)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _unreadable_unit(self, units: bytes, offset: int, index: int) -> UnreadableError:
        place, _, _ = UNIT.unpack_from(units, index * UNIT.size)
        return self.unreadable(place, offset + index)

    def _window(self, units: bytes, index: int) -> tuple[memoryview, int, bool, int]:
        """Return bytes that hold the record of a unit and as many of the next ones as are near.

        Then where they begin, whether they come from a file, and the first unit left out.
        """
        place, size, _ = UNIT.unpack_from(units, index * UNIT.size)
        block = self._recent.block(place, size)
        if block is not None:
            limit = block[1] + len(block[0])
            return *block, False, max(index + 1, near_units(units, index, limit, limit)[0])
        border = segment_end(self._log, place)
        limit = min(border, max(place + WINDOW_BYTES_MAX, place + size))
        last, end = near_units(units, index, limit, GAP_BYTES_MAX)
        data = self._log.read(place, end - place) if last > index else b""
        return memoryview(data), place, True, max(index + 1, last)

    def _shared_window(self, units: bytes, index: int) -> tuple[memoryview, int, bool, int] | None:
        """Return the same out of what others have read, or of what they may read soon.

        It is good until the next call. None: nothing of that; it has to be read.
        """
        place, size, _ = UNIT.unpack_from(units, index * UNIT.size)
        if self._recent.holds(place):
            return None
        near = min(segment_end(self._log, place), place + BLOCK_BYTES)
        end = near_units(units, index, near, SHARED_GAP_MAX)[1]
        found = self._blocks.find(place, size, read=end - place >= SHARED_BYTES_MIN)
        if found is None:
            return None
        limit = found[1] + len(found[0])
        return *found, True, max(index + 1, near_units(units, index, limit, limit)[0])

    def whole(self, place: int) -> bytes | None:
        """Return the record that starts at a log offset, or None when none does."""
        head = self._head(place)
        if not head:
            return None
        record = self._log.read(place, int.from_bytes(head[:4], "big"))
        try:
            view_record(record, verify=True)
        except RecordError:
            return None
        return record

    def _head(self, place: int) -> bytes:
        """Return how the record begins that starts at a log offset; empty when none does."""
        if not self._log.start <= place < self._log.end or self.damage.at(place) is not None:
            return b""
        head = self._log.read(place, TIMED_SIZE)
        if len(head) < HEAD.size:
            return b""
        size, magic, _, _, _, _, own_place, _, _ = HEAD.unpack_from(head)
        if magic not in (MAGIC_V1, MAGIC_V2) or own_place != place:
            return b""
        fits = FIXED_SIZE_V4 <= size <= segment_end(self._log, place) - place
        return head if fits else b""

    def glanced_ms(self, place: int) -> int | None:
        """Return what the head of a record says of its store time; None: no record is there.

        It is good for an order alone, as nothing tells whether the record is whole; and it costs
        nothing where records are megabytes.
        """
        head = self._head(place)
        if len(head) < TIMED_SIZE:
            return None
        flags = HEAD.unpack_from(head)[7]
        at = HEAD.size + (HOST_V6_SIZE if flags & SYS_BORN_V6 else HOST_V4_SIZE)
        return int.from_bytes(head[at : at + 8], "big")

    def store_ms(self, place: int, offset: int = 0) -> int:
        """Return the store time of the record at a log offset, the one of a queue offset.

        UnreadableError: it is not whole, or no record is there.
        """
        record = self.whole(place)
        if record is None:
            raise self.unreadable(place, offset)
        return view_record(record).store_ms

    def first_ms(self, place: int) -> int | None:
        """Return the store time of the first record from a border on, None at the log's end.

        UnreadableError: it is not whole.
        """
        while place < self._log.end:
            damaged = self.damage.at(place)
            if damaged is not None:
                place = damaged.end
            elif is_blank(self._log, place):
                place = segment_end(self._log, place)
            else:
                return self.store_ms(place)
        return None


# Parts of the log's files that were read lately: who reads a backlog shares them with others.
# The records of one queue lie between those of others, so that each queue's reader passes over the
# same bytes. A block is read once, into memory that is used again: memory that is touched for the
# first time costs more than what is read into it.


BLOCK_BYTES = 1 << 20
OVERLAP_BYTES = 64 << 10
"""Of the next block: a record that begins in one, and is not larger, lies within it."""
BLOCKS_MAX = 16


class _Block(NamedTuple):
    buffer: bytearray
    memory: memoryview
    end: int
    """Log offset behind it."""


class LogBlocks:
    """The blocks used last, by where they begin. Used in one thread."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._version = log.version
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        self._spare: list[bytearray] = []

    def find(self, place: int, size: int, *, read: bool) -> tuple[memoryview, int] | None:
        """Return a part of the log that holds these bytes, and where it begins.

        It is good until the next call. None: they are too many, cannot be read at once, or, unless
        they are to be read, are not in memory.
        """
        if self._version != self._log.version:
            self.forget()
        border = segment_end(self._log, place)
        base = border - self._log.segment_size
        start = place - (place - base) % BLOCK_BYTES
        block = self._blocks.get(start)
        if block is None or place + size > block.end:
            end = min(start + BLOCK_BYTES + OVERLAP_BYTES, border, self._log.end)
            if not read or size <= 0 or place + size > end:
                return None
            block = self._read(start, end)
            if block is None:
                return None
        self._blocks.move_to_end(start)
        return block.memory, start

    def _read(self, start: int, end: int) -> _Block | None:
        former = self._blocks.pop(start, None)
        if former is not None:
            self._spare.append(former.buffer)
        elif len(self._blocks) >= BLOCKS_MAX:
            self._spare.append(self._blocks.popitem(last=False)[1].buffer)
        buffer = self._spare.pop() if self._spare else bytearray(BLOCK_BYTES + OVERLAP_BYTES)
        memory = memoryview(buffer)[: end - start]
        if not self._log.read_into(start, memory):
            self._spare.append(buffer)
            return None
        block = self._blocks[start] = _Block(buffer, memory, end)
        return block

    def forget(self) -> None:
        """Read everything again: what is in the files was changed, or is not as it should be."""
        self._spare += [block.buffer for block in self._blocks.values()]
        self._blocks.clear()
        self._version = self._log.version
