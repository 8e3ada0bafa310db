"""A store's work besides appending: views to files, syncs, checkpoints, retention, disk levels.

Everything is decided in the store's thread; the slow part of it (syncs, deletions, snapshots) is
handed to the worker as jobs that hold all they need.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from imago_log.disk.pressure import DiskLevel
from imago_log.errors import DiskFullError
from imago_log.lifecycle.retention import AgeClock
from imago_log.results import StoreHealth

if TYPE_CHECKING:
    from imago_log.lifecycle.claims import Claims
    from imago_log.lifecycle.log_deleter import LogDeleter
    from imago_log.lifecycle.scrubbing import Scrubber
    from imago_log.lifecycle.view_sync import ViewSync
    from imago_log.state import StoreState
    from imago_log.views.directory import QueueDirectory
    from imago_log.writing.write_behind import WriteBehind

SPARE_AT_RATIO = 0.5


class Housekeeper:
    """Does what is due on one open store. All methods belong to the store's thread."""

    def __init__(
        self,
        s: StoreState,
        directory: QueueDirectory,
        write_behind: WriteBehind,
        view_sync: ViewSync,
        deleter: LogDeleter,
        scrubber: Scrubber,
    ) -> None:
        self._due = s.config.due
        self._wall, self._clock, self._log, self._damage = s.clock, s.monotonic, s.log, s.damage
        self._epochs, self._folder = s.epochs, s.folder
        self._directory = directory
        self._materialiser, self._write_behind = s.materialiser, write_behind
        self._view_sync, self._deleter = view_sync, deleter
        self._inspector, self._scrubber = s.inspector, scrubber
        self._pressure, self._space, self._background = s.pressure, s.space, s.background
        self._age_clock = AgeClock(s.stamps.store_ms)

    def tick(self, claims: Claims) -> StoreHealth:
        """Do what is due and return a health report; `claims`: see `LogDeleter.delete_old`."""
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
            self._deleter.delete_old(age_ms, claims, due=self._due(None))
        with self._space.awaited():
            self._epochs.save()
            self._directory.take_up_some()
            self._materialiser.expire(age_ms, self._due)
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

    @property
    def level(self) -> DiskLevel:
        """How full the disk is, as of the last tick."""
        return DiskLevel.FULL if self.full else self._pressure.level

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
