"""Check the records of a log that comes a piece at a time. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_wire.hot import scan_records
from imago_wire.records.record import ScanStop

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class BadRecord(NamedTuple):
    """Where the chain of records breaks, and why."""

    offset: int
    reason: str


class RecordWalk:
    """Walks over a log from one of its files' beginning on, with all records' checksums.

    Behind a break it goes on at the next file, or where a part ends that was out of service when
    the log was copied: that is no news.
    """

    def __init__(
        self,
        start: int,
        segment_bytes: int,
        *,
        known: Iterable[Sequence[int]] = (),
        until_ms: int | None = None,
    ) -> None:
        """`known`: parts out of service, from and to. `until_ms`: find the first record after."""
        self.segment_bytes, self._until_ms = segment_bytes, until_ms
        self._known = [(each[0], each[1]) for each in known]
        self.at = start
        """Log offset of the next border."""
        self._rest = b""
        self.cut: int | None = None
        """Log offset of the first record that is newer than was asked for."""
        self.newest_ms = 0
        """Of the records before the cut."""

    def take(self, offset: int, data: bytes) -> list[BadRecord]:
        """Take the piece at an offset, which follows the one before; return what is not whole."""
        broken: list[BadRecord] = []
        end = offset + len(data)
        data = self._rest + data
        data = data[max(0, self.at - (end - len(data))) :]
        self._rest = b""
        while self.at < end and self.cut is None:
            scan = scan_records(data, self.at)
            self._look_at(scan.views)
            before, self.at = self.at, self.at + scan.end
            match scan.stop:
                case ScanStop.END:
                    break
                case ScanStop.SHORT if end < self._file_end(self.at):
                    self._rest = data[scan.end :]
                    break
                case ScanStop.BLANK | ScanStop.UNWRITTEN:
                    self.at = self._file_end(self.at)
                case _:
                    self._skip(scan.reason or "its end is missing", broken)
            data = data[self.at - before :]
        return broken

    def miss(self, end: int) -> None:
        """Go on behind a piece that is not there."""
        self._rest = b""
        self.at = max(self.at, self._file_end(end - 1))

    def _skip(self, reason: str, broken: list[BadRecord]) -> None:
        known = [end for start, end in self._known if start <= self.at < end]
        if known:
            self.at = max(known)
        else:
            broken.append(BadRecord(self.at, reason))
            self.at = self._file_end(self.at)

    def _file_end(self, offset: int) -> int:
        return offset - offset % self.segment_bytes + self.segment_bytes

    def _look_at(self, views: Sequence[object]) -> None:
        for view in views:
            stored_ms, place = view.store_ms, view.physical_offset  # type: ignore[attr-defined]
            if self._until_ms is not None and stored_ms > self._until_ms:
                self.cut = place
                return
            self.newest_ms = stored_ms
