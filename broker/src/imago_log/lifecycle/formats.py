"""Whether a data folder is of a later version: looked at before anything in it is changed.

What a later version has written looks damaged to this one, and damage is rebuilt, or cut where it
was never synced. So the version comes first: docs/versions.md.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from imago_log.commitlog import checkpoint, damage
from imago_log.disk.files import fatal, read_whole
from imago_log.errors import LaterFormatError
from imago_log.metadata.image import SNAPSHOT_FORMAT
from imago_wire.crc import crc31

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log.disk.folder import DataFolder
    from imago_log.disk.vfs import Vfs

FORMAT: Final = 1
"""Of the folder as a whole: what has no version of its own, the log and its views."""
FORMAT_FILE: Final = "format"
"""Holds its number and a line feed; without it the number is 1, as in all folders until now."""
_VIEWS: Final = 1
_FIRST: Final = re.compile(rb'(\d{10})\n\{"format":(\d{1,9})\b')
_HEAD_BYTES: Final = 32


def refuse_later(vfs: Vfs, folder: DataFolder) -> None:
    """LaterFormatError: this version must not touch the folder."""
    path = folder.root / FORMAT_FILE
    said = _read(vfs, path)
    if said is not None:
        text = said.strip()
        _compare(path, int(text) if text.isdigit() and len(text) < 10 else text, FORMAT)
    slots = _read(vfs, folder.checkpoint) or b""
    for at in range(0, len(slots), checkpoint.SLOT_SIZE):
        found = checkpoint.later_version(slots[at : at + checkpoint.SLOT_SIZE])
        _compare(folder.checkpoint, found, checkpoint.VERSION)
    for path, known in ((folder.metadata, SNAPSHOT_FORMAT), (folder.damage, damage.FORMAT)):
        _compare(path, _json_format(vfs, path), known)
    mark = (_read(vfs, folder.views_mark) or b"").partition(b"\n")[0]
    _compare(folder.views_mark, int(mark) if mark.isdigit() and len(mark) < 10 else 0, _VIEWS)


def _compare(path: Path, found: int | bytes, known: int) -> None:
    if isinstance(found, bytes) or found > known:
        raise LaterFormatError(path, found, known)


def _json_format(vfs: Vfs, path: Path) -> int:
    """Return what a whole file says of itself; 0: it is missing or damaged, others see to that."""
    with fatal("read", path):
        if not vfs.exists(path):
            return 0
        fd = vfs.open(path)
        try:
            first = _FIRST.match(vfs.pread(fd, _HEAD_BYTES, 0))
        finally:
            vfs.close(fd)
    if first is None or int(first[2]) <= 1:
        return 1
    # A bit that flipped is damage, and no later version.
    content = (_read(vfs, path) or b"").partition(b"\n")[2].removesuffix(b"\n")
    return int(first[2]) if int(first[1]) == crc31(content) else 0


def _read(vfs: Vfs, path: Path) -> bytes | None:
    with fatal("read", path):
        return read_whole(vfs, path)
