"""Read the log again from a known good offset, and find where it ends.

A crash tears the tail: the last write may be there in part, and after a power loss everything
that was not synced may be there in any part. Such a tail is cut. Anything else that is wrong is
damage: behind it lie messages that were acknowledged, so nothing is cut. The damaged range goes
out of service, and reading goes on behind it.

==================================  ==========  ===========================================
what is found                       last stop   outcome
==================================  ==========  ===========================================
a bad record or zeros, a confirmed  any         damage up to there; after a loss of power
border behind it                                only below what was synced
the same or nothing behind it, and  any         damage up to there
it was synced further than this
zeros up to the end                 any         the log ends there
anything behind what was synced     in order    the log ends there: all of it was synced
the front of a record, then zeros   killed      the log ends there: a write was torn
anything else, none confirmed       killed      damage up to the last byte that is not zero:
                                                the page cache was whole, so it was written
                                                and lost
anything, above what was synced     power lost  the log ends there: each part of it may be
                                                missing
==================================  ==========  ===========================================

What is found by looking is a border only if a witness confirms it: see `commitlog.borders`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.commitlog.borders import (
    border_behind,
    claimed_end,
    is_record,
    is_torn,
    known_border,
    segment_end,
    written_end,
)
from imago_log.disk.folder import LastStop
from imago_wire.errors import RecordError
from imago_wire.hot import scan_records, view_record
from imago_wire.layout import BLANK_SIZE
from imago_wire.record import ScanStop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imago_log.commitlog.borders import Witness
    from imago_log.commitlog.commit_log import CommitLog
    from imago_wire.record import RecordView

CHUNK_BYTES = 8 << 20

Extent = tuple[int, int, str]
"""From one log offset to another, and what is wrong there."""


class LogReader:
    """Reads whole records through all files from an offset on."""

    def __init__(
        self, log: CommitLog, take: Callable[[bytes, int, list[RecordView]], None]
    ) -> None:
        self._log, self._take = log, take
        self._chunk_bytes = CHUNK_BYTES

    def run(self, start: int, limit: int | None = None) -> tuple[int, str]:
        """Return where the whole records end, and why: "" for the unwritten rest or the limit."""
        offset = start
        last = self._log.files_end if limit is None else limit
        while offset < last:
            end, stop, reason = self._file(offset, last)
            if stop is not ScanStop.BLANK:
                return end, "" if end == limit else reason
            offset = segment_end(self._log, offset)
        return offset, ""

    def _file(self, offset: int, limit: int) -> tuple[int, ScanStop, str]:
        chunk = self._chunk_bytes
        limit = min(limit, segment_end(self._log, offset))
        while True:
            size = min(chunk, limit - offset)
            data = self._log.read(offset, size)
            scan = scan_records(data, offset)
            if scan.views:
                self._take(data[: scan.end], offset, scan.views)
            offset += scan.end
            left = len(data) - scan.end
            if scan.stop is ScanStop.BLANK:
                return self._blank(data, scan.end, offset)
            at_end = offset + left >= limit or len(data) < size
            if not at_end and _goes_on(scan.stop, left):
                doubled = scan.stop is ScanStop.SHORT and not scan.end
                chunk = chunk * 2 if doubled else self._chunk_bytes
                continue
            if len(data) < size and scan.stop in (ScanStop.END, ScanStop.SHORT):
                missing = not data and not offset % self._log.segment_size
                return offset, scan.stop, "the file is missing" if missing else "the file ends here"
            reason = scan.reason or ("" if scan.stop is ScanStop.UNWRITTEN else "a cut record")
            return offset, scan.stop, reason

    def _blank(self, data: bytes, at: int, offset: int) -> tuple[int, ScanStop, str]:
        said = int.from_bytes(data[at : at + 4], "big")
        left = segment_end(self._log, offset) - offset
        if said != left:
            return offset, ScanStop.DAMAGED, f"blank record of {said} bytes where {left} are left"
        return offset, ScanStop.BLANK, ""


def _goes_on(stop: ScanStop, left: int) -> bool:
    """Whether the next bytes of the file may complete what a scan has stopped at."""
    if stop is ScanStop.UNWRITTEN:
        return left < BLANK_SIZE  # the chunk ended between zeros
    return stop in (ScanStop.END, ScanStop.SHORT)


def recover(
    log: CommitLog,
    start: int,
    take: Callable[[bytes, int, list[RecordView]], None],
    damaged: Callable[[Extent], None],
    witness: Witness,
    *,
    last_stop: LastStop,
    durable_end: int,
) -> tuple[int, bool]:
    """Hand all whole records from `start` on to `take`; return the end of the log.

    Second: whether anything but zeros stands behind the end. What is damaged is told to `damaged`
    before the records behind it are taken.
    """
    reader = LogReader(log, take)
    while True:
        end, reason = reader.run(start)
        written = written_end(log, end, log.files_end)
        following = _next_border(log, end, witness) if written > end else None
        unsure = last_stop is LastStop.POWER_LOST
        if following is None or (unsure and following > durable_end):
            if end >= durable_end:
                # What was closed in order was synced to its last byte: the rest is not the log's.
                closed = last_stop is LastStop.CLEAN and end == durable_end
                if unsure or closed or written == end or is_torn(log, end, written):
                    return end, written > end
                if segment_end(log, written - 1) - written < BLANK_SIZE:
                    written = segment_end(log, written - 1)
                damaged((end, written, reason or "zeros"))
                return written, False
            following = durable_end
        damaged((end, following, reason or "zeros"))
        start = following


def _next_border(log: CommitLog, damaged: int, witness: Witness) -> int | None:
    """Return the first confirmed border behind damage, in this file or a later one."""
    while damaged < log.files_end:
        file_end = segment_end(log, damaged)
        found = known_border(log, damaged, file_end, witness)
        if found is not None:
            return found
        if file_end < log.files_end and is_record(log, file_end):
            return file_end
        damaged = file_end
    return None


def survey(log: CommitLog, start: int, limit: int, witness: Witness) -> Iterator[Extent]:
    """Yield what is damaged from one border of records to another."""
    reader = LogReader(log, _ignore)
    while True:
        end, reason = reader.run(start, limit)
        if end >= limit:
            return
        start = border_behind(log, end, limit, witness)
        yield end, start, reason or "zeros"


def claimed_records(log: CommitLog, start: int, end: int) -> Iterator[RecordView]:
    """Yield what damaged records say they are, as long as their lengths agree."""
    while start < end:
        following = claimed_end(log, start)
        if following is None or following > end:
            return
        try:
            yield view_record(log.read(start, following - start), 0)
        except RecordError:
            return
        start = following


def _ignore(_: bytes, __: int, ___: list[RecordView]) -> None:
    """Only the borders matter."""
