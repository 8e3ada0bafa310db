"""What the counters of one broker were in the last ten minutes, and when its days began."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from imago_broker.core.figures.rates import DayTotals, RateHistory

if TYPE_CHECKING:
    from imago_broker.ports import Clock
    from imago_broker.service.delays.timers.timers import TimerService
    from imago_broker.service.figures.traffic import Traffic
    from imago_broker.service.puts.messages import MessageService

PUT, FOUND, MISSED, DELIVERED, TIMERS_IN, TIMERS_OUT = range(6)
"""Places of the counters."""


class FigureHistory:
    """Reads the counters once a second."""

    def __init__(
        self, messages: MessageService, traffic: Traffic, timers: TimerService, clock: Clock
    ) -> None:
        self._messages, self._traffic, self._timers = messages, traffic, timers
        self._clock = clock
        self._rates = RateHistory()
        self.put_days, self.get_days = DayTotals(), DayTotals()
        self.sample()

    def sample(self) -> None:
        """Look: call it every second or so."""
        traffic, fired = self._traffic, self._timers.figures.fired
        put, got = self._messages.appended, traffic.messages
        taken = self._timers.pending + fired
        counters = (put, traffic.found, traffic.missed, got, taken, fired)
        self._rates.note(self._clock.monotonic_ms(), counters)
        day = _day_of(self._clock.epoch_ms())
        self.put_days.note(day, put)
        self.get_days.note(day, got)

    def rates(self, *places: int) -> tuple[float, ...]:
        """Return how much the counters together grew a second, in 10 s, a minute, 10 minutes."""
        each = [self._rates.rates(place) for place in places]
        return tuple(sum(together) for together in zip(*each, strict=True))


def _day_of(epoch_ms: int) -> int:
    """Return a number that changes at local midnight."""
    day = time.localtime(epoch_ms / 1000)
    return day.tm_year * 1000 + day.tm_yday
