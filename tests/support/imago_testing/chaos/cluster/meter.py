"""How much was acknowledged when: gaps, and the rate at which clients write."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from itertools import pairwise
from time import monotonic


class Meter:
    """Told of each acknowledged body; also holds producers to a rate."""

    def __init__(self, bytes_per_second_max: float) -> None:
        self._rate_max = bytes_per_second_max
        self._times: list[float] = []
        self._sizes: list[int] = []
        self._paid_until = 0.0
        self._acknowledged = asyncio.Event()

    def acked(self, size: int) -> None:
        now = monotonic()
        self._times.append(now)
        self._sizes.append(size)
        self._paid_until = max(self._paid_until, now) + size / self._rate_max
        self._acknowledged.set()

    def pause(self) -> float:
        """Return how many seconds a producer waits before it sends again."""
        return max(0.0, self._paid_until - monotonic())

    async def next(self) -> None:
        """Wait for an acknowledgement that is not here yet."""
        self._acknowledged.clear()
        await self._acknowledged.wait()

    def written(self, since: float) -> int:
        """Return how many bytes were acknowledged since then."""
        return sum(self._sizes[bisect_left(self._times, since) :])

    def longest_gap(self, since: float) -> float:
        """Return the longest time without an acknowledgement since then, in seconds."""
        times = [since, *self._times[bisect_left(self._times, since) :]]
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)
