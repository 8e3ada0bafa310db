"""Small files of the data folder that are the broker's own: one JSON object behind its checksum."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from imago_log.disk.files import read_whole, replace_whole
from imago_log.disk.vfs import OsVfs
from imago_wire.crc import crc31
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_DIGITS = 10


class CheckedFile:
    """Ten digits of crc31, a line feed, then one JSON object."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._vfs = OsVfs()

    def read(self) -> dict[str, Any] | None:
        """Return the object; None: there is no file. ValueError: it is damaged."""
        data = read_whole(self._vfs, self.path)
        if data is None:
            return None
        digits, _, content = data.partition(b"\n")
        if digits != b"%0*d" % (_DIGITS, crc31(content)):
            raise WrongError("the checksum is wrong")
        found: dict[str, Any] = json.loads(content)
        return found

    def write(self, entries: Mapping[str, Any]) -> None:
        """Keep this instead, durably; LogIOError where it cannot be."""
        content = json.dumps(dict(sorted(entries.items())), separators=(",", ":")).encode()
        data = b"%0*d\n%b" % (_DIGITS, crc31(content), content)
        replace_whole(self._vfs, self.path, data)

    def remove(self) -> None:
        """Take the file away for good, if it is there; OSError where that cannot be."""
        self.path.unlink(missing_ok=True)
        self._vfs.sync_folder(self.path.parent)
