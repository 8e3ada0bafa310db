"""The shard's own clock work on the loop that a broker's process has."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from imago_testing.clusters.shard_brokers import ShardBrokers, until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_a_tick_that_is_due_now_is_planned_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, mistakes = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, what: mistakes.append(what))
    shard = ShardBrokers(tmp_path, session_ms=120_000)
    await shard.start(0)
    ticks: list[None] = []
    shell = shard.shell(0)
    planned = shell.machine.tick_after_ms

    def now_for_a_while() -> int:
        ticks.append(None)
        return 0 if len(ticks) < 20 else planned()

    monkeypatch.setattr(shell.machine, "tick_after_ms", now_for_a_while)
    await until(lambda: len(ticks) > 25)
    await shard.close()
    assert mistakes == []
