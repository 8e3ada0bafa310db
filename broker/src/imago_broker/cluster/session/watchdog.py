"""Watches the event loop from a thread of its own.

kazoo's threads go on telling the registry that we are there while our event loop hangs: others
would wait for ever for a broker that answers nobody. The watchdog asks the loop for a sign of life
and acts in its own thread when none comes.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

logger = logging.getLogger(__name__)

_ASKS_A_LIMIT = 4


class LoopWatchdog:
    """Calls back, in its thread and once a hang, when the loop lags."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        *,
        late_seconds: float,
        dead_seconds: float,
        on_late: Callable[[], None],
        on_dead: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop = loop
        self._late_seconds = late_seconds
        self._dead_seconds = dead_seconds
        self._on_late = on_late
        self._on_dead = on_dead
        self._now = now
        self._asked_at: float | None = None
        self._told = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loop-watchdog", daemon=True)

    def start(self) -> None:
        """Watch from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; it is gone when this returns."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        """Ask the loop, or see how long it has not answered."""
        asked_at = self._asked_at  # once: the loop answers whenever it likes
        if asked_at is None:
            self._told = 0
            self._asked_at = self._now()
            try:
                self._loop.call_soon_threadsafe(self._answered)
            except RuntimeError:  # the loop has ended
                self._stopped.set()
            return
        lag = self._now() - asked_at
        if self._told < 1 and lag > self._late_seconds:
            self._told = 1
            logger.warning("loop_late seconds=%.1f", lag)
            self._on_late()
        if self._told < 2 and lag > self._dead_seconds:
            self._told = 2
            logger.error("loop_hangs seconds=%.1f", lag)
            self._on_dead()

    def _answered(self) -> None:
        self._asked_at = None

    def _run(self) -> None:
        while not self._stopped.wait(self._late_seconds / _ASKS_A_LIMIT):
            try:
                self.look()
            except Exception:
                # Nobody else would notice a loop that hangs.
                logger.exception("loop_watchdog_failed")
