"""Read the log again from a known good offset, and find where it ends.

A crash tears the tail: the last write may be there in part, and after a power loss everything
that was not synced may be there in any part. Such a tail is cut. Anything else that is wrong is
damage: it is named and nothing is cut, for behind it lie messages that were acknowledged.

=================================  ==============  =========================================
what is found                      last stop       outcome
=================================  ==============  =========================================
zeros or a bad record, nothing     any             the log ends there, unless this is below
whole behind it                                    what was synced: then damage
a bad record or zeros, whole       killed          damage: the page cache was whole
records behind it
the same, below what was synced    power lost      damage
the same, above what was synced    power lost      the log ends there
=================================  ==============  =========================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.errors import CorruptLogError
from imago_log.folder import LastStop
from imago_wire.errors import RecordError
from imago_wire.hot import scan_records, view_record
from imago_wire.layout import BLANK_SIZE, MAGIC_V1, MAGIC_V2
from imago_wire.record import ScanStop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imago_log.commit_log import CommitLog
    from imago_wire.record import RecordView

CHUNK_BYTES = 8 << 20
_ZEROS = bytes(CHUNK_BYTES)
_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
_PLACE_AT = 28
"""Where a record holds its own log offset."""


class LogReader:
    """Reads whole records through all files from an offset on."""

    def __init__(
        self, log: CommitLog, take: Callable[[bytes, int, list[RecordView]], None]
    ) -> None:
        self._log, self._take = log, take
        self._chunk_bytes = CHUNK_BYTES

    def run(self, start: int) -> tuple[int, str]:
        """Return where the whole records end, and why: "" for the unwritten rest."""
        offset = start
        segment_size = self._log.segment_size
        last = self._log.files_end
        while offset < last:
            segment_end = offset - offset % segment_size + segment_size
            end, stop, reason = self._file(offset, segment_end)
            if stop is not ScanStop.BLANK:
                return end, reason
            offset = segment_end
        return offset, ""

    def _file(self, offset: int, segment_end: int) -> tuple[int, ScanStop, str]:
        chunk = self._chunk_bytes
        while True:
            size = min(chunk, segment_end - offset)
            data = self._log.read(offset, size)
            scan = scan_records(data, offset)
            if scan.views:
                self._take(data[: scan.end], offset, scan.views)
            offset += scan.end
            at_end = offset + len(data) - scan.end >= segment_end
            if scan.stop is ScanStop.BLANK:
                return self._blank(data, scan.end, offset, segment_end)
            if scan.stop is ScanStop.UNWRITTEN and not at_end and len(data) - scan.end < BLANK_SIZE:
                chunk = self._chunk_bytes  # the chunk ended between zeros: look at the next bytes
                continue
            if scan.stop is ScanStop.SHORT and not at_end:
                chunk = self._chunk_bytes if scan.end else chunk * 2
                continue
            if scan.stop is ScanStop.END and not at_end:
                continue
            reason = scan.reason or ("" if scan.stop is ScanStop.UNWRITTEN else "a cut record")
            return offset, scan.stop, reason

    def _blank(
        self, data: bytes, at: int, offset: int, segment_end: int
    ) -> tuple[int, ScanStop, str]:
        said = int.from_bytes(data[at : at + 4], "big")
        if said != segment_end - offset:
            reason = f"blank record of {said} bytes where {segment_end - offset} are left"
            return offset, ScanStop.DAMAGED, reason
        return offset, ScanStop.BLANK, ""


def recover(
    log: CommitLog,
    start: int,
    take: Callable[[bytes, int, list[RecordView]], None],
    *,
    last_stop: LastStop,
    durable_end: int,
) -> tuple[int, bool]:
    """Hand all whole records from `start` on to `take`; return the end of the log.

    Second: whether anything but zeros stands behind the end. CorruptLogError: damage, see the
    table above.
    """
    end, reason = LogReader(log, take).run(start)
    if end < durable_end:
        said = reason or "zeros"
        raise _damage(log, end, f"{said}, in a part of the log that was synced")
    behind, torn = rest_after(log, end)
    if behind is not None and last_stop is not LastStop.POWER_LOST:
        said = reason or "zeros"
        raise _damage(log, end, f"{said}, and a whole record follows at log offset {behind}")
    return end, torn


def _damage(log: CommitLog, offset: int, reason: str) -> CorruptLogError:
    return CorruptLogError(log.path(offset), offset % log.segment_size, reason)


def rest_after(log: CommitLog, offset: int) -> tuple[int | None, bool]:
    """Return where the first whole record behind an offset is, and whether anything is there."""
    last = log.files_end
    torn = False
    while offset < last:
        segment_end = offset - offset % log.segment_size + log.segment_size
        for at, data in _written_chunks(log, offset, segment_end):
            torn = True
            for place in _record_places(data, at):
                if _is_record(log, at + place, segment_end):
                    return at + place, torn
        offset = segment_end
    return None, torn


def _written_chunks(log: CommitLog, offset: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the parts of one file that are not all zeros, overlapping by a record's head."""
    while offset < end:
        size = min(CHUNK_BYTES, end - offset)
        data = log.read(offset, size)
        if data != _ZEROS[: len(data)]:
            yield offset, data
        offset += size if offset + size >= end else size - _PLACE_AT - 8


def _record_places(data: bytes, offset: int) -> list[int]:
    """Return where records may start that say they belong there."""
    places = []
    for magic in _MAGICS:
        at = data.find(magic, 4)
        while at >= 0:
            start = at - 4
            place = data[start + _PLACE_AT : start + _PLACE_AT + 8]
            if int.from_bytes(place, "big") == offset + start:
                places.append(start)
            at = data.find(magic, at + 1)
    return sorted(places)


def _is_record(log: CommitLog, offset: int, segment_end: int) -> bool:
    size = int.from_bytes(log.read(offset, 4), "big")
    if not 0 < size <= segment_end - offset:
        return False
    try:
        view_record(log.read(offset, size), 0, verify=True)
    except RecordError:
        return False
    return True
