"""What a store does besides appending: views to files, syncs, checkpoints, retention, disk levels.

Everything is decided in the store's thread; the slow part of it (syncs, deletions, snapshots) is
handed to the worker as one job that holds all it needs.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from imago_log.disk.files import fatal
from imago_log.disk.folder import LastStop
from imago_log.disk.space import Space
from imago_log.errors import DiskFullError, NoSpaceError, UnreadableError
from imago_log.lifecycle.parts import ALL_VISIBLE
from imago_log.lifecycle.retention import AgeClock, Limits, LogFile, disk_level, files_to_delete
from imago_log.lifecycle.syncing import SyncJob
from imago_log.metadata.state import LOG_KIND, LOG_START, QUEUE_KIND, queue_key
from imago_log.repair.inspecting import Inspector
from imago_log.results import DiskLevel, StoreHealth

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_log.commitlog.checkpoint import Checkpoint
    from imago_log.commitlog.flusher import Worker
    from imago_log.lifecycle.parts import Parts
    from imago_log.metadata.state import Change

KEYS_PENDING_BYTES = 1 << 16
RELIEF_INTERVAL_BYTES = 32 << 20
SPARE_AT_RATIO = 0.5
BLOCK_BYTES_MIN = 64 << 10
"""What a partition's MetaQ files may miss until the next tick."""
SYNC_REST = 30
"""Between two rounds of syncing views there is so many times what the last one took."""
QUEUES_OPENED_MAX = 200
"""Queues opened a round before files are deleted: each must have its end on record."""


class Housekeeper:
    """Works on the parts of one open store. All methods belong to the store's thread."""

    def __init__(
        self,
        parts: Parts,
        worker: Worker,
        clock: Callable[[], int],
        monotonic: Callable[[], int],
    ) -> None:
        self._parts, self._worker = parts, worker
        self._wall, self._clock = clock, monotonic
        self._age_clock = AgeClock(parts.store_ms)
        config = parts.config
        self._limits = Limits(
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
            clean_ratio=config.disk_clean_ratio,
            force_ratio=config.disk_force_ratio,
            full_ratio=config.disk_full_ratio,
        )
        self.space = Space(parts.vfs, parts.folder.probe)
        for view in (parts.materialiser, parts.queues):
            view.submit, view.drain = self.submit, worker.drain
        self.level = DiskLevel.NORMAL
        self.used_ratio = 0.0
        self.put_meta: Callable[[Sequence[Change]], int] = _nothing
        """Writes metadata changes to the log."""
        self._newest_ms: dict[int, int] = {}
        self._seen_ms: dict[int, int] = {}
        """When each file was seen first that is no longer written."""
        self._relieved_at = parts.log.end
        self._swept_ms = monotonic()
        self._next_sync_ms = monotonic()
        if parts.last_stop is LastStop.CLEAN:
            self._next_sync_ms += config.view_sync_interval_ms
        self._next_checkpoint_ms = 0
        self.needed_from = ALL_VISIBLE
        """Log offset from which on a follower still reads: such files stay while there is room."""
        self._syncing: SyncJob | None = None
        self._inspector = Inspector(parts, worker.submit)
        self._synced: SyncJob | None = None

    def keep_found(self) -> None:
        """Begin to make durable what a start has read again, so that the next one need not."""
        if self._parts.last_stop is not LastStop.CLEAN and self._may_snapshot():
            self._next_sync_ms += self._parts.config.view_sync_interval_ms
            with self.space.awaited():
                self._start_sync()

    # Every few milliseconds under load, every second otherwise

    def sweep(self) -> None:
        """Move some of what is in memory to the view files; bounded work."""
        with self.space.awaited():
            self._sweep()

    def _sweep(self) -> None:
        parts = self._parts
        parts.keys.digest()
        if parts.keys.pending >= KEYS_PENDING_BYTES:
            parts.keys.write_behind()
        if self.level is not DiskLevel.FULL:
            parts.materialiser.advance(BLOCK_BYTES_MIN)
        now_ms = self._clock()
        parts.queues.write_some(max(0, now_ms - self._swept_ms))
        self._swept_ms = now_ms
        if parts.log.end - self._relieved_at > RELIEF_INTERVAL_BYTES:
            self._relieved_at = parts.log.end
            parts.queues.relieve()

    def tick(self) -> StoreHealth:
        """Do what is due, and tell how things stand."""
        now_ms = self._clock()
        self._inspector.poll()
        age_ms = self._age_clock.now(self._wall(), now_ms)
        self.space.look()
        self.sweep()
        self._take_synced()
        self._look_at_disk()
        with self.space.log_awaited():
            self._retain(age_ms)
        with self.space.awaited():
            self._parts.materialiser.expire(age_ms, self._parts.log.start)
            self._keep_views(now_ms)
        self._make_spare()
        return self._health()

    def submit(self, job: Callable[[], None]) -> None:
        """Have the worker do a job; one that finds no room on the disk is left undone."""
        self._worker.submit(self.space.awaiting(job))

    def _keep_views(self, now_ms: int) -> None:
        if self.level is not DiskLevel.FULL:
            self._parts.materialiser.advance()
        if now_ms >= self._next_sync_ms and self._syncing is None and self._may_snapshot():
            self._next_sync_ms = now_ms + self._parts.config.view_sync_interval_ms
            self._start_sync()
        elif now_ms >= self._next_checkpoint_ms:
            self._next_checkpoint_ms = now_ms + self._parts.config.checkpoint_interval_ms
            self._checkpoint()

    def _make_spare(self) -> None:
        log = self._parts.log
        used = 1 - log.room / log.segment_size
        if used > SPARE_AT_RATIO and not log.spares and self.level is not DiskLevel.FULL:
            self._worker.submit(self._add_spare)

    def _add_spare(self) -> None:
        with contextlib.suppress(DiskFullError):  # said again by the append that needs it
            self._parts.log.add_spare()

    # Disk and retention

    def _look_at_disk(self) -> None:
        parts = self._parts
        with fatal("measure", parts.folder.root):
            usage = parts.vfs.disk_usage(parts.folder.root)
        self.used_ratio = usage.ratio
        self.level = disk_level(usage.ratio, self._limits)

    def _retain(self, now_ms: int) -> None:
        parts, log = self._parts, self._parts.log
        if self._follow_log_start() or not parts.leading:
            return
        safe = self._safe()
        bases = [base for base in log.bases()[:-1] if base + log.segment_size <= safe]
        self._newest_ms = {base: ms for base, ms in self._newest_ms.items() if base in bases}
        # A clock that was ahead has left times of the future: no file is newer than first seen.
        self._seen_ms = {base: min(self._seen_ms.get(base, now_ms), now_ms) for base in bases}
        files = [LogFile(base, min(self._newest(base), self._seen_ms[base])) for base in bases]
        count = files_to_delete(
            files,
            file_size=log.segment_size,
            now_ms=now_ms,
            level=self.level,
            limits=self._limits,
        )
        if self.level not in (DiskLevel.FORCE, DiskLevel.FULL):
            needed = [base for base in bases if base + log.segment_size > self.needed_from]
            count = min(count, len(bases) - len(needed))
        if count and parts.queues.open_some(parts.metadata.topics, QUEUES_OPENED_MAX):
            self._begin_log_at(bases[count - 1] + log.segment_size)

    def _begin_log_at(self, start: int) -> None:
        """Delete what is before, at once or when all members know that it goes."""
        self._restate(start)
        if self._parts.watermark == ALL_VISIBLE:
            self._delete_before(start)
        else:
            self.put_meta([(LOG_KIND, LOG_START, start)])

    def _follow_log_start(self) -> bool:
        """Delete what the leader, or this member as one, has said that goes.

        Not before that is below the high watermark: what the deleted files said of topics and
        queues is said again just before it, and a cut must not take that away. True: it waits.
        """
        parts = self._parts
        start = parts.metadata.kind(LOG_KIND).get(LOG_START, 0)
        if start <= parts.log.start:
            return False
        if parts.metadata.end > min(parts.watermark, parts.log.end) or start > self._safe():
            return True
        if parts.queues.open_some(parts.metadata.topics, QUEUES_OPENED_MAX):
            self._delete_before(start)
        return True

    def _safe(self) -> int:
        """Return the log offset from which a start after power loss may read again."""
        parts = self._parts
        return min(parts.views_synced, parts.metadata_synced, parts.keys_synced[0])

    def _newest(self, base: int) -> int:
        """Return the store time of the first record of the next file."""
        if base not in self._newest_ms:
            log = self._parts.log
            newest_ms = self._first_ms(base + log.segment_size)
            if newest_ms is None:
                return self._parts.store_ms
            self._newest_ms[base] = newest_ms
        return self._newest_ms[base]

    def _first_ms(self, border: int) -> int | None:
        try:
            return self._parts.records.first_ms(border)
        except UnreadableError as error:
            self._inspector.look(error.place)
            return None  # the next round knows

    def _delete_before(self, start: int) -> None:
        parts = self._parts
        paths = parts.log.delete_before(start)
        with self.space.awaited():  # what stays of it says nothing wrong, and goes the next time
            parts.epochs.forget_before(start)
        parts.damage.forget_before(start)
        for queue in parts.queues:
            queue.drop_before(queue.min_offset(start))
        parts.keys.drop_before(start)
        checkpoint = parts.checkpoint_now()

        def job() -> None:
            parts.log.sync()  # what was said again must be there before the first saying goes
            with self.space.awaited():
                parts.damage.save()
            parts.checkpoint.write(checkpoint)  # then missing files are no damage
            for path in paths:
                with fatal("remove", path):
                    parts.vfs.unlink(path)

        self._worker.submit(job)

    def _restate(self, start: int) -> None:
        """Say again in the log what only its oldest files said: metadata, ends of queues."""
        parts = self._parts
        metadata = parts.metadata
        if metadata.restated < start:
            here = parts.log.end
            self.put_meta(metadata.whole())
            metadata.restated = here
        self.put_meta(metadata.producers.statements(start))
        known = metadata.kind(QUEUE_KIND)
        ends = {
            queue_key(queue.tail.topic.decode(), queue.tail.queue_id): [
                queue.tail.next_offset,
                queue.tail.next_position,
            ]
            for queue in parts.queues
            if queue.end and queue.ends_before(start)
        }
        self.put_meta(
            [(QUEUE_KIND, key, end) for key, end in ends.items() if known.get(key) != end]
        )

    # Syncs and checkpoints

    def _checkpoint(self) -> None:
        checkpoint = self._parts.checkpoint_now()
        if checkpoint != self._parts.checkpoint.value:
            self.submit(lambda: self._parts.checkpoint.write(checkpoint))

    def _start_sync(self) -> None:
        job = self._plan_sync()
        if job is not None:
            self._syncing = job
            self.submit(lambda: self._sync(job))

    def _may_snapshot(self) -> bool:
        """Whether metadata may go to the device: what is above the high watermark may be cut."""
        metadata = self._parts.metadata
        saved = metadata.snapshot_version == self._parts.snapshot_version
        return saved or metadata.end <= self._parts.watermark

    def settle(self) -> None:
        """Let the worker end what it was given, and take over what it has done: a cut follows."""
        self._worker.drain()
        self._take_synced()
        self._newest_ms.clear()
        self._relieved_at = 0

    def _plan_sync(self) -> SyncJob | None:
        parts = self._parts
        end = parts.log.end
        views_end = parts.queues.written_end(end)
        if self._all_synced(end, views_end):
            return None
        parts.keys.write_behind()
        files = parts.keys.unsynced(parts.keys_synced[1])
        segments = []
        for partition in parts.materialiser:
            if partition.segments.synced < partition.segments.end:
                files += partition.segments.unsynced()
                segments.append((partition.segments, partition.segments.end))
        changed = parts.metadata.snapshot_version != parts.snapshot_version
        metadata_end = max(end, parts.metadata.end)  # later where the leader's was installed
        return SyncJob(
            files=files,
            snapshot=parts.metadata.image(metadata_end) if changed else None,
            queues=parts.queues.unsynced(),
            segments=segments,
            views_end=views_end,
            metadata_end=metadata_end,
            keys=(parts.keys.written_end, parts.keys.written_count),
            version=parts.metadata.snapshot_version,
            healed=parts.damage.healed,
            began_ms=self._clock(),
        )

    def _all_synced(self, end: int, views_end: int) -> bool:
        parts = self._parts
        if parts.damage.healed:
            return False
        synced = {views_end, parts.views_synced, parts.metadata_synced, parts.keys_synced[0]}
        return synced == {end} and all(
            partition.segments.synced == partition.segments.end for partition in parts.materialiser
        )

    def _sync(self, job: SyncJob) -> None:
        try:
            self._run(job)
        except NoSpaceError:
            self._syncing = None  # all of it is tried again
            raise

    def _run(self, job: SyncJob) -> None:
        job.run(self._parts)
        job.took_ms = self._clock() - job.began_ms
        self._synced = job

    def _take_synced(self) -> None:
        job = self._synced
        if job is None:
            return
        self._synced = self._syncing = None
        parts = self._parts
        parts.views_synced, parts.metadata_synced = job.views_end, job.metadata_end
        parts.keys_synced = job.keys
        parts.snapshot_version = job.version
        for queue, _, end in job.queues:
            queue.mark_synced(end)
        # Thousands of files take the device long: it has other things to do.
        rested_ms = self._clock() + SYNC_REST * job.took_ms
        self._next_sync_ms = max(self._next_sync_ms, rested_ms)

    def close(self) -> bool:
        """Write and sync everything; false for want of room: the next start makes the rest."""
        self.space.short = False
        with self.space.awaited():
            self.sync_all()
        return not self.space.short

    def sync_all(self) -> Checkpoint:
        """Write and sync everything, now; return the checkpoint that then holds."""
        parts = self._parts
        self.settle()
        parts.queues.write_all()
        parts.materialiser.write_last()
        parts.keys.write_behind()
        job = self._plan_sync()
        if job is not None:
            self._run(job)
            self._take_synced()
        checkpoint = parts.checkpoint_now()
        parts.checkpoint.write(checkpoint)
        return checkpoint

    def _health(self) -> StoreHealth:
        parts = self._parts
        usage = parts.vfs.disk_usage(parts.folder.root)
        return StoreHealth(
            writable=self.level is not DiskLevel.FULL and not self.space.short,
            disk_level=self.level,
            disk_used_ratio=usage.ratio,
            disk_total_bytes=usage.total,
            disk_used_bytes=usage.used,
            log_start=parts.log.start,
            log_end=parts.log.end,
            durable_end=parts.log.durable_end,
            damaged=parts.damage.ranges,
        )


def _nothing(_: Sequence[Change]) -> int:
    """Stands where the store will put its own."""
    return 0
