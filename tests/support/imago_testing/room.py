"""Whether the disk has room for the whole suite: brokers take the segments of their logs ahead."""

from __future__ import annotations

import shutil
import tempfile
from typing import Final

ROOM_MIN: Final = 3 << 30
"""Bytes of temporary files that a run by several workers has at the least."""


def lacking_room(free: int, folder: str) -> str | None:
    """Return what to do about too little free space, in bytes; None where it suffices."""
    if free >= ROOM_MIN:
        return None
    return (
        f"{folder} has {free / (1 << 30):.1f} GiB of free space, and all tests need"
        f" {ROOM_MIN >> 30} GiB: free some, or set TMPDIR to a folder on another disk."
    )


def lacking_room_here() -> str | None:
    """Return what to do about too little space for temporary files on this machine."""
    folder = tempfile.gettempdir()
    return lacking_room(shutil.disk_usage(folder).free, folder)
