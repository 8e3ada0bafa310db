"""One round of making views durable, for the worker."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from imago_log.disk.files import replace_whole
from imago_log.errors import NoSpaceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.commitlog.damage import Damage
    from imago_log.disk.files import Unsynced
    from imago_log.disk.folder import DataFolder
    from imago_log.disk.vfs import Vfs
    from imago_log.metadata.image import MetadataImage
    from imago_log.results import DamagedRange
    from imago_log.views.consume_queue import ConsumeQueue
    from imago_log.views.metaq_segments import MetaqSegments


REST_SECONDS = 0.001
FILES_AT_ONCE = 128
"""Files that a sync holds open."""


@dataclass(slots=True)
class SyncJob:
    """One round of making views durable: what to sync, and what holds afterwards."""

    files: list[Unsynced]
    snapshot: MetadataImage | None
    queues: list[tuple[ConsumeQueue, int, int]]
    segments: list[tuple[MetaqSegments, int]]
    views_end: int
    metadata_end: int
    keys: tuple[int, int]
    version: int
    healed: tuple[DamagedRange, ...]
    """Damage whose views are whole again, and on the device once this is done."""
    began_ms: int
    took_ms: int = 0

    def end(self, now_ms: int) -> None:
        """Record how long it took."""
        self.took_ms = now_ms - self.began_ms

    def all_files(self) -> Iterator[Unsynced]:
        """The files of queues, which may be thousands, are named here: in the worker."""
        for queue, synced, _ in self.queues:
            for files in queue.files():
                yield from files.unsynced(synced)
        yield from self.files

    def run(self, log: CommitLog, damage: Damage, vfs: Vfs, folder: DataFolder) -> None:
        """Sync everything. The log first: no view may be ahead of it on the device."""
        log.sync()
        if self.snapshot is not None:
            replace_whole(vfs, folder.metadata, self.snapshot.encode(_rest))
        folders: set[Path] = set()
        files = self.all_files()
        while batch := list(islice(files, FILES_AT_ONCE)):
            _sync_files(vfs, [path for path, _ in batch])
            folders.update(*(path.parents for path, is_new in batch if is_new))
        for path in sorted(folders.difference(folder.root.parents)):
            with _unless_deleted("sync", path):
                vfs.sync_folder(path)
        for segments, position in self.segments:
            segments.mark_synced(position)
        if self.healed:
            damage.forget_healed(self.healed)
            damage.save()


def _rest() -> None:
    """Yield the interpreter to the store's thread: only sleeping makes sure of it."""
    time.sleep(REST_SECONDS)


def _sync_files(vfs: Vfs, paths: Sequence[Path]) -> None:
    """Sync some files: the device has begun with all of them before the first one is waited for.

    One after the other, each would wait for the device alone: thousands take several times as long.
    """
    opened: list[tuple[Path, int]] = []
    try:
        for path in paths:
            with _unless_deleted("open", path):
                opened.append((path, vfs.open(path)))
        for _, fd in opened:
            vfs.start_sync(fd)
        for path, fd in opened:
            with _unless_deleted("sync", path):
                vfs.sync(fd)
    finally:
        for _, fd in opened:
            vfs.close(fd)


@contextlib.contextmanager
def _unless_deleted(action: str, path: Path) -> Iterator[None]:
    """Tolerate a missing file: topics and old files may go while the worker runs."""
    try:
        yield
    except FileNotFoundError:
        return
    except OSError as error:
        raise NoSpaceError.of(action, path, error) from error
