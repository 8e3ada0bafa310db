"""Rates over the last seconds and minutes, and totals by day, from counters that only grow."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

SPANS_S: Final = (10, 60, 600)
"""RocketMQ's."""
SAMPLES_MAX: Final = 601


class CounterSample(NamedTuple):
    at_ms: int
    totals: Sequence[float]


class RateHistory:
    """Counters as they were each second of the last ten minutes."""

    def __init__(self) -> None:
        self._samples: deque[CounterSample] = deque(maxlen=SAMPLES_MAX)

    def note(self, now_ms: int, totals: Sequence[float]) -> None:
        """Note all counters: call it every second."""
        self._samples.append(CounterSample(now_ms, totals))

    def rates(self, place: int) -> tuple[float, ...]:
        """Return one counter's growth a second, over each span or since the first sample."""
        return tuple(self._rate(place, span_s) for span_s in SPANS_S)

    def _rate(self, place: int, span_s: int) -> float:
        if len(self._samples) < 2:
            return 0.0
        last = self._samples[-1]
        first = self._samples[max(0, len(self._samples) - 1 - span_s)]
        elapsed_ms = last.at_ms - first.at_ms
        if elapsed_ms <= 0:
            return 0.0
        return (last.totals[place] - first.totals[place]) * 1000 / elapsed_ms


class DayTotals:
    """What a counter was when the last two days began."""

    def __init__(self) -> None:
        self.yesterday_morning = 0
        self.today_morning = 0
        self._day: int | None = None

    def note(self, day: int, total: int) -> None:
        """Note a counter: call it every second or so with the number of the day."""
        if self._day is not None and day != self._day:
            self.yesterday_morning, self.today_morning = self.today_morning, total
        self._day = day
