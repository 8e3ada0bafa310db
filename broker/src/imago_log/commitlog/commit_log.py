"""The log itself: preallocated files of one size, one writer, one syncing thread.

Offsets are physical: byte positions in the whole log. A file is named by its first offset, which
is a multiple of the file size; a record never spans two files, a blank record closes a file whose
rest is too small. `write` reaches the page cache, `sync` the device.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from typing import TYPE_CHECKING

from imago_log.commitlog.log_files import LogFiles
from imago_log.disk.files import fatal, write_all
from imago_log.errors import CorruptLogError, DiskFullError, LogIOError
from imago_wire.errors import LimitExceededError
from imago_wire.record_format.layout import BLANK_SIZE, blank_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from imago_log.disk.vfs import OpenFile, Vfs


PAGE_BYTES = 4096
KEPT_PART = 8
"""Messages leave this part of the last file free while the next one cannot be made: retention says
in the log what goes before it frees a disk that is full to the last byte."""
STARTED_BYTES_MIN = 256 << 10
"""Writeback is started in parts at least so large."""
STARTED_PARTS_MAX = 32
"""And in so many at most."""
FILES_MAX = 1 << 20
"""Files of one log: a name far behind the others is no file of it."""


def parts(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield offset and size of the parts in which writeback is started."""
    size = max(STARTED_BYTES_MIN, -((start - end) // STARTED_PARTS_MAX))
    for at in range(start, end, size):
        yield at, min(size, end - at)


def at_once() -> bool:
    """Have a sync wait for nothing."""
    return False


class CommitLog:
    """The files of one log. Write and roll in one thread; `sync` and `add_spare` in any.

    `end` is what is written, `durable_end` what is synced; both only grow while open.
    """

    def __init__(self, vfs: Vfs, folder: Path, segment_size: int) -> None:
        self._vfs, self.folder, self.segment_size = vfs, folder, segment_size
        self.kept = segment_size // KEPT_PART
        """Bytes of the last file that messages leave free while there is no next one."""
        self._files = LogFiles(vfs, folder, segment_size)
        self._spares: deque[tuple[int, OpenFile]] = deque()
        self._spare_lock = threading.Lock()
        self._rolled: list[OpenFile] = []
        self._sync_lock = threading.Lock()
        self._cuts = 0
        """Grows with every cut: a sync that began before it promises nothing."""
        self.start = self.end = self.durable_end = 0
        self.version = 0
        """Grows whenever bytes before the end are written again, or taken away."""
        self._active: OpenFile | None = None
        self._base = 0
        self._limit = 0

    # Files

    def load(self, start: int | None) -> list[int]:
        """Find the files from `start` on (None: from the first one); leftovers below are removed.

        Return the first offsets of files between them that are missing or too short: their records
        are damaged. The end is not known yet. CorruptLogError: these are files of another size.
        """
        sizes, files = self._files.load(start), self._files.numbers()
        first = files[0] if files else (start or 0) // self.segment_size
        self.start = first * self.segment_size if start is None else start
        self.end = self.durable_end = self.start
        begin = self.start - self.start % self.segment_size
        if self.files_end - begin > FILES_MAX * self.segment_size:
            reason = f"is far behind the files before it, or the log's start {self.start}"
            raise CorruptLogError(self.path(self.files_end - 1), 0, reason)
        return [
            base
            for base in range(begin, self.files_end, self.segment_size)
            if sizes.get(base) != self.segment_size
        ]

    def path(self, offset: int) -> Path:
        """Return the path of the file that holds an offset."""
        return self._files.path(offset)

    def bases(self) -> list[int]:
        """Return the first offsets of all files, spares not included."""
        return [number * self.segment_size for number in self._files.numbers()]

    @property
    def files_end(self) -> int:
        """Where the last file ends; the log's start while it has no file."""
        return max((base + self.segment_size for base in self.bases()), default=self.start)

    # Opening for writes

    def begin(self, end: int, *, torn: bool) -> None:
        """Start to write at `end`. With `torn`, cut off the bytes behind it, durably.

        Stale records behind the end would come back to life at the next start. Where a file is to
        begin and the disk is full, the log begins without room: the next append asks for it.
        """
        self.version += 1
        number, position = divmod(end, self.segment_size)
        self._files.remove_from(number + 1)
        known = self._files.get(number)
        try:
            file = self._files.take(number)
        except DiskFullError:
            before = self._files.get(number - 1)
            if position or before is None:
                raise
            file, number = before, number - 1
        if known is not None and (torn or self._vfs.size(file.fd) < self.segment_size):
            self._files.cut(file, position)
        self._active, self._base = file, number * self.segment_size
        self._limit = self._base + self.segment_size
        self.end = end

    # Writing

    @property
    def room(self) -> int:
        """Bytes up to the end of the file that is written."""
        return self._limit - self.end

    def reserve(self, sizes: Iterable[int], leave: int = 0) -> None:
        """Make sure that records of at most these sizes can be written, in this order.

        Behind them that many bytes stay free, or another file exists. DiskFullError: they cannot,
        nothing has changed. LimitExceededError: one never can.
        """
        room, files = self.room, 0
        for size in sizes:
            if size + BLANK_SIZE > room:
                files, room = files + 1, self.segment_size
                if size + BLANK_SIZE > room:
                    raise LimitExceededError("record", size=size, size_max=room - BLANK_SIZE)
            room -= size
        if room < leave:
            files += 1
        while len(self._spares) < files:
            self.add_spare(files)

    def add_spare(self, count_max: int = 1) -> None:
        """Make the next file ahead of its use, unless there are `count_max` already."""
        with self._spare_lock:
            if len(self._spares) < count_max:
                newest = self._spares[-1][0] if self._spares else self._base // self.segment_size
                self._spares.append((newest + 1, self._files.create(newest + 1)))

    @property
    def spares(self) -> int:
        """How many files are made ahead."""
        return len(self._spares)

    def write(self, data: bytes) -> None:
        """Write whole records that fit, with one call to the file. LogIOError is final."""
        assert self._active is not None, "begin comes first"
        file, position = self._active, self.end - self._base
        try:
            written = self._vfs.pwrite(file.fd, data, position)
        except OSError as error:
            raise LogIOError("write", file.path, error) from error
        if written < len(data):
            rest = data[max(written, 0) :]
            write_all(self._vfs, file.fd, rest, position + max(written, 0), file.path)
        self.end += len(data)

    def roll(self, data: bytes) -> None:
        """Write the last records of this file and its blank record, then go to the next file."""
        if self.room:  # none is left where a start found the disk full
            self.write(data + blank_record(self.room - len(data)))
        assert self._active is not None, "begin comes first"
        number = self._base // self.segment_size + 1
        if not self._spares:
            self.add_spare()
        with self._spare_lock:
            spare_number, file = self._spares.popleft()
        assert spare_number == number, "spares follow the file that is written"
        with self._sync_lock:
            self._rolled.append(self._active)
            self._files.put(number, file)
            self._active = file
        self._base = self.end = number * self.segment_size
        self._limit = self._base + self.segment_size

    def sync_found(self, durable_end: int) -> None:
        """Sync what the last process wrote, before anything acts on it."""
        for number in self._files.numbers():
            file = self._files.get(number)
            if file is not None and number >= durable_end // self.segment_size:
                with fatal("sync", file.path):
                    self._vfs.sync(file.fd)

    def sync(self, rest: Callable[[], bool] = at_once) -> int:
        """Make everything written so far durable; return the new durable end.

        As long as `rest` says so, the writeback is started in parts first, each after a rest.
        """
        with self._sync_lock:
            active, end = self._active, self.end
        for at, size in parts(max(self.durable_end, end - end % self.segment_size), end):
            if active is None or not rest():
                break
            self._vfs.start_sync(active.fd, at % self.segment_size, size)
        with self._sync_lock:
            cuts, end = self._cuts, self.end  # what is written meanwhile is not promised
            rolled = list(self._rolled)
            files = [*rolled, *([self._active] if self._active else [])]
        for file in files:
            with fatal("sync", file.path):
                self._vfs.sync(file.fd)
        with self._sync_lock:
            self._rolled = [file for file in self._rolled if file not in rolled]
            if cuts == self._cuts:
                self.durable_end = max(self.durable_end, end)
            return self.durable_end

    # Cutting

    def truncate(self, end: int) -> None:
        """Cut off the bytes behind a record border, durably; files made ahead go too.

        A kill on the way leaves the log's end at `end` or at the end of a later file: the newest
        goes first.
        """
        self.version += 1
        number = end // self.segment_size
        with self._sync_lock:
            self._cuts += 1
            self.durable_end = min(self.durable_end, end)
        self._remove_files(number + 1)
        file = self._files.take(number)
        base = number * self.segment_size
        try:
            self._files.cut(file, end - base)
        except DiskFullError as error:  # it cannot go on with a short file, the next start can
            raise LogIOError("allocate", file.path, OSError(errno.ENOSPC, str(error))) from error
        with self._sync_lock:
            self._active = file
        self._base, self._limit, self.end = base, base + self.segment_size, end

    def remove_all(self) -> None:
        """Remove every file, durably: the log is empty and begins where it began."""
        self.version += 1
        with self._sync_lock:
            self._cuts += 1
            self._rolled.clear()
            self._active = None
        self._remove_files(0)
        self.end = self.durable_end = self.start

    def _remove_files(self, first: int) -> None:
        """Remove the files from a number on and those made ahead, the newest first."""
        with self._spare_lock:
            spares = [file.path for _, file in reversed(self._spares)]
            self._spares.clear()
        self._files.remove_from(first, spares)

    def begin_at(self, start: int) -> None:
        """Begin an empty log at an offset."""
        assert not self._files, "only an empty log can begin elsewhere"
        self.start = self.durable_end = start
        self.begin(start, torn=False)

    # Reading and deleting

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes within one file, fewer where it ends; b"" where there is none."""
        number, position = divmod(offset, self.segment_size)
        file = self._files.get(number)
        if file is None:
            return b""
        try:
            return self._vfs.pread(file.fd, size, position)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return self._read_around(file, size, position)

    def read_into(self, offset: int, memory: memoryview) -> bool:
        """Fill memory with bytes within one file; false: not all of them can be read at once."""
        number, position = divmod(offset, self.segment_size)
        file = self._files.get(number)
        if file is None:
            return False
        try:
            return self._vfs.pread_into(file.fd, memory, position) == len(memory)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False

    def _read_around(self, file: OpenFile, size: int, position: int) -> bytes:
        """Return zeros for pages that the device cannot read: damage like any other."""
        parts: list[bytes] = []
        end = position + size
        while position < end:
            count = min(PAGE_BYTES - position % PAGE_BYTES, end - position)
            try:
                part = self._vfs.pread(file.fd, count, position)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                part = bytes(count)
            parts.append(part)
            if len(part) < count:
                break
            position += count
        return b"".join(parts)

    def put_back(self, offset: int, data: bytes) -> None:
        """Write what was lost within one file; a missing file is made. The next sync covers it."""
        self.version += 1
        number, position = divmod(offset, self.segment_size)
        file = self._files.take(number)
        with fatal("put back", file.path):
            if self._vfs.size(file.fd) < self.segment_size:
                self._files.allocate(file)
            write_all(self._vfs, file.fd, data, position, file.path)
        with self._sync_lock:
            if file is not self._active and file not in self._rolled:
                self._rolled.append(file)

    def file_of(self, offset: int) -> OpenFile:
        """Return the open file that holds an offset."""
        file = self._files.get(offset // self.segment_size)
        assert file is not None, "only offsets that the log holds"
        return file

    def delete_before(self, start: int) -> list[Path]:
        """Take all files that end at or before `start` out of the log; return what to unlink."""
        self.start = max(self.start, start)
        return self._files.forget_before(self.start // self.segment_size)

    def close(self) -> None:
        """Close all files and remove those made ahead."""
        for _, file in self._spares:
            with fatal("remove", file.path):
                self._vfs.unlink(file.path)
        self._spares.clear()
        self._files.close()
        self._rolled.clear()
        self._active = None
