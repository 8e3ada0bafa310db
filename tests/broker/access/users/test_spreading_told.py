"""What is said where users and rules do not reach other shards."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from imago_broker.shard_work import access_spreading
from imago_broker.shard_work.access_spreading import AccessSpreader
from imago_testing.clusters.shard_brokers import until

if TYPE_CHECKING:
    import pytest


async def test_each_shard_that_is_not_reached_is_named_once_and_when_it_is_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(access_spreading, "LOOK_SECONDS", 0.001)
    caplog.set_level(logging.INFO, access_spreading.__name__)
    ways: list[dict[str, str]] = [
        {"shard-0": "ok", "shard-1": "ok"},
        {"shard-0": "ok", "shard-1": "refused", "shard-2": "no master"},
        {"shard-0": "ok", "shard-1": "refused", "shard-2": "no master"},
        {"shard-0": "ok", "shard-1": "ok", "shard-2": "ok"},
    ]
    over = asyncio.Event()

    async def spread(_: AccessSpreader) -> dict[str, str]:
        if len(ways) == 1:
            over.set()
        return ways.pop(0) if len(ways) > 1 else ways[0]

    monkeypatch.setattr(AccessSpreader, "spread", spread)
    awaited = SimpleNamespace(of_shards=False, on_begin=[])
    view = SimpleNamespace(leads=lambda _: True)
    coordinator = SimpleNamespace(registered=object(), view=lambda: view)
    access = SimpleNamespace(on_change=[], awaited=awaited)
    services: Any = SimpleNamespace(access=access, coordinator=coordinator)
    spreader = AccessSpreader(cast("Any", services))
    spreader.start()
    async with asyncio.timeout(50):
        await over.wait()
    await until(lambda: "access_spread " in caplog.text)
    await spreader.stop()
    assert [record.getMessage() for record in caplog.records] == [
        "access_not_spread shard=shard-1 reason=refused",
        "access_not_spread shard=shard-2 reason=no master",
        "access_spread shards=shard-1,shard-2",
    ]
