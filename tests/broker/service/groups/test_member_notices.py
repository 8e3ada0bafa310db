"""A group that changes all the time: its members hear of it at once, then once a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from imago_broker.service.groups import member_notices
from imago_broker.service.groups.member_notices import MemberNotices

if TYPE_CHECKING:
    import pytest


async def test_storm_of_changes_is_told_at_once_and_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member_notices, "REST_S", 0.02)
    told: list[str] = []
    again = asyncio.Event()

    def tell(group: str) -> None:
        told.append(group)
        if told.count("g") == 2:
            again.set()

    notices = MemberNotices(tell)
    for _ in range(1000):
        notices.changed("g")
    notices.changed("other")
    assert told == ["g", "other"]
    async with asyncio.timeout(50):
        await again.wait()
    assert told == ["g", "other", "g"]
    async with asyncio.timeout(50):
        while notices._resting:  # noqa: ASYNC110  timers of the loop
            await asyncio.sleep(0.01)
    assert told == ["g", "other", "g"], "nothing has changed since"
    notices.changed("g")
    assert told[3:] == ["g"], "after a rest it is told at once"
