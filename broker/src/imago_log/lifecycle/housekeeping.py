"""A store's work besides appending: views to files, syncs, checkpoints, retention, disk levels.

Everything is decided in the store's thread; the slow part of it (syncs, deletions, snapshots) is
handed to the worker as jobs that hold all they need.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from imago_log.errors import DiskFullError
from imago_log.lifecycle.retention import AgeClock
from imago_log.results import StoreHealth

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.commitlog.damage import Damage
    from imago_log.commitlog.epochs import EpochFile
    from imago_log.commitlog.stamps import LogStamps
    from imago_log.config import Due
    from imago_log.disk.folder import DataFolder
    from imago_log.disk.pressure import DiskPressure
    from imago_log.disk.space import Space
    from imago_log.disk.worker import Background
    from imago_log.lifecycle.log_deleter import LogDeleter
    from imago_log.lifecycle.view_sync import ViewSync
    from imago_log.repair.inspecting import Inspector
    from imago_log.repair.scrubbing import Scrubber
    from imago_log.views.directory import QueueDirectory
    from imago_log.views.materialiser import Materialiser
    from imago_log.views.write_behind import WriteBehind

SPARE_AT_RATIO = 0.5


class Housekeeper:
    """Does what is due on one open store. All methods belong to the store's thread."""

    def __init__(
        self,
        wall: Callable[[], int],
        monotonic: Callable[[], int],
        log: CommitLog,
        damage: Damage,
        epochs: EpochFile,
        folder: DataFolder,
        stamps: LogStamps,
        directory: QueueDirectory,
        materialiser: Materialiser,
        write_behind: WriteBehind,
        view_sync: ViewSync,
        deleter: LogDeleter,
        inspector: Inspector,
        scrubber: Scrubber,
        pressure: DiskPressure,
        space: Space,
        background: Background,
        due: Due,
    ) -> None:
        self._due = due
        self._wall, self._clock, self._log, self._damage = wall, monotonic, log, damage
        self._epochs, self._folder = epochs, folder
        self._directory = directory
        self._materialiser, self._write_behind = materialiser, write_behind
        self._view_sync, self._deleter = view_sync, deleter
        self._inspector, self._scrubber = inspector, scrubber
        self._pressure, self._space, self._background = pressure, space, background
        self._age_clock = AgeClock(stamps.store_ms)

    def tick(self, needed_from: Callable[[], int]) -> StoreHealth:
        """Do what is due and return a health report; `needed_from`: see `LogDeleter.delete_old`."""
        self._write_behind.expect_any_clock()
        now_ms = self._clock()
        age_ms = self._age_clock.now(self._wall(), now_ms)
        with self._space.awaited():
            self._inspector.poll()
        self._space.look()
        self._write_behind.sweep()
        self._view_sync.take_synced()
        self._pressure.measure()
        with self._space.log_awaited():
            self._deleter.delete_old(age_ms, needed_from, due=self._due(None))
        with self._space.awaited():
            self._epochs.save()
            self._directory.take_up_some()
            self._materialiser.expire(age_ms, self._log.start, self._due)
            self._materialiser.packing.go_on(self._pressure.room_bytes)
            self._keep_views(now_ms)
        self._make_spare()
        self._folder.keep_room()
        health = self._health()
        with self._space.awaited():
            self._scrubber.tick(now_ms)
        self._pressure.decide(health.disk_used_ratio)
        return health

    def settle(self) -> None:
        """Wait for the worker and take over its results: a cut follows."""
        self._view_sync.settle()
        self._deleter.expect_cut()
        self._write_behind.expect_cut()

    def close(self) -> bool:
        """Write and sync everything; false for want of room: the next start makes the rest."""
        self._space.hope()
        with self._space.awaited():
            self._epochs.save()
            self._view_sync.sync_all()
        return not self._space.short

    def _keep_views(self, now_ms: int) -> None:
        if not self._pressure.is_full:
            self._materialiser.advance()
        self._view_sync.keep(now_ms)

    def _make_spare(self) -> None:
        log = self._log
        used = 1 - log.room / log.segment_size
        if used > SPARE_AT_RATIO and not log.spares and not self._pressure.is_full:
            self._background.submit(self._add_spare)

    def _add_spare(self) -> None:
        with contextlib.suppress(DiskFullError):  # the append that needs it raises it again
            self._log.add_spare()

    @property
    def full(self) -> bool:
        """Whether messages are refused for want of room, as of the last tick."""
        return self._pressure.is_full or self._space.short

    def _health(self) -> StoreHealth:
        usage = self._pressure.usage()
        return StoreHealth(
            writable=not self.full,
            disk_level=self._pressure.level,
            disk_used_ratio=usage.ratio,
            disk_total_bytes=usage.total,
            disk_used_bytes=usage.used,
            log_start=self._log.start,
            log_end=self._log.end,
            durable_end=self._log.durable_end,
            damaged=self._damage.ranges,
        )
