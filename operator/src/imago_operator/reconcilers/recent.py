"""Answers that many keys of one pass share: asked once, and again when they are too old."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from imago_operator.contents.belonging import Place

COUNTS: Final = 4
"""How many times as long as it took to get an answer counts, where that is longer than its age:
a list of ten thousand objects that takes longer than it counts would be asked for by every key."""

CHANGED_MAX: Final = 20_000
"""Changes that are remembered: of one that is not, a list of a few seconds ago may count."""

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


class Listings(Generic[V]):
    """The last list of each cluster, for all who look something up in it by its name.

    What we changed ourselves is not in a list from before: it does not count for that name, and
    does for the others, or a thousand new ones would have the whole list asked for a thousand
    times.
    """

    def __init__(self, now: Callable[[], datetime], *, age_s: float) -> None:
        self._now = now
        self._lists: Recent[Place, V] = Recent(now, age_s=age_s)
        self._changed: OrderedDict[tuple[Place, str], datetime] = OrderedDict()

    async def get(self, place: Place, name: str, ask: Callable[[], Awaitable[V]]) -> V:
        """Return a list of a cluster that has our last change of this name."""
        return await self._lists.get(place, ask, after=self._changed.get((place, name)))

    def note_change(self, place: Place, name: str) -> None:
        self._changed.pop((place, name), None)
        self._changed[place, name] = self._now()
        while len(self._changed) > CHANGED_MAX:
            self._changed.popitem(last=False)
