"""A rate that is kept by delay: what was taken too early has to be waited for. Pure.

A bucket holds what may be taken at once, one second's worth, and is filled at its rate. What has
come is always taken, since it is here already: then the bucket owes, and who took it waits until
that is paid. Times are arguments, in milliseconds of any one clock that does not go back.
"""

from __future__ import annotations


class TokenBucket:
    """One rate."""

    __slots__ = ("_level", "_seen_ms", "rate")

    def __init__(self, rate: int, now_ms: float) -> None:
        """`rate`: a second, above 0."""
        self.rate = rate
        self._level = float(rate)
        self._seen_ms = now_ms

    def take(self, amount: int, now_ms: float) -> float:
        """Take what has come; return for how many milliseconds nothing more should."""
        self._fill(now_ms)
        self._level -= amount
        return self._owed_ms()

    def owed_ms(self, now_ms: float) -> float:
        """Return for how long nothing should be taken from now on; 0: it may be."""
        self._fill(now_ms)
        return self._owed_ms()

    def change(self, rate: int, now_ms: float) -> None:
        """Have another rate from now on; what is owed stays owed, but is paid at this one."""
        self._fill(now_ms)
        self.rate = rate
        self._level = min(self._level, float(rate))

    def _fill(self, now_ms: float) -> None:
        passed_ms = max(0.0, now_ms - self._seen_ms)
        self._seen_ms = max(self._seen_ms, now_ms)
        self._level = min(float(self.rate), self._level + passed_ms * self.rate / 1000)

    def _owed_ms(self) -> float:
        return -self._level * 1000 / self.rate if self._level < 0 else 0.0
