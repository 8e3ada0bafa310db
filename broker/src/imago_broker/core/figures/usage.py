"""How much counters have grown in the last minute, hour and day, as RocketMQ's tools show it."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
SPANS: Final = ((MINUTE_MS, 10_000), (HOUR_MS, 10 * MINUTE_MS), (DAY_MS, HOUR_MS))
"""Each span, and how far apart what is kept for it is: RocketMQ's."""


class CounterMark(NamedTuple):
    """What a counter was at a time."""

    at_ms: int
    total: int
    times: int


class Growth(NamedTuple):
    """How much a counter has grown within a span, and in how many steps."""

    total: int
    times: int
    per_second: float

    @property
    def each(self) -> float:
        """The average step."""
        return self.total / self.times if self.times else 0.0


class CounterHistory:
    """What one counter was: noted where it has grown, and never where it stood still."""

    __slots__ = ("_rings", "last")

    def __init__(self, start: CounterMark) -> None:
        self.last = start
        self._rings = tuple(deque((start,)) for _ in SPANS)

    def note(self, at_ms: int, total: int, times: int) -> None:
        """Note what the counter is now that it has grown."""
        before = self.last
        self.last = mark = CounterMark(at_ms, total, times)
        for ring, (span_ms, apart_ms) in zip(self._rings, SPANS, strict=True):
            if before is not ring[-1] and at_ms - before.at_ms >= apart_ms:
                ring.append(before)  # it stood still since
            if at_ms - ring[-1].at_ms >= apart_ms:
                ring.append(mark)
            while len(ring) > 1 and ring[1].at_ms <= at_ms - span_ms:
                ring.popleft()

    def growth(self, now_ms: int) -> tuple[Growth, Growth, Growth]:
        """Return the growth in the last minute, hour and day, or since the first mark."""
        minute, hour, day = (
            self._within(ring, now_ms, span_ms)
            for ring, (span_ms, _) in zip(self._rings, SPANS, strict=True)
        )
        return minute, hour, day

    def _within(self, ring: deque[CounterMark], now_ms: int, span_ms: int) -> Growth:
        first = ring[0]
        for mark in (*ring, self.last):
            if mark.at_ms > now_ms - span_ms:
                break
            first = mark
        total, times = self.last.total - first.total, self.last.times - first.times
        elapsed_ms = min(now_ms - first.at_ms, span_ms)
        return Growth(total, times, total * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0)
