"""Answers that many keys share: how long they count, and how seldom they are asked for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from imago_operator.reconcilers import recent
from imago_operator.reconcilers.recent import Listings, Recent


class Lists:
    """A list that takes its time, and a clock."""

    def __init__(self, takes_s: float) -> None:
        self.now = datetime(2026, 1, 2, tzinfo=UTC)
        self.takes, self.asked = takes_s, 0
        self.recent: Recent[str, int] = Recent(lambda: self.now, age_s=5)

    async def ask(self) -> int:
        self.asked += 1
        self.now += timedelta(seconds=self.takes)
        return self.asked

    async def work(self, keys: int, each_s: float) -> None:
        """Have as many keys worked on, each of which takes a while and wants the list."""
        for _ in range(keys):
            await self.recent.get("", self.ask)
            self.now += timedelta(seconds=each_s)


@pytest.mark.parametrize(
    ("takes_s", "asked"),
    # 100 s of work: every 5 s; a list that takes longer counts for four times as long.
    [(0.01, 20), (6, 6), (60, 2)],
)
def test_a_slow_list_is_not_asked_for_by_every_key(takes_s: float, asked: int) -> None:
    lists = Lists(takes_s)
    asyncio.run(lists.work(1000, 0.1))
    assert lists.asked <= asked


def test_what_is_to_be_newer_is_asked_for() -> None:
    async def look() -> None:
        lists = Lists(60)
        await lists.recent.get("", lists.ask)
        await lists.recent.get("", lists.ask, after=lists.now)
        assert lists.asked == 2

    asyncio.run(look())


async def test_what_was_changed_is_looked_up_in_a_newer_list_and_all_else_in_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent, "CHANGED_MAX", 2)
    lists = Lists(0.01)
    found: Listings[int] = Listings(lambda: lists.now, age_s=5)
    place = ("mq", "demo")

    async def look(*names: str) -> int:
        for name in names:
            lists.now += timedelta(seconds=0.01)
            await found.get(place, name, lists.ask)
        return lists.asked

    assert await look("a", "b", "c") == 1
    found.note_change(place, "a")
    assert await look("b", "c") == 1
    assert await look("a", "a", "b") == 2
    for name in ("a", "b", "c"):
        found.note_change(place, name)
    assert await look("a") == 2, "forgotten: this is as old as what anybody may look at"
    assert await look("b", "c") == 3
