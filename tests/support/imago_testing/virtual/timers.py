"""Call-backs and timers of an event loop that a clock turned by hand fires."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_testing.virtual.clocks import ManualClock


@dataclass
class Timer:
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualLoop:
    """Timers that fire as the clock's monotonic time passes; everything else is at once."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._timers: list[tuple[float, int, Timer, Callable[[], None]]] = []
        self._numbers = count()
        self._soon: list[Callable[[], None]] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Any:
        handle = Timer()
        at = self._clock.monotonic_ms() + seconds * 1000
        heapq.heappush(self._timers, (at, next(self._numbers), handle, callback))
        return handle

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    call_soon_threadsafe = call_soon

    def run(self) -> None:
        """Fire what is due, until nothing is."""
        while self._soon or (self._timers and self._timers[0][0] <= self._clock.monotonic_ms()):
            soon, self._soon = self._soon, []
            for callback in soon:
                callback()
            while self._timers and self._timers[0][0] <= self._clock.monotonic_ms():
                _, _, handle, callback = heapq.heappop(self._timers)
                if not handle.cancelled:
                    callback()
