"""The log as bytes, for members that copy it: ranges, slices of files, borders of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.errors import CorruptLogError, ReplicaGapError
from imago_log.results import FileSlice
from imago_wire.hot import scan_records, view_record
from imago_wire.records.record import ScanStop

if TYPE_CHECKING:
    from imago_log.state import StoreState
    from imago_log.views.directory import QueueDirectory

CHUNK_BYTES = 8 << 20


class LogByteReader:
    """Reads the log of one store as it is."""

    def __init__(self, s: StoreState, directory: QueueDirectory) -> None:
        self._log, self._recent, self._epochs, self._damage = s.log, s.recent, s.epochs, s.damage
        self._records, self._directory = s.records, directory

    def read(self, offset: int, bytes_max: int) -> bytes | memoryview:
        """Return log bytes from an offset on, up to the end of its file, its epoch or the log.

        From memory where they are recent. A file's unused rest is part of the log: the next offset
        is always `offset` + size. ReplicaGapError: the log does not hold this offset (any more).
        CorruptLogError: its file is out of service.
        """
        size = self._size(offset, bytes_max)
        if not size:
            return b""
        return self._recent.run(offset, size) or self._log.read(offset, size)

    def slice(self, offset: int, bytes_max: int) -> FileSlice:
        """Return the same bytes as a part of a file, for sendfile."""
        size = self._size(offset, bytes_max)
        return FileSlice(self._log.file_of(offset), offset % self._log.segment_size, size)

    def may_lend_from(self, offset: int) -> bool:
        """Whether `is_border` holds; of a record that its queue names, without a walk to it."""
        record = self._records.whole(offset)
        named = record is not None and self._directory.names(view_record(record))
        return named or self.is_border(offset)

    def is_border(self, offset: int) -> bool:
        """Whether a record, a blank record or a file begins at an offset, or the log ends there.

        The records before it are walked from the next border that is known: a body may hold what
        looks like a record of its own place.
        """
        log = self._log
        if not log.start <= offset <= log.end:
            return False
        at, chunk_bytes = self._known_border(offset), CHUNK_BYTES
        while at < offset:
            left = offset - at
            size = min(left, chunk_bytes)
            data = log.read(at, size)
            scan = scan_records(data, at, verify=False)
            at += scan.end
            goes_on = scan.stop is ScanStop.END or (scan.stop is ScanStop.SHORT and size < left)
            if len(data) < size or not goes_on:
                break
            chunk_bytes = CHUNK_BYTES if scan.end else chunk_bytes * 2
        return at == offset

    def _size(self, offset: int, bytes_max: int) -> int:
        """Return how many bytes from an offset on lie in its file and in its epoch."""
        log = self._log
        if not log.start <= offset <= log.end:
            raise ReplicaGapError(f"log offset {offset} of a log from {log.start} to {log.end}")
        end = min(offset - offset % log.segment_size + log.segment_size, log.end)
        next_epoch = self._epochs.next_start(offset)
        if next_epoch is not None:
            end = min(end, next_epoch)
        damaged = self._damage.first_in(offset, end)
        if damaged is not None:
            if damaged.start <= offset:
                raise CorruptLogError(damaged.path, damaged.position, damaged.reason)
            end = damaged.start
        return max(0, min(bytes_max, end - offset))

    def _known_border(self, offset: int) -> int:
        log = self._log
        base = offset - offset % log.segment_size
        known = [base, log.start, log.end, *(start for _, start in self._epochs.epochs)]
        known += [damaged.end for damaged in self._damage.ranges]
        recent = self._recent.start_before(offset)
        if recent is not None:
            known.append(recent)
        return max(border for border in known if border <= offset)
