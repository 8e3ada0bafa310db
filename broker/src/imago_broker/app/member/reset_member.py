"""A data folder that begins again: what was in it is set aside, and its broker is a new member.

Decided while the broker runs and knows the shard (`core.shard.expendable`), done at the next
start before anything is opened. A crash in between is gone on with.
"""

from __future__ import annotations

import logging
import os
import shutil
from typing import TYPE_CHECKING

from imago_log.disk.vfs import OsVfs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

logger = logging.getLogger(__name__)

MARK = "begin-again"
ASIDE = "set-aside"
LOCK = "lock"


def decide(folder: Path, why: str) -> None:
    """Have the next start set aside what is here; on disk when this returns."""
    with (folder / MARK).open("w", encoding="utf-8") as file:
        file.write(why + "\n")
        file.flush()
        os.fsync(file.fileno())
    _sync(folder)


def set_aside(folder: Path, *, ratio_max: float) -> None:
    """Do what was decided, if anything was, unless somebody else has the folder.

    What was there stays in the folder `set-aside`, where it leaves room for a new copy below
    `ratio_max` of the disk; else it is deleted, as is what an earlier time has set aside.
    """
    if not (folder / MARK).exists():
        return
    vfs = OsVfs()
    lock = vfs.lock(folder / LOCK)
    if lock is None:
        return  # the store says so
    try:
        why = (folder / MARK).read_text(encoding="utf-8", errors="replace").strip()
        _move(folder)
        kept = _room(folder / ASIDE, ratio_max)
        if not kept:
            shutil.rmtree(folder / ASIDE)
        _sync(folder)
        (folder / MARK).unlink()
        _sync(folder)
    finally:
        vfs.close(lock)
    where = f"it is in {folder / ASIDE}" if kept else "it was deleted, for want of room"
    logger.warning("log_set_aside folder=%s reason=%s; %s", folder, why, where)


def _move(folder: Path) -> None:
    """Move all there is, the uuid last: while it is here, the move has not been finished."""
    uuid = folder / "uuid"
    if not uuid.exists():
        return
    aside = folder / ASIDE / uuid.read_text(encoding="ascii", errors="replace").strip()[:64]
    if (folder / ASIDE).exists():
        for path in (folder / ASIDE).iterdir():
            if path != aside:
                shutil.rmtree(path)
    aside.mkdir(parents=True, exist_ok=True)
    for path in sorted(_contents(folder), key=lambda path: path == uuid):
        path.replace(aside / path.name)
    _sync(aside)


def _contents(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if path.name not in (MARK, ASIDE, LOCK))


def _room(aside: Path, ratio_max: float) -> bool:
    """Whether a copy as large as what is here fits beside it."""
    size = sum(path.stat().st_blocks * 512 for path in aside.rglob("*") if path.is_file())
    disk = shutil.disk_usage(aside)
    return disk.used + size < ratio_max * disk.total


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
