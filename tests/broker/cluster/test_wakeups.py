"""A task of the registry that cannot do its step tries again, and says so now and then."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING

from imago_broker.cluster.session import wakeups
from imago_broker.cluster.session.wakeups import Wake
from imago_broker.cluster.tree import TreeUnavailableError
from imago_broker.core.repeated_lines import AGAIN_MS
from imago_testing.virtual.clocks import ManualClock

if TYPE_CHECKING:
    import pytest

TRIES = 40


async def test_an_outage_is_told_once_then_once_a_minute_with_how_often_it_was_tried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wakeups, "RETRY_SECONDS", 0.0)
    caplog.set_level(logging.INFO)
    clock, tries, reasons = ManualClock(), asyncio.Queue[None](), ["no session"]

    async def step() -> None:
        tries.put_nowait(None)
        raise TreeUnavailableError(reasons[-1])

    woken = Wake(clock.monotonic_ms)
    task = asyncio.create_task(woken.run("writer", step))
    woken.set()

    async def tried(count: int) -> None:
        for _ in range(count):
            await tries.get()

    await tried(TRIES)
    assert _told(caplog) == ["registry_unavailable task=writer times=1 reason=no session"]
    reasons.append("no quorum")
    await tried(2)
    assert _told(caplog)[1:] == ["registry_unavailable task=writer times=1 reason=no quorum"]
    clock.advance(AGAIN_MS)
    await tried(TRIES)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(_told(caplog)) == 3
    again = re.search(r"times=(\d+)", _told(caplog)[2])
    assert again is not None
    assert int(again[1]) > 1


def _told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]
