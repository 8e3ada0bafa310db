"""One numbered sequence of units in its files, read once from the first to the last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.disk.files import offset_name, offsets_of
from imago_log.offline.findings import REBUILD
from imago_log.offline.stopped import file_size, read_part

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log.offline.findings import Findings
    from imago_log.offline.stopped import StoppedStore

UNITS_PER_FILE = 300_000
_WINDOW_UNITS = 128


class UnitSequence:
    """Units `first` … `limit`, of which the last may be zeros: not written."""

    def __init__(self, store: StoppedStore, folder: Path, unit_size: int) -> None:
        self._pool, self.folder, self.unit_size = store.pool, folder, unit_size
        self._per_file = UNITS_PER_FILE * unit_size
        names = store.vfs.names(folder)
        self._sizes = {
            start: file_size(store.pool, folder / offset_name(start)) for start in offsets_of(names)
        }
        self._others = [name for name in names if name not in map(offset_name, self._sizes)]
        starts = sorted(self._sizes)
        self.first = starts[0] // unit_size if starts else 0
        self.limit = (starts[-1] + self._sizes[starts[-1]]) // unit_size if starts else 0
        self._window = b""
        self._window_at = 0
        self._lacking = False
        """Whether the unit asked for last was missing."""

    def found(self) -> None:
        """The unit asked for last was there."""
        self._lacking = False

    def missed(self) -> bool:
        """The unit asked for last was missing; true: the one before it was there."""
        first, self._lacking = not self._lacking, True
        return first

    @property
    def exists(self) -> bool:
        """Whether there is any file."""
        return bool(self._sizes)

    def check_files(self, findings: Findings) -> None:
        """Check names and sizes: files follow one another, all but the last are full."""
        folder, full = self.folder, self._per_file
        for name in self._others:
            what = "is not named as a view file, which is its first byte in 20 digits"
            findings.warn(folder / name, None, what, "move it out of the folder, if it is yours")
        starts = sorted(self._sizes)
        for start in starts:
            path = folder / offset_name(start)
            if start % full:
                what = f"the name is no multiple of the file size {full}"
                findings.error(path, None, what, REBUILD)
            if start != starts[-1] and self._sizes[start] != full:
                what = f"{self._sizes[start]} bytes, but files before the last one have {full}"
                findings.error(path, self._sizes[start], what, REBUILD)
            elif self._sizes[start] > full:
                what = f"{self._sizes[start]} bytes, but no such file has more than {full}"
                findings.error(path, full, what, REBUILD)
        for start in range(min(starts, default=0), max(starts, default=0), full):
            if start not in self._sizes:
                findings.error(folder / offset_name(start), None, "the file is missing", REBUILD)

    def place(self, index: int) -> tuple[Path, int]:
        """Return the file of a unit and the unit's byte position in it."""
        at = index * self.unit_size
        return self.folder / offset_name(at - at % self._per_file), at % self._per_file

    def unit(self, index: int) -> bytes:
        """Return one unit; b"" where no file holds it or it was not written."""
        at = (index - self._window_at) * self.unit_size
        if not 0 <= at < len(self._window):
            self._window, self._window_at = self._read(index), index
            at = 0
        unit = self._window[at : at + self.unit_size]
        return unit if len(unit) == self.unit_size and any(unit[8:12]) else b""

    def _read(self, index: int) -> bytes:
        path, position = self.place(index)
        if index * self.unit_size - position not in self._sizes:
            return b""
        count = min(_WINDOW_UNITS, UNITS_PER_FILE - index % UNITS_PER_FILE)
        return read_part(self._pool, path, position, count * self.unit_size)

    def written_behind(self, index: int) -> int | None:
        """Return the first index from `index` on that is not zeros, None when there is none."""
        while index < self.limit:
            data = self._read(index)
            if any(data):
                return index
            index += max(1, len(data) // self.unit_size)
        return None
