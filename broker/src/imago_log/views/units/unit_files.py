"""Units of a fixed size, numbered from 0, in files of a fixed number of units.

The layout of RocketMQ's consume queue: a file is named by the byte position of its first unit.
Files grow in steps of 64 KiB; what is not written yet is zero, and no unit has a zero size field
(i32 at byte 8), so the end can be found in the files alone.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from imago_log.disk.files import FilePool, Unsynced, fatal, offset_name, offsets_of, write_all
from imago_log.errors import LogIOError, NoSpaceError

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log.disk.vfs import OpenFile

STEP = 1 << 16
UNITS_PER_FILE = 300_000
BLANK_SIZE_FIELD = 0x7FFF_FFFF
"""Size field of the units before the first real one, where the queue does not start at 0."""
LOST_SIZE_FIELD = -1
"""Size field of the units whose records are lost in a damaged part of the log."""


class UnitFiles:
    """The files of one numbered sequence. `first` … `end` are the units on file."""

    __slots__ = (
        "_allocated",
        "_folder",
        "_last_name",
        "_owed",
        "_pool",
        "_prefix",
        "_starts",
        "_unit",
        "_units_per_file",
        "end",
    )

    def __init__(
        self, pool: FilePool, folder: Path, unit_size: int, units_per_file: int = UNITS_PER_FILE
    ) -> None:
        self._pool, self._folder = pool, folder
        self._prefix = f"{folder}/"
        self._unit, self._units_per_file = unit_size, units_per_file
        self._starts: list[int] = []
        """First unit of each file, contiguous."""
        self._allocated = 0
        """Size of the last file."""
        self._last_name = (-1, "")
        """The file that was asked for last, by its first unit."""
        self._owed: tuple[int, bytes] | None = None
        """The first of the blank units that found no room, and one of them: there are no others."""
        self.end = 0

    @property
    def exists(self) -> bool:
        """Whether there is any file, or was to be one."""
        return bool(self._starts) or self._owed is not None

    @property
    def owes(self) -> bool:
        """Whether blank units are not in a file for want of room."""
        return self._owed is not None

    @property
    def first(self) -> int:
        """The first unit that a file holds, blank ones included."""
        if self._owed is not None:
            return self._owed[0]
        return self._starts[0] if self._starts else self.end

    @property
    def first_path(self) -> Path:
        """The file that the next unit goes to while there is none."""
        return self._path(self.end - self.end % self._units_per_file)

    def load(self) -> None:
        """Find the files and their end."""
        with fatal("list", self._folder):
            positions = offsets_of(self._pool.vfs.names(self._folder))
        self._owed = None
        self._starts = [position // self._unit for position in positions]
        if not self._starts:
            self.end = 0
            return
        with fatal("open", self._folder):
            file = self._file(self._starts[-1])
            self._allocated = self._pool.vfs.size(file.fd)
            self.end = self._starts[-1] + self._written_units(file)

    def _written_units(self, file: OpenFile) -> int:
        low, high = 0, self._allocated // self._unit
        while low < high:
            middle = (low + high) // 2
            size_field = self._pool.vfs.pread(file.fd, 4, middle * self._unit + 8)
            if any(size_field):
                low = middle + 1
            else:
                high = middle
        return low

    def is_blank_behind(self) -> bool:
        """Whether zeros follow the end that was found, as far as a quarter of a step.

        What is further behind is found when the end gets there.
        """
        if not self._starts or self._owed is not None:
            return True
        start = self._starts[-1]
        at = (self.end - start) * self._unit
        with fatal("read", self._folder):
            behind = self._pool.vfs.pread(
                self._file(start).fd, min(STEP // 4, self._allocated - at), at
            )
        return behind == bytes(len(behind))

    def append(self, data: bytes) -> None:
        """Write whole units at the end."""
        self.settle()
        view = memoryview(data)
        while view:
            start = self.end - self.end % self._units_per_file
            if not self._starts or self._starts[-1] != start:
                self._new_file(start)
            count = min(len(view) // self._unit, start + self._units_per_file - self.end)
            self._write(start, bytes(view[: count * self._unit]))
            view = view[count * self._unit :]

    def _new_file(self, start: int) -> None:
        with fatal("create", self._folder):
            if not self._starts:
                self._pool.vfs.make_folder(self._folder)
            self._pool.get(self._name(start), create=True)
        self._starts.append(start)
        self._allocated = 0

    def _write(self, start: int, data: bytes) -> None:
        position = (self.end - start) * self._unit
        end = position + len(data)
        with fatal("write", self._folder):
            file = self._file(start)
            if end > self._allocated:
                size_max = self._units_per_file * self._unit
                self._allocated = min(-(-end // STEP) * STEP, size_max)
                self._pool.vfs.truncate(file.fd, self._allocated)
        write_all(self._pool.vfs, file.fd, data, position, file.path)
        self.end += len(data) // self._unit

    def overwrite(self, unit: int, data: bytes) -> None:
        """Write units again that are in the files already."""
        self.settle()
        while data:
            start = unit - unit % self._units_per_file
            part = data[: (start + self._units_per_file - unit) * self._unit]
            path = self._path(start)
            with fatal("open", path):
                file = self._file(start)
            write_all(self._pool.vfs, file.fd, part, (unit - start) * self._unit, path)
            unit, data = unit + len(part) // self._unit, data[len(part) :]

    def start_at(self, unit: int, blank: bytes) -> None:
        """Begin a sequence at a unit above 0: the file's units before it are `blank`.

        Without room they are owed: see `settle`.
        """
        while self._starts:  # what a power loss has left of a beginning like this one
            self._unlink(self._starts.pop())
        start = unit - unit % self._units_per_file
        if unit == start:  # never without a blank one: it keeps what the next unit follows
            start = max(0, start - self._units_per_file)
        self._owed, self.end = (start, blank), unit
        with contextlib.suppress(NoSpaceError):
            self.settle()

    def settle(self) -> None:
        """Write the blank units that are owed. NoSpaceError: there is no room yet."""
        if self._owed is None:
            return
        owed, unit = self._owed, self.end
        self._owed, self.end = None, owed[0]
        try:
            self.append(owed[1] * (unit - owed[0]))
        except NoSpaceError:
            self._owed, self.end = owed, unit
            raise

    def reach_back(self, unit: int, blank: bytes) -> None:
        """Make the files before the first one, down to that of a unit; all in them is `blank`."""
        self.settle()
        while self._starts and self._starts[0] > unit:
            start = self._starts[0] - self._units_per_file
            with fatal("create", self._folder):
                file = self._pool.get(self._name(start), create=True)
            write_all(self._pool.vfs, file.fd, blank * self._units_per_file, 0, file.path)
            self._starts.insert(0, start)

    def read(self, start: int, count: int) -> bytes:
        """Return up to `count` units, fewer at the end; all of them are within first … end."""
        end = min(start + count, self.end)
        file_start = start - start % self._units_per_file
        if end <= file_start + self._units_per_file:
            return self._read_in(file_start, start, end)
        parts = []
        while start < end:
            file_start = start - start % self._units_per_file
            file_end = min(end, file_start + self._units_per_file)
            parts.append(self._read_in(file_start, start, file_end))
            start = file_end
        return b"".join(parts)

    def _read_in(self, file_start: int, start: int, end: int) -> bytes:
        unit, pool = self._unit, self._pool
        if self._owed is not None:
            return self._owed[1] * (end - start)
        known, name = self._last_name
        if known != file_start:
            name = self._name(file_start)
        try:
            fd = pool.get(name).fd
            return pool.vfs.pread(fd, (end - start) * unit, (start - file_start) * unit)
        except OSError as error:
            raise LogIOError("read", self._folder, error) from error

    def truncate(self, end: int, *, torn: bool = False) -> None:
        """Cut off the units from `end` on. The first file stays: its name keeps the numbering.

        With `torn` there may be more behind the end that was found, and goes too.
        """
        if self._owed is not None:
            self.end = max(self._owed[0], min(self.end, end))
            return
        if not self._starts or end > self.end or (end == self.end and not torn):
            return
        files = len(self._starts)
        while len(self._starts) > 1 and self._starts[-1] >= end:
            self._unlink(self._starts.pop())
        if len(self._starts) < files:
            with fatal("sync", self._folder):  # a power loss must not bring them back
                self._pool.vfs.sync_folder(self._folder)
        start = self._starts[-1]
        with fatal("truncate", self._folder):
            self._allocated = (end - start) * self._unit
            self._pool.vfs.truncate(self._file(start).fd, self._allocated)
        self.end = end

    def drop_before(self, unit: int) -> None:
        """Remove the files whose units are all before `unit`, but never the last file."""
        while len(self._starts) > 1 and self._starts[1] <= unit:
            self._unlink(self._starts.pop(0))

    def unsynced(self, synced: int) -> list[Unsynced]:
        """Return the files to sync when the units before `synced` are on the device.

        In any thread.
        """
        per_file, starts = self._units_per_file, self._starts.copy()
        return [(self._path(at), at >= synced) for at in starts if at + per_file > synced]

    def _file(self, start: int) -> OpenFile:
        return self._pool.get(self._name(start))

    def _name(self, start: int) -> str:
        if self._last_name[0] != start:
            self._last_name = (start, self._prefix + offset_name(start * self._unit))
        return self._last_name[1]

    def _path(self, start: int) -> Path:
        return self._folder / offset_name(start * self._unit)

    def _unlink(self, start: int) -> None:
        path = self._path(start)
        self._pool.forget(self._name(start))
        with fatal("remove", path):
            self._pool.vfs.unlink(path)
