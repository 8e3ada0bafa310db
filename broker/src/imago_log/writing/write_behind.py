"""Moves the views' part in memory to their files behind the append, a little at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_log.state import StoreState

KEYS_PENDING_BYTES = 1 << 16
RELIEF_INTERVAL_BYTES = 32 << 20
BLOCK_BYTES_MIN = 64 << 10
"""What a partition's MetaQ files may miss until the next tick."""
SWEEPS_PER_DELAY = 10


class WriteBehind:
    """Sweeps every few milliseconds under load, every second otherwise."""

    def __init__(self, s: StoreState) -> None:
        self._log, self._queues, self._keys = s.log, s.queue_writer, s.keys
        self._materialiser, self._space, self._pressure = s.materialiser, s.space, s.pressure
        self._monotonic = s.monotonic
        self._interval_ms = max(1, s.config.view_delay_ms // SWEEPS_PER_DELAY)
        self.next_ms = 0
        """When to sweep again, by the clock of those who append."""
        self._relieved_at = s.log.end
        self._swept_ms = s.monotonic()

    def run(self, now_ms: int) -> None:
        """Sweep, if it is time to."""
        if now_ms >= self.next_ms:
            self.next_ms = now_ms + self._interval_ms
            self.sweep()
            self._pressure.look_at_space()

    def expect_any_clock(self) -> None:
        """Let the next append sweep: the clock may have gone back."""
        self.next_ms = 0

    def expect_cut(self) -> None:
        """Sweep soon: the log is about to be cut."""
        self._relieved_at = 0

    def sweep(self) -> None:
        """Move some of what is in memory to the view files; bounded work."""
        with self._space.awaited():
            self._sweep()

    def _sweep(self) -> None:
        self._keys.digest()
        if self._keys.pending >= KEYS_PENDING_BYTES:
            self._keys.write_all()
        if not self._pressure.is_full:
            self._materialiser.advance(BLOCK_BYTES_MIN)
        now_ms = self._monotonic()
        self._queues.write_some(max(0, now_ms - self._swept_ms))
        self._swept_ms = now_ms
        if self._log.end - self._relieved_at > RELIEF_INTERVAL_BYTES:
            self._relieved_at = self._log.end
            self._queues.relieve()
