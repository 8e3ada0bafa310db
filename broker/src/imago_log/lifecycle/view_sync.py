"""Making views and metadata durable in rounds, and the checkpoints that say so."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from itertools import chain, islice
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
    from imago_log.disk.folder import DataFolder
    from imago_log.disk.vfs import Vfs
    from imago_log.metadata.image import MetadataImage
    from imago_log.results import DamagedRange
    from imago_log.state import StoreState
    from imago_log.views.view import SyncPlan

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
        if self._all_synced(end):
            return None
        changed = self._metadata.snapshot_version != self._checkpointer.snapshot_version
        metadata_end = max(end, self._metadata.end)  # later where the leader's was installed
        return SyncJob(
            plans=[view.plan_sync(end) for view in reversed(self._views)],
            snapshot=self._metadata.image(metadata_end) if changed else None,
            metadata_end=metadata_end,
            version=self._metadata.snapshot_version,
            healed=self._damage.healed,
            began_ms=self._clock(),
        )

    def _all_synced(self, end: int) -> bool:
        if self._damage.healed or self._checkpointer.metadata_synced != end:
            return False
        return all(view.is_synced(end) for view in self._views)

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
        for plan in job.plans:
            if plan.note is not None:
                plan.note()
        self._checkpointer.begin_metadata(job.metadata_end, job.version)
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

    plans: list[SyncPlan]
    snapshot: MetadataImage | None
    metadata_end: int
    version: int
    healed: tuple[DamagedRange, ...]
    """Damage whose views are whole again, and on the device once this is done."""
    began_ms: int
    took_ms: int = 0

    def end(self, now_ms: int) -> None:
        """Record how long it took."""
        self.took_ms = now_ms - self.began_ms

    def run(self, log: CommitLog, damage: Damage, vfs: Vfs, folder: DataFolder) -> None:
        """Sync everything. The log first: no view may be ahead of it on the device."""
        log.sync()
        if self.snapshot is not None:
            replace_whole(vfs, folder.metadata, self.snapshot.encode(_rest))
        folders: set[Path] = set()
        files = chain.from_iterable(plan.files for plan in self.plans)
        while batch := list(islice(files, FILES_AT_ONCE)):
            _sync_files(vfs, [path for path, _ in batch])
            folders.update(*(path.parents for path, is_new in batch if is_new))
        for path in sorted(folders.difference(folder.root.parents)):
            with _unless_deleted("sync", path):
                vfs.sync_folder(path)
        for plan in self.plans:
            if plan.mark is not None:
                plan.mark()
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
