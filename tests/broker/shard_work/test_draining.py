"""What a master puts on record of its shard's drain, and when it may."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.shard_work import draining
from imago_broker.shard_work.remaining import measure
from imago_testing.clusters.shard_pair import make, running_pair

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from imago_broker.shard_work.remaining import ShardRemaining
    from imago_broker.shard_work.services import ShardServices


async def test_a_master_that_stops_takes_no_drain_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it steps down it counts a shard that is not settled, which it cannot judge any more."""
    async with running_pair(tmp_path) as pair:
        make(pair.one, "orders")
        await pair.drain(pair.one)
        await pair.until(0, lambda shard: shard["drained"])
        counted: list[int] = []
        leads = draining.Drainer._leads

        async def stepping_down(services: ShardServices, blocked: str) -> ShardRemaining:
            counted.append(services.config.broker.shard)
            return replace(await measure(services, blocked), settled=False)

        monkeypatch.setattr(draining, "measure", stepping_down)
        monkeypatch.setattr(draining.Drainer, "_leads", lambda self: not counted and leads(self))
        await pair.until(0, lambda _: counted)
        shown = await pair.shard(0)
        assert (counted[0], shown["drained"]) == (0, True)
