"""Read the records of a stopped log in bounded blocks, and find them again behind damage."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_log.commitlog.borders import HEAD_BYTES, record_places
from imago_wire.errors import RecordError
from imago_wire.hot import scan_records, view_record
from imago_wire.records.record import ScanStop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_log.offline.stopped import StoppedLog
    from imago_wire.records.record import RecordView

CHUNK_BYTES = 4 << 20


class Block(NamedTuple):
    """Whole records that follow one another, and what comes after them."""

    offset: int
    data: bytes
    """Begins with the first record; there may be more than the records."""
    views: list[RecordView]
    end: int
    """Log offset behind the last record."""
    stop: ScanStop | None
    """Why the chain of records ends there; None: the next block goes on."""
    reason: str


def blocks(log: StoppedLog, start: int, limit: int, *, verify: bool = True) -> Iterator[Block]:
    """Yield the records from `start` on, which lie in one file, up to the log offset `limit`.

    The last block says why the chain ends.
    """
    chunk = CHUNK_BYTES
    while True:
        wanted = min(chunk, limit - start)
        data = log.read(start, wanted)
        scan = scan_records(data, start, verify=verify)
        more = len(data) == wanted and start + wanted < limit
        goes_on = more and scan.stop in (ScanStop.END, ScanStop.SHORT)
        end = start + scan.end
        stop = None if goes_on else scan.stop
        yield Block(start, data, scan.views, end, stop, scan.reason)
        if not goes_on:
            return
        chunk = CHUNK_BYTES if scan.end else chunk * 2
        start = end


def look_behind(log: StoppedLog, start: int, limit: int) -> tuple[int | None, bool]:
    """Return where the first whole record from `start` on is, within one file.

    Second: whether there is anything but zeros before it.
    """
    written = False
    while start < limit:
        data = log.read(start, min(CHUNK_BYTES, limit - start))
        if not data:
            break
        if data.count(0) != len(data):
            for place in record_places(data, start):
                if _is_whole(log, place, limit):
                    return place, written or any(data[: place - start])
            written = True
        if start + len(data) >= limit:
            break
        start += max(1, len(data) - HEAD_BYTES)
    return None, written


def _is_whole(log: StoppedLog, offset: int, limit: int) -> bool:
    size = int.from_bytes(log.read(offset, 4), "big")
    if not 0 < size <= limit - offset:
        return False
    try:
        view_record(log.read(offset, size), 0, verify=True)
    except RecordError:
        return False
    return True
