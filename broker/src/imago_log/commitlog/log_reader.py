"""Read whole records of the log one after the other, and find what is damaged between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.commitlog.borders import border_behind, first_confirmed, segment_end
from imago_wire.hot import scan_records, whole_records
from imago_wire.record_format.layout import BLANK_SIZE
from imago_wire.records.record import ScanStop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imago_log.commitlog.borders import Witness
    from imago_log.commitlog.commit_log import CommitLog
    from imago_wire.records.record import RecordView

CHUNK_BYTES = 8 << 20
LOOK_BACK_BYTES = 1 << 20
"""So far before a place a whole record is looked for, to follow the chain from there."""
FIND_BYTES = 1 << 20
"""Read at once where damage is looked for."""

Extent = tuple[int, int, str]
"""From one log offset to another, and what is wrong there."""


class LogReader:
    """Reads whole records through all files from an offset on."""

    def __init__(
        self, log: CommitLog, take: Callable[[bytes, int, list[RecordView]], None] | None = None
    ) -> None:
        """`take` gets the records of each block; without it only their borders matter."""
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
            if scan.views and self._take is not None:
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


def survey(log: CommitLog, start: int, limit: int, witness: Witness) -> Iterator[Extent]:
    """Yield what is damaged from one border of records to another."""
    reader = LogReader(log)
    while True:
        end, reason = reader.run(start, limit)
        if end >= limit:
            return
        start = border_behind(log, end, limit, witness)
        yield end, start, reason or "zeros"


def find_damage(log: CommitLog, place: int, limit: int, witness: Witness) -> Extent | None:
    """Return the damage that covers a log offset; None: whole records stand there.

    `limit` is a border behind it, such as the end of the log.
    """
    if not log.start <= place < limit:
        return None
    at, chunk = _border_before(log, place, witness), FIND_BYTES
    limit = min(limit, segment_end(log, place))
    while at <= place:
        data = log.read(at, min(chunk, limit - at))
        good, stop, reason = whole_records(data, at)
        at += good
        if stop is ScanStop.BLANK or at > place:
            return None
        if good and stop in (ScanStop.END, ScanStop.SHORT) and at < limit:
            chunk = FIND_BYTES
        elif stop is ScanStop.SHORT and len(data) == chunk:
            chunk *= 2
        else:
            following = border_behind(log, at, limit, witness)
            if following > place:
                return at, following, reason or _reason(stop, data)
            at = following
    return None


def _reason(stop: ScanStop, data: bytes) -> str:
    if not data:
        return "the file ends here"
    return "zeros" if stop is ScanStop.UNWRITTEN else "a cut record"


def _border_before(log: CommitLog, place: int, witness: Witness) -> int:
    """Return where a whole record begins some way before a place, or the file."""
    base = max(place - place % log.segment_size, log.start)
    near = place - LOOK_BACK_BYTES
    if near <= base:
        return base
    found = first_confirmed(log, near, place, witness)
    return base if found is None else found
