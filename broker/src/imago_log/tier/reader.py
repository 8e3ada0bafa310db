"""Reads what the log no longer has here, as `MessageReader` and `PositionReader` read the rest.

The same functions over the same bytes: a file in the bucket stands for one of the log, its index
for the files of its queues. Blocks that are not here are asked for, and the reader comes again.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from imago_log.commitlog.recent import RecentLog
from imago_log.commitlog.records import LogRecords
from imago_log.errors import UnreadableError
from imago_log.reading import by_offset
from imago_log.reading.position_reader import read_positions
from imago_log.reading.remote import RemoteAwayError, RemoteMissError
from imago_log.results import MetaqRead, MetaqStatus, ReadResult, ReadStatus
from imago_log.tier.index import TierDirectory
from imago_log.tier.manifest import TierManifest
from imago_log.views.units.unit_lookup import UnitLookup
from imago_wire.errors import RecordError, WrongError
from imago_wire.hot import QueueTail, view_record
from imago_wire.record_format.layout import POSITION_UNIT, UNIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.commitlog.damage import Damage
    from imago_log.reading.by_properties import Wanted
    from imago_log.tier.index import Key, TierRow
    from imago_log.tier.manifest import TierSegment
    from imago_log.views.units.consume_queue import ConsumeQueue

logger = logging.getLogger(__name__)

DIRECTORIES_MAX = 64
"""Of files in the bucket, those whose directories are in memory."""
DIRECTORIES_BYTES_MAX = 64 << 20
"""And the bytes of all of them."""
QUEUES_MAX = 1024
NEAR_MAX = 2048
"""Messages that one read looks at."""
NEAR_BYTES = 4 << 20
"""And the bytes of the log among which they are."""

_Read = TypeVar("_Read")


class TierBlocks(Protocol):
    """The bytes of objects, as far as they are here."""

    def read(self, name: str, size: int, start: int, length: int) -> bytes:
        """Return a range of an object of `size` bytes.

        RemoteMissError: not here; it is being fetched. RemoteAwayError: it cannot be had now.
        """

    def forget(self, name: str) -> None:
        """Fetch all of an object again."""


class TierLog:
    """The files in the bucket as a log: only to be read."""

    version = 0

    def __init__(self, blocks: TierBlocks, segment_size: int) -> None:
        self._blocks, self.segment_size = blocks, segment_size
        self.manifest = TierManifest("", 0, 0)

    @property
    def start(self) -> int:
        return self.manifest.segments[0].base if self.manifest.segments else 0

    @property
    def end(self) -> int:
        return self.manifest.end

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes within one file; b"" where there is none."""
        found = self.manifest.at(offset)
        if found is None:
            return b""
        at = offset - found.base
        return self._blocks.read(found.log, found.size, at, min(size, found.size - at))

    def read_into(self, offset: int, memory: memoryview) -> bool:
        """Fill memory; false: not all of it is there."""
        data = self.read(offset, len(memory))
        if len(data) < len(memory):
            return False
        memory[:] = data
        return True

    def path(self, offset: int) -> Path:
        """Return what to call the file that holds an offset."""
        found = self.manifest.at(offset)
        return Path(found.log if found else "gone")


class _Sound:
    """A log without damage, for readers who ask: a damaged file does not go into the bucket."""

    may_lose, ranges, skipped = False, (), 0

    def at(self, _: int) -> None:
        return None


class TierQueue:
    """What one file has of one queue."""

    light = False

    def __init__(self, key: Key, row: TierRow, segment: TierSegment, blocks: TierBlocks) -> None:
        self.first, self.end = row.first, row.end
        self.tail = QueueTail(key[0].encode(), key[1], dual=row.dual, next_offset=row.end)
        self.tail.next_position = max(row.to, 0)
        self._row, self._segment, self._blocks = row, segment, blocks
        self.lookup = UnitLookup(self)

    def units(self, start: int, count: int) -> bytes:
        return self._read(self._row.at, UNIT.size, start, count)

    def unit(self, offset: int) -> tuple[int, int, int]:
        return UNIT.unpack(self.units(offset, 1))

    def position_units(self, start: int, count: int) -> bytes:
        return self._read(self._row.positions_at, POSITION_UNIT.size, start, count)

    def position(self, offset: int) -> tuple[int, int]:
        return POSITION_UNIT.unpack(self.position_units(offset, 1))

    def _read(self, at: int, size: int, start: int, count: int) -> bytes:
        at += (start - self.first) * size
        count = min(count, self.end - start)
        segment = self._segment
        return self._blocks.read(segment.index, segment.index_size, at, count * size)


class TierReader:
    """Reads of one shard's files in the bucket. All methods belong to the store's thread."""

    def __init__(
        self, blocks: TierBlocks, segment_size: int, left_out: Callable[[str], bool]
    ) -> None:
        """`left_out` tells the topics that do not go into the bucket."""
        self._blocks, self._left_out = blocks, left_out
        self._log = TierLog(blocks, segment_size)
        self._records = LogRecords(
            cast("CommitLog", self._log), RecentLog(0), cast("Damage", _Sound())
        )
        self._directories: OrderedDict[int, TierDirectory] = OrderedDict()
        self._queues: OrderedDict[tuple[int, Key], TierQueue] = OrderedDict()
        self._first: dict[Key, TierRow] = {}
        self.known = False
        """Whether it is known what is in the bucket: until then nobody is told what is not."""
        self.reads = 0

    @property
    def manifest(self) -> TierManifest:
        """What is in the bucket."""
        return self._log.manifest

    def take(self, manifest: TierManifest, first: dict[Key, TierRow]) -> None:
        """Read by this manifest from now on; `first` is the directory of its first file."""
        self._log.manifest, self._first, self.known = manifest, first, True
        kept = {each.base: each for each in manifest.segments}
        for base in [base for base in self._directories if base not in kept]:
            del self._directories[base]
        for place in [place for place in self._queues if place[0] not in kept]:
            del self._queues[place]

    def lose(self) -> None:
        """Another member leads: what is in the bucket is its business."""
        self.known = False

    # Bounds

    def low(self, key: Key, incarnation: int, low: int) -> int:
        """Return the first offset in the bucket of a queue that begins at `low` here.

        0 until it is known: who begins there comes again, and misses nothing.
        """
        if not low or self._left_out(key[0]):
            return low
        if not self.known or not self.manifest.segments:
            return low if self.known else 0
        row = self._first.get(key)
        return min(low, 0 if row is None or row.incarnation != incarnation else row.first)

    def low_position(self, key: Key, incarnation: int, low: int) -> int:
        """Return the same as a MetaQ position."""
        if not low or self._left_out(key[0]):
            return low
        if not self.known or not self.manifest.segments:
            return low if self.known else 0
        row = self._first.get(key)
        known = row is not None and row.incarnation == incarnation
        return min(low, max(row.position, 0) if row is not None and known else 0)

    # Reads

    def read(
        self,
        key: Key,
        incarnation: int,
        bounds: tuple[int, int],
        offset: int,
        limits: tuple[int, int],
        tags: frozenset[int] | None,
        wanted: Wanted | None,
    ) -> ReadResult:
        """Return records from an offset on that is before `bounds`, those of the queue here."""
        here, high = bounds
        low = self.low(key, incarnation, here)
        away = ReadResult(ReadStatus.REMOTE_AWAY, offset, low, high)
        if not self.known and not self._left_out(key[0]):
            return away
        coming = ReadResult(ReadStatus.ON_ITS_WAY, offset, low, high)

        def read() -> ReadResult:
            found = self._find(key, incarnation, lambda row: row.end > offset)
            if found is None or found.first > offset:
                to = here if found is None else found.first
                return ReadResult(ReadStatus.OFFSET_TOO_SMALL, to, min(low, to), high)
            within = (found.first, self._near(found, offset, limits[0]))
            queue = cast("ConsumeQueue", found)
            got = by_offset.read_queue(queue, self._records, within, offset, limits, tags, wanted)
            return replace(got, min_offset=low, max_offset=high)

        return self._tried(read, coming, away, key)

    def read_positions(
        self, key: Key, incarnation: int, visible: tuple[int, int], position: int, bytes_max: int
    ) -> MetaqRead:
        """Return messages in MetaQ's form from a position on that is before `visible`."""
        here, high = visible
        low = self.low_position(key, incarnation, here)
        away = MetaqRead(MetaqStatus.REMOTE_AWAY, position, low, high)
        if not self.known and not self._left_out(key[0]):
            return away

        def read() -> MetaqRead:
            found = self._find(key, incarnation, lambda row: row.to > position)
            if found is None:
                return MetaqRead(MetaqStatus.TOO_SMALL, here, here, high)
            first = found.first
            offset = found.lookup.offset_of_position(position, first)
            end = self._near(found, offset, bytes_max)
            bounds = (first, end, found.position(first)[0], sum(found.position(end - 1)))
            queue = cast("ConsumeQueue", found)
            got = read_positions(queue, self._records, None, bounds, position, bytes_max)
            return got._replace(max_position=high, behind=False)

        coming = MetaqRead(MetaqStatus.AT_END, position, low, high)
        return self._tried(read, coming, away, key)

    def offset_by_time(self, key: Key, incarnation: int, ms: int, here: int, *, upper: bool) -> int:
        """Return the first offset stored at or after `ms`; `upper`: the last at or before it.

        `here`: where the queue begins here. RemoteMissError, RemoteAwayError: ask again.
        """
        if self._left_out(key[0]):
            return here
        if not self.known:
            raise RemoteAwayError("what is in the bucket is not known yet")
        if upper:
            behind = self._first_at(key, incarnation, ms + 1, here)
            return max(self.low(key, incarnation, here), behind - 1)
        return self._first_at(key, incarnation, ms, here)

    def _first_at(self, key: Key, incarnation: int, ms: int, here: int) -> int:
        segments = self.manifest.segments
        index = bisect_left(segments, ms, key=lambda each: each.newest_ms)
        for segment in segments[index:]:
            row = self._row(segment, key, incarnation)
            if row is not None and row.end > row.first:
                queue = cast("ConsumeQueue", self._queue(segment, key, row))
                bounds = (row.first, row.end)
                return by_offset.offset_by_time(queue, self._records, bounds, ms, upper=False)
        return here

    def record_at(self, place: int) -> bytes | None:
        """Return the whole record that starts there, or None: none that a queue knows, or it is
        not here now."""
        try:
            record = self._records.whole(place)
            segment = self.manifest.at(place)
            if record is None or segment is None:
                return None
            view = view_record(record)
            key = view.topic.decode("utf-8", "replace"), view.queue_id
            row = self._directory(segment).get(key)
            if row is None or not row.first <= view.queue_offset < row.end:
                return None
            unit = self._queue(segment, key, row).unit(view.queue_offset)
        except (RemoteMissError, RemoteAwayError, RecordError):
            return None
        return record if unit[:2] == (place, view.size) else None

    def _tried(self, read: Callable[[], _Read], coming: _Read, away: _Read, key: Key) -> _Read:
        self.reads += 1
        try:
            return read()
        except RemoteMissError as error:
            error.wanted_by(key)
            return coming
        except RemoteAwayError:
            return away
        except (UnreadableError, WrongError) as error:
            logger.error("tier.unreadable queue=%s/%d error=%s", *key, error)  # noqa: TRY400
            if isinstance(error, UnreadableError) and (at := self.manifest.at(error.place)):
                self._blocks.forget(at.log)
                self._blocks.forget(at.index)
            return away

    def _near(self, queue: TierQueue, offset: int, count: int) -> int:
        """Return the offset behind the messages that one read takes: they are near each other.

        All of their bytes are asked for at once, and not one after the other.
        """
        units = queue.units(offset, max(1, min(count, NEAR_MAX)))
        first, size, _ = UNIT.unpack_from(units)
        end, behind = offset, first + size
        for place, size, _ in UNIT.iter_unpack(units):
            if place + size > first + NEAR_BYTES and end > offset:
                break
            end, behind = end + 1, place + size
        self._log.read(first, behind - first)
        return end

    # Files

    def _find(
        self, key: Key, incarnation: int, behind: Callable[[TierRow], bool]
    ) -> TierQueue | None:
        """Return what the first file has of a queue of which it holds; None: none does."""
        segments = self.manifest.segments
        low, high = 0, len(segments)
        while low < high:
            middle = (low + high) // 2
            row = self._row(segments[middle], key, incarnation)
            if row is not None and behind(row):
                high = middle
            else:
                low = middle + 1
        if low == len(segments):
            return None
        row = self._row(segments[low], key, incarnation)
        assert row is not None, "it was just looked at"
        return self._queue(segments[low], key, row)

    def _row(self, segment: TierSegment, key: Key, incarnation: int) -> TierRow | None:
        row = self._directory(segment).get(key)
        return row if row is not None and row.incarnation == incarnation else None

    def _directory(self, segment: TierSegment) -> TierDirectory:
        found = self._directories.get(segment.base)
        if found is None:
            size = segment.directory_size
            data = self._blocks.read(segment.index, segment.index_size, 0, size)
            try:
                found = TierDirectory(data)
            except WrongError:
                self._blocks.forget(segment.index)
                raise
            self._directories[segment.base] = found
            self._forget_directories()
        self._directories.move_to_end(segment.base)
        return found

    def _forget_directories(self) -> None:
        """Keep those that were looked at last: few, where there are many queues."""
        kept = self._directories
        size = sum(map(len, kept.values()))
        while len(kept) > 1 and (len(kept) > DIRECTORIES_MAX or size > DIRECTORIES_BYTES_MAX):
            size -= len(kept.popitem(last=False)[1])

    def _queue(self, segment: TierSegment, key: Key, row: TierRow) -> TierQueue:
        found = self._queues.get((segment.base, key))
        if found is None:
            found = self._queues[segment.base, key] = TierQueue(key, row, segment, self._blocks)
            if len(self._queues) > QUEUES_MAX:
                self._queues.popitem(last=False)
        self._queues.move_to_end((segment.base, key))
        return found
