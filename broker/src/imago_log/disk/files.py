"""Small things that every file of the store needs: a bounded set of open files, whole-file
replacement, errors that stop the process."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from imago_log.disk.vfs import OpenFile, Vfs
from imago_log.errors import NO_ROOM, NoSpaceError

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOM_BYTES = 4096
"""Kept for the next content of a small file: a block of the file system."""
OFFSET_DIGITS = 20
"""Names of log and view files: their first byte's offset, decimal, zero-padded."""


def offset_name(offset: int) -> str:
    """Return the file name for a start offset."""
    return f"{offset:0{OFFSET_DIGITS}d}"


def offsets_of(names: list[str], suffix: str = "") -> list[int]:
    """Return the start offsets of the files whose names are offsets; other names are ignored."""
    found = []
    for name in names:
        stem = name.removesuffix(suffix) if suffix else name
        if name.endswith(suffix) and len(stem) == OFFSET_DIGITS and stem.isdecimal():
            found.append(int(stem))
    return sorted(found)


@contextlib.contextmanager
def fatal(action: str, path: Path) -> Iterator[None]:
    """Turn an OSError into LogIOError, one for want of room into NoSpaceError."""
    try:
        yield
    except OSError as error:
        raise NoSpaceError.of(action, path, error) from error


def write_all(vfs: Vfs, fd: int, data: bytes | bytearray, offset: int, path: Path) -> None:
    """Write all bytes; a short write is carried on, a refused one is fatal: see `fatal`."""
    try:
        written = vfs.pwrite(fd, data, offset)
        while written < len(data):
            written += _some(vfs.pwrite(fd, memoryview(data)[written:], offset + written))
    except OSError as error:
        raise NoSpaceError.of("write", path, error) from error


def _some(count: int) -> int:
    if count <= 0:
        raise OSError(0, "nothing was written")
    return count


def read_whole(vfs: Vfs, path: Path) -> bytes | None:
    """Return a file's content, or None when there is no such file."""
    if not vfs.exists(path):
        return None
    fd = vfs.open(path)
    try:
        return vfs.pread(fd, vfs.size(fd), 0)
    finally:
        vfs.close(fd)


def replace_whole(
    vfs: Vfs, path: Path, data: bytes, *, durable: bool = True, room: bool = False
) -> None:
    """Put a new content in a file's place: after a crash there is the old one or the new one.

    With `durable=False` a power loss may leave the file empty or gone, which its reader must bear.
    With `room` the disk keeps room for the next content, where it has any: see `keep_room`.
    """
    fresh = _fresh(path)
    with fatal("replace", path):
        fd = vfs.open(fresh, create=True)
        try:
            write_all(vfs, fd, data, 0, fresh)  # into the room that may be kept for it
            vfs.truncate(fd, len(data))
            if durable:
                vfs.sync(fd)
        finally:
            vfs.close(fd)
        vfs.rename(fresh, path)
        if room:
            _take_room(vfs, fresh)
        if durable:
            vfs.sync_folder(path.parent)


def keep_room(vfs: Vfs, path: Path) -> None:
    """Keep room for the next content of a small file, where the disk has any.

    A start on a full disk needs it.
    """
    fresh = _fresh(path)
    if not vfs.exists(fresh):
        with fatal("create", fresh):
            _take_room(vfs, fresh)
            vfs.sync_folder(path.parent)


def remove_keeping_room(vfs: Vfs, path: Path) -> None:
    """Remove a small file durably; where it has no room for its next content, it becomes that.

    See `keep_room`. Where not a block is free no file can be made, but one can be renamed.
    """
    room = _fresh(path)
    becomes_it = vfs.exists(path) and not vfs.exists(room)
    with fatal("remove", path):
        if becomes_it:
            vfs.rename(path, room)
        else:
            vfs.unlink(path)
        vfs.sync_folder(path.parent)
    if becomes_it:
        _clear(vfs, room)


def _clear(vfs: Vfs, room: Path) -> None:
    """Write zeros over what would look like the content of a write that was interrupted."""
    with fatal("clear", room):
        fd = vfs.open(room)
        try:
            write_all(vfs, fd, bytes(vfs.size(fd)), 0, room)
        finally:
            vfs.close(fd)


def _take_room(vfs: Vfs, fresh: Path) -> None:
    try:
        fd = vfs.open(fresh, create=True)
        try:
            vfs.allocate(fd, ROOM_BYTES)
            vfs.sync(fd)
        finally:
            vfs.close(fd)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        vfs.unlink(fresh)


def _fresh(path: Path) -> Path:
    return path.with_name(path.name + ".new")


Unsynced = tuple[Path, bool]
"""A file with bytes that are not on the device; whether its name may not be there either."""


class FilePool:
    """Open view files, at most `count_max`; the least recently used one is let go.

    A file that somebody still holds stays open until it is dropped. Names are whole paths as text:
    they are looked up for every read of a view, and building a Path costs more than the read.
    """

    def __init__(self, vfs: Vfs, count_max: int) -> None:
        self.vfs = vfs
        self._count_max = count_max
        self._files: OrderedDict[str, OpenFile] = OrderedDict()

    def get(self, name: str, *, create: bool = False) -> OpenFile:
        """Return the open file. OSError when it cannot be opened."""
        file = self._files.get(name)
        if file is not None:
            self._files.move_to_end(name)
            return file
        path = Path(name)
        file = OpenFile(self.vfs, path, self.vfs.open(path, create=create))
        self._files[name] = file
        if len(self._files) > self._count_max:
            self._files.popitem(last=False)
        return file

    def forget(self, name: str) -> None:
        """Let go of a file that is about to be removed or renamed."""
        self._files.pop(name, None)

    def forget_below(self, folder: Path) -> None:
        """Let go of all files below a folder."""
        prefix = f"{folder}/"
        for name in [name for name in self._files if name.startswith(prefix)]:
            del self._files[name]

    def close(self) -> None:
        """Let go of all files."""
        self._files.clear()
