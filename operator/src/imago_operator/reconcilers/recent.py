"""Answers that many keys of one pass share: asked once, and again when they are too old."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

COUNTS: Final = 4
"""How many times as long as it took to get an answer counts, where that is longer than its age:
a list of ten thousand objects that takes longer than it counts would be asked for by every key."""

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The last answer for each of at most `keys_max` questions; one asks, the others wait."""

    def __init__(self, now: Callable[[], datetime], *, age_s: float, keys_max: int = 1000) -> None:
        self._now, self._age, self._keys_max = now, timedelta(seconds=age_s), keys_max
        self._answers: OrderedDict[K, tuple[datetime, timedelta, V]] = OrderedDict()
        self._locks: OrderedDict[K, asyncio.Lock] = OrderedDict()

    async def get(
        self,
        key: K,
        ask: Callable[[], Awaitable[V]],
        *,
        after: datetime | None = None,
        fits: Callable[[V], bool] = lambda _: True,
    ) -> V:
        """Return an answer that was asked for not too long ago, later than `after`, and fits."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._locks.move_to_end(key)
        async with lock:
            found = self._answers.get(key)
            if found is not None and self._is_good(found, after) and fits(found[2]):
                return found[2]
            asked = self._now()
            value = await ask()
            self._answers[key] = (asked, self._now() - asked, value)
            self._forget_oldest()
            return value

    def _is_good(self, found: tuple[datetime, timedelta, V], after: datetime | None) -> bool:
        asked, took, _ = found
        counts = max(self._age, COUNTS * took)
        return self._now() - asked <= counts and (after is None or asked > after)

    def _forget_oldest(self) -> None:
        while len(self._answers) > self._keys_max:
            key, _ = self._answers.popitem(last=False)
            lock = self._locks.get(key)
            if lock is not None and not lock.locked():
                del self._locks[key]
