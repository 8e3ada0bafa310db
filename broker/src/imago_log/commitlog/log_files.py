"""The files of one log: named by their first offset, all of one size, preallocated."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from imago_log.disk.files import fatal, offset_name, offsets_of
from imago_log.disk.vfs import OpenFile, Vfs
from imago_log.errors import CorruptLogError, DiskFullError, FileSizeError, NoSpaceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


class LogFiles:
    """The open files by number: first offset // `segment_size`."""

    def __init__(self, vfs: Vfs, folder: Path, segment_size: int) -> None:
        self._vfs, self.folder, self.segment_size = vfs, folder, segment_size
        self._by_number: dict[int, OpenFile] = {}
        self.get = self._by_number.get
        """The file of a number, or None."""

    def __bool__(self) -> bool:
        return bool(self._by_number)

    def load(self, start: int | None) -> dict[int, int]:
        """Find the files from `start` on (None: from the first one); leftovers below are removed.

        Return the sizes by first offset. FileSizeError: these are files of another size, and
        none was removed.
        """
        with fatal("list", self.folder):
            bases = offsets_of(self._vfs.names(self.folder))
        self._refuse_another_size(bases)
        sizes: dict[int, int] = {}
        for base in bases:
            path = self.folder / offset_name(base)
            if start is not None and base + self.segment_size <= start:
                with fatal("remove", path):
                    self._vfs.unlink(path)
            elif base % self.segment_size:
                raise CorruptLogError(path, 0, f"does not start at a multiple of the file size "
                                               f"{self.segment_size}")  # fmt: skip
            else:
                self._load_file(path, base, sizes, last=base == bases[-1])
        self._check_sizes(sizes)
        return sizes

    def _refuse_another_size(self, bases: list[int]) -> None:
        """See whether a file is as long as the next one begins behind it, or longer if alone."""
        for base, next_base in zip(bases, bases[1:] or bases, strict=False):
            path = self.folder / offset_name(base)
            with fatal("open", path):
                file = OpenFile(self._vfs, path, self._vfs.open(path))
                size = self._vfs.size(file.fd)
            whole = size == next_base - base if next_base > base else size > self.segment_size
            if whole and size != self.segment_size:
                raise FileSizeError(path, size, self.segment_size)

    def _load_file(self, path: Path, base: int, sizes: dict[int, int], *, last: bool) -> None:
        with fatal("open", path):
            file = OpenFile(self._vfs, path, self._vfs.open(path))
            size = self._vfs.size(file.fd)
            if size < self.segment_size and last and not any(self._vfs.pread(file.fd, 64, 0)):
                self._vfs.unlink(path)  # a crash while it was being made
                return
        sizes[base] = size
        self._by_number[base // self.segment_size] = file

    def _check_sizes(self, sizes: dict[int, int]) -> None:
        """Tell files that were cut from those of a log with another file size."""
        wrong = [base for base, size in sizes.items() if size != self.segment_size]
        larger = [base for base in wrong if sizes[base] > self.segment_size]
        alike = len(wrong) == len(sizes) > 1 and len(set(sizes.values())) == 1
        if larger or alike:
            base = larger[0] if larger else wrong[0]
            reason = f"{sizes[base]} bytes, the configured file size is {self.segment_size}"
            raise CorruptLogError(self.path(base), min(sizes[base], self.segment_size), reason)

    def path(self, offset: int) -> Path:
        """Return the path of the file that holds an offset."""
        return self.folder / offset_name(offset - offset % self.segment_size)

    def numbers(self) -> list[int]:
        """Return the numbers of all files, in order."""
        return sorted(self._by_number)

    def put(self, number: int, file: OpenFile) -> None:
        """Take a file that was made into the log."""
        self._by_number[number] = file

    def take(self, number: int) -> OpenFile:
        """Return the file of a number, made when it is missing."""
        file = self._by_number.get(number)
        if file is None:
            file = self._by_number[number] = self.create(number)
        return file

    def create(self, number: int) -> OpenFile:
        """Make the file of a number, whole and durable. DiskFullError: it has no room."""
        path = self.folder / offset_name(number * self.segment_size)
        with self._reserving(), fatal("create", path):
            file = OpenFile(self._vfs, path, self._vfs.open(path, create=True))
            try:
                self.allocate(file)
                self._vfs.sync(file.fd)
                self._vfs.sync_folder(self.folder)
            except DiskFullError:
                self._vfs.unlink(path)
                raise
        return file

    def cut(self, file: OpenFile, position: int) -> None:
        """Cut off the bytes behind a position; the file has its size again, durably."""
        with fatal("truncate", file.path):
            self._vfs.truncate(file.fd, position)
            self.allocate(file)
            self._vfs.sync(file.fd)

    def allocate(self, file: OpenFile) -> None:
        """Give a file its whole size. DiskFullError: there is no room."""
        with self._reserving(), fatal("allocate", file.path):
            self._vfs.allocate(file.fd, self.segment_size)

    @contextlib.contextmanager
    def _reserving(self) -> Iterator[None]:
        """Say that the disk is full before anything depends on the room."""
        try:
            yield
        except NoSpaceError as error:
            used_ratio = self._vfs.disk_usage(self.folder).ratio
            raise DiskFullError(used_ratio=used_ratio, limit_ratio=1.0) from error

    def remove_from(self, first: int, spares: Iterable[Path] = ()) -> None:
        """Remove files made ahead, then those from a number on, the newest first: never a gap.

        Their names are gone durably.
        """
        numbers = [number for number in sorted(self._by_number, reverse=True) if number >= first]
        removed = [*spares, *(self._by_number.pop(number).path for number in numbers)]
        for path in removed:
            with fatal("remove", path):
                self._vfs.unlink(path)
        if removed:
            with fatal("sync", self.folder):
                self._vfs.sync_folder(self.folder)

    def forget_before(self, first: int) -> list[Path]:
        """Take the files below a number out of the log; return what to unlink."""
        gone = [number for number in sorted(self._by_number) if number < first]
        for number in gone:
            del self._by_number[number]
        return [self.folder / offset_name(number * self.segment_size) for number in gone]

    def close(self) -> None:
        """Let go of all files."""
        self._by_number.clear()
