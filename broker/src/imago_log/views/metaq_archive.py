"""What stays of a partition's expired files: nothing, the file by another name, or a packed one.

`X.meta.arc` is the file as it was. `X.meta.zip` has one entry, named `X.meta`; it is made from the
first by the worker, so a crash meanwhile leaves the file whole, under the first name.
"""

from __future__ import annotations

import zipfile
from typing import IO, TYPE_CHECKING, Final, cast

from imago_log.disk.files import fatal, write_all

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log.disk.vfs import Vfs

ARCHIVED: Final = ".arc"
PACKED: Final = ".zip"
UNFINISHED: Final = ".zip.part"
READ_BYTES: Final = 1 << 20


def is_archive(name: str) -> bool:
    """Whether a file of a partition's folder is one that nobody reads any more."""
    return name.endswith((ARCHIVED, PACKED, UNFINISHED))


def set_aside(vfs: Vfs, path: Path) -> Path:
    """Give an expired file its other name; return where it is now."""
    target = path.with_name(path.name + ARCHIVED)
    with fatal("rename", path):
        vfs.rename(path, target)
    return target


def pack(vfs: Vfs, archived: Path) -> None:
    """Make a packed file in place of an archived one, which may be large: in the worker."""
    name = archived.name.removesuffix(ARCHIVED)
    unfinished = archived.with_name(name + UNFINISHED)
    with fatal("pack", archived):
        if vfs.exists(unfinished):
            vfs.unlink(unfinished)
        source, target = vfs.open(archived), vfs.open(unfinished, create=True)
    try:
        _copy(vfs, source, _Appending(vfs, target, unfinished), name)
        with fatal("sync", unfinished):
            vfs.sync(target)
    finally:
        vfs.close(source)
        vfs.close(target)
    with fatal("rename", unfinished):
        vfs.rename(unfinished, archived.with_name(name + PACKED))
        vfs.sync_folder(archived.parent)
        vfs.unlink(archived)


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
