"""Making views and metadata durable in rounds, and the checkpoints that say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.disk.folder import LastStop
from imago_log.errors import NoSpaceError
from imago_log.lifecycle.sync_job import SyncJob

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log.commitlog.checkpoint import Checkpoint
    from imago_log.commitlog.checkpointer import Checkpointer
    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.commitlog.damage import Damage
    from imago_log.commitlog.watermark import HighWatermark
    from imago_log.config import StoreConfig
    from imago_log.disk.folder import DataFolder
    from imago_log.disk.space import Space
    from imago_log.disk.vfs import Vfs
    from imago_log.disk.worker import Background
    from imago_log.metadata.state import Metadata
    from imago_log.views.key_index import KeyIndex
    from imago_log.views.materialiser import Materialiser
    from imago_log.views.queue_writing import QueueWriter

SYNC_REST = 30
"""Between two rounds of syncing views there is so many times what the last one took."""


class ViewSync:
    """Plans each round in the store's thread; the worker executes it."""

    def __init__(
        self,
        config: StoreConfig,
        monotonic: Callable[[], int],
        last_stop: LastStop,
        vfs: Vfs,
        folder: DataFolder,
        log: CommitLog,
        damage: Damage,
        watermark: HighWatermark,
        checkpointer: Checkpointer,
        metadata: Metadata,
        queue_writer: QueueWriter,
        keys: KeyIndex,
        materialiser: Materialiser,
        space: Space,
        background: Background,
    ) -> None:
        self._sync_interval_ms = config.view_sync_interval_ms
        self._checkpoint_interval_ms = config.checkpoint_interval_ms
        self._clock, self._last_stop = monotonic, last_stop
        self._vfs, self._folder, self._log, self._damage = vfs, folder, log, damage
        self._watermark, self._checkpointer, self._metadata = watermark, checkpointer, metadata
        self._queue_writer, self._keys, self._materialiser = queue_writer, keys, materialiser
        self._space, self._background = space, background
        self._next_sync_ms = monotonic()
        if last_stop is LastStop.CLEAN:
            self._next_sync_ms += config.view_sync_interval_ms
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
        self._keys.write_behind()
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
        self._queue_writer.write_all()
        self._materialiser.write_last()
        self._keys.write_behind()
        job = self._plan_sync()
        if job is not None:
            self._run(job)
            self.take_synced()
        return self._checkpointer.write()
