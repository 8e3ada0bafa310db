"""An event loop's timers by a clock that is turned by hand."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_testing.virtual.clocks import ManualClock


@dataclass
class ManualTimer:
    """What `call_later` returns; it does not tell when: uvloop's handles of this moment cannot."""

    at: float
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualLoop:
    """Timers that fire as the clock's monotonic time passes; everything else is at once."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._timers: list[tuple[float, int, ManualTimer, Callable[[], None]]] = []
        self._numbers = count()
        self._soon: list[Callable[[], None]] = []

    def time(self) -> float:
        return self._clock.monotonic_ms() / 1000

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Any:
        handle = ManualTimer(self.time() + seconds)
        heapq.heappush(self._timers, (handle.at, next(self._numbers), handle, callback))
        return handle

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    call_soon_threadsafe = call_soon

    def run(self) -> None:
        """Fire what is due, until nothing is."""
        while self._soon or self._is_due():
            soon, self._soon = self._soon, []
            for callback in soon:
                callback()
            while self._is_due():
                _, _, handle, callback = heapq.heappop(self._timers)
                if not handle.cancelled:
                    callback()

    def turn(self) -> None:
        """Do what was asked for the end of this turn, and no more."""
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()

    def _is_due(self) -> bool:
        return bool(self._timers) and self._timers[0][0] <= self.time() + 1e-9
