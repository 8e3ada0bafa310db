"""Making views and metadata durable in rounds, and the checkpoints that say so."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from imago_log.disk.files import replace_whole
from imago_log.disk.folder import LastStop
from imago_log.errors import NoSpaceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from imago_log.commitlog.checkpoint import Checkpoint
    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.commitlog.damage import Damage
    from imago_log.disk.files import Unsynced
    from imago_log.disk.folder import DataFolder
    from imago_log.disk.vfs import Vfs
    from imago_log.metadata.image import MetadataImage
    from imago_log.results import DamagedRange
    from imago_log.state import StoreState
    from imago_log.views.metaq.metaq_segments import MetaqSegments
    from imago_log.views.units.consume_queue import ConsumeQueue

SYNC_REST = 30
"""Between two rounds of syncing views there is so many times what the last one took."""
REST_SECONDS = 0.001
FILES_AT_ONCE = 128
"""Files that a sync holds open."""


class ViewSync:
    """Plans each round in the store's thread; the worker executes it."""

    def __init__(self, s: StoreState, last_stop: LastStop) -> None:
        self._sync_interval_ms = s.config.view_sync_interval_ms
        self._checkpoint_interval_ms = s.config.checkpoint_interval_ms
        self._clock, self._last_stop = s.monotonic, last_stop
        self._vfs, self._folder, self._log, self._damage = s.vfs, s.folder, s.log, s.damage
        self._watermark, self._checkpointer, self._metadata = (
            s.watermark,
            s.checkpointer,
            s.metadata,
        )
        self._queue_writer, self._keys, self._materialiser = s.queue_writer, s.keys, s.materialiser
        self._views, self._space, self._background = s.views, s.space, s.background
        self._next_sync_ms = s.monotonic()
        if last_stop is LastStop.CLEAN:
            self._next_sync_ms += s.config.view_sync_interval_ms
        self._next_checkpoint_ms = 0
        self._syncing: SyncJob | None = None
        self._synced: SyncJob | None = None

    def keep_found(self) -> None:
        """Start syncing what a start has read again, so that the next one need not read it."""
        if self._last_stop is not LastStop.CLEAN and self._may_snapshot():
            self._next_sync_ms += self._sync_interval_ms
            with self._space.awaited():
                self._start_sync()

    def keep(self, now_ms: int) -> None:
        """Sync when it is time to, else write a checkpoint when it is time to."""
        if now_ms >= self._next_sync_ms and self._syncing is None and self._may_snapshot():
            self._next_sync_ms = now_ms + self._sync_interval_ms
            self._start_sync()
        elif now_ms >= self._next_checkpoint_ms:
            self._next_checkpoint_ms = now_ms + self._checkpoint_interval_ms
            self._checkpoint()

    def _checkpoint(self) -> None:
        checkpoint = self._checkpointer.now()
        if checkpoint != self._checkpointer.written:
            self._background.submit_waiting(lambda: self._write_checkpoint(checkpoint))

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        self._checkpointer.write(checkpoint)

    def settle(self) -> None:
        """Let the worker end what it was given, and take over what it has done."""
        self._background.drain()
        self.take_synced()

    def _start_sync(self) -> None:
        job = self._plan_sync()
        if job is not None:
            self._syncing = job
            self._background.submit_waiting(lambda: self._sync(job))

    def _may_snapshot(self) -> bool:
        """Whether metadata may go to the device: what is above the high watermark may be cut."""
        metadata = self._metadata
        saved = metadata.snapshot_version == self._checkpointer.snapshot_version
        return saved or metadata.end <= self._watermark.value

    def _plan_sync(self) -> SyncJob | None:
        end = self._log.end
        views_end = self._queue_writer.written_end(end)
        if self._all_synced(end, views_end):
            return None
        self._keys.write_all()
        files = self._keys.unsynced(self._checkpointer.keys_synced[1])
        segments = []
        for partition in self._materialiser:
            if partition.segments.synced < partition.segments.end:
                files += partition.segments.unsynced()
                segments.append((partition.segments, partition.segments.end))
        changed = self._metadata.snapshot_version != self._checkpointer.snapshot_version
        metadata_end = max(end, self._metadata.end)  # later where the leader's was installed
        return SyncJob(
            files=files,
            snapshot=self._metadata.image(metadata_end) if changed else None,
            queues=self._queue_writer.unsynced(),
            segments=segments,
            views_end=views_end,
            metadata_end=metadata_end,
            keys=(self._keys.written_end, self._keys.written_count),
            version=self._metadata.snapshot_version,
            healed=self._damage.healed,
            began_ms=self._clock(),
        )

    def _all_synced(self, end: int, views_end: int) -> bool:
        if self._damage.healed:
            return False
        marks = self._checkpointer
        synced = {views_end, marks.views_synced, marks.metadata_synced, marks.keys_synced[0]}
        return synced == {end} and all(
            partition.segments.synced == partition.segments.end for partition in self._materialiser
        )

    def _sync(self, job: SyncJob) -> None:
        try:
            self._run(job)
        except NoSpaceError:
            self._syncing = None  # the whole round is tried again
            raise

    def _run(self, job: SyncJob) -> None:
        job.run(self._log, self._damage, self._vfs, self._folder)
        job.end(self._clock())
        self._synced = job

    def take_synced(self) -> None:
        """Take over what the worker has synced."""
        job = self._synced
        if job is None:
            return
        self._synced = self._syncing = None
        self._checkpointer.synced(job.views_end, job.metadata_end, job.keys, job.version)
        for queue, _, end in job.queues:
            queue.mark_synced(end)
        # Thousands of files take the device long: it has other things to do.
        rested_ms = self._clock() + SYNC_REST * job.took_ms
        self._next_sync_ms = max(self._next_sync_ms, rested_ms)

    def sync_all(self) -> Checkpoint:
        """Write and sync everything, now; return the checkpoint that then holds."""
        self.settle()
        for view in self._views:
            view.write_all()
        job = self._plan_sync()
        if job is not None:
            self._run(job)
            self.take_synced()
        return self._checkpointer.write()


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
