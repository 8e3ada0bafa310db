"""What stays of a partition's expired files: nothing, the file by another name, or a packed one.

`X.meta.arc` is the file as it was. `X.meta.zip` has one entry, named `X.meta`; it is made from the
first by the worker, so a crash meanwhile leaves the file whole, under the first name: the next
start packs it. Archives belong to people, who may take them away at any time.
"""

from __future__ import annotations

import zipfile
from collections import deque
from functools import partial
from typing import IO, TYPE_CHECKING, Final, cast

from imago_log.disk.files import fatal, write_all
from imago_log.errors import NoSpaceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imago_log.disk.vfs import Vfs

ARCHIVED: Final = ".arc"
PACKED: Final = ".zip"
UNFINISHED: Final = ".zip.part"
READ_BYTES: Final = 1 << 20
ROUND_BYTES_MAX: Final = 16 << 20
"""What one job of the worker packs, one larger file apart: other jobs wait for it."""


def is_archive(name: str) -> bool:
    """Whether a file of a partition's folder is one that nobody reads any more."""
    return name.endswith((ARCHIVED, PACKED, UNFINISHED))


def set_aside(vfs: Vfs, path: Path) -> Path:
    """Give an expired file its other name; return where it is now.

    A topic that was deleted and made again begins at the same positions: its archives stay beside
    those of the former one.
    """
    number, target = 1, path.with_name(path.name + ARCHIVED)
    while vfs.exists(target) or vfs.exists(target.with_suffix(PACKED)):
        number += 1
        target = path.with_name(f"{path.name}.{number}{ARCHIVED}")
    with fatal("rename", path):
        vfs.rename(path, target)
    return target


class Packing:
    """Makes packed files in place of archived ones, a few at a time: in the worker."""

    def __init__(self, vfs: Vfs, submit: Callable[[Callable[[], None]], None]) -> None:
        self._vfs, self._submit = vfs, submit
        self._waiting: deque[Path] = deque()
        self._running = False

    def find(self, folder: Path) -> None:
        """Take up what an earlier start has archived in a folder and not packed."""
        with fatal("list", folder):
            names = self._vfs.names(folder)
        self._waiting.extend(folder / name for name in names if name.endswith(ARCHIVED))

    def add(self, archived: Path) -> None:
        """Have a file packed."""
        self._waiting.append(archived)

    def go_on(self, room_bytes: int) -> None:
        """Pack the next files, as far as the disk has room for them beside what they are now."""
        if self._running:
            return
        files, size = [], 0
        while self._waiting and size < ROUND_BYTES_MAX:
            size += self._size(self._waiting[0])
            if size > room_bytes:
                break
            files.append(self._waiting.popleft())
        if files:
            self._running = True
            self._submit(partial(self._pack, deque(files)))

    def _size(self, path: Path) -> int:
        """Return a file's size; 0 where it was taken away, or went with its topic."""
        with fatal("open", path):
            try:
                fd = self._vfs.open(path)
            except FileNotFoundError:
                return 0
        try:
            return self._vfs.size(fd)
        finally:
            self._vfs.close(fd)

    def _pack(self, files: deque[Path]) -> None:
        try:
            while files:
                pack(self._vfs, files[0])
                files.popleft()
        except NoSpaceError:
            self._waiting.extendleft(reversed(files))  # again, once there is room
        finally:
            self._running = False


def pack(vfs: Vfs, archived: Path) -> None:
    """Make a packed file in place of an archived one, which may be large: in the worker."""
    name = archived.name.removesuffix(ARCHIVED)
    unfinished = archived.with_name(name + UNFINISHED)
    with fatal("pack", archived):
        if vfs.exists(unfinished):
            vfs.unlink(unfinished)
        try:
            source = vfs.open(archived)
        except FileNotFoundError:
            return
    try:
        _write_packed(vfs, source, unfinished, name)
    except NoSpaceError:
        with fatal("remove", unfinished):
            vfs.unlink(unfinished)
        raise
    finally:
        vfs.close(source)
    with fatal("rename", unfinished):
        try:
            vfs.rename(unfinished, archived.with_name(name + PACKED))
        except FileNotFoundError:  # somebody has moved the archives away, and this one with them
            return
        vfs.sync_folder(archived.parent)
        vfs.unlink(archived)


def _write_packed(vfs: Vfs, source: int, unfinished: Path, name: str) -> None:
    with fatal("pack", unfinished):
        target = vfs.open(unfinished, create=True)
    try:
        _copy(vfs, source, _Appending(vfs, target, unfinished), name)
        with fatal("sync", unfinished):
            vfs.sync(target)
    finally:
        vfs.close(target)


def _copy(vfs: Vfs, source: int, target: _Appending, name: str) -> None:
    size, at = vfs.size(source), 0
    with (
        zipfile.ZipFile(cast("IO[bytes]", target), "w", zipfile.ZIP_DEFLATED) as packed,
        packed.open(name, "w", force_zip64=True) as entry,
    ):
        while at < size:
            data = vfs.pread(source, min(READ_BYTES, size - at), at)
            entry.write(data)
            at += len(data)


class _Appending:
    """A file that is written from its start to its end: all that packing needs of one."""

    def __init__(self, vfs: Vfs, fd: int, path: Path) -> None:
        self._vfs, self._fd, self._path = vfs, fd, path
        self._end = 0

    def write(self, data: bytes) -> int:
        write_all(self._vfs, self._fd, data, self._end, self._path)
        self._end += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""
