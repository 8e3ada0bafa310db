"""All members of a shard die, and one of them comes back with less than it had."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from imago_broker.service.puts.put_status import PutStatus
from imago_testing.clusters.shard_brokers import ShardBrokers, until

if TYPE_CHECKING:
    from pathlib import Path

OK = PutStatus.OK


def zero(folder: Path, start: int, end: int) -> None:
    """A file system that gives zeros back where something was written."""
    (segment,) = (folder / "commitlog").iterdir()
    with segment.open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))


async def killed(tmp_path: Path) -> tuple[ShardBrokers, int, int]:
    """Three members that have acknowledged two messages, all dead; where the second one was."""
    shard = ShardBrokers(tmp_path)
    await shard.start(0, 1, 2)
    await shard.all_in_sync(0, 1, 2)
    assert await shard.put(0, b"one") == [OK]
    start = shard.store(0).log_end
    assert await shard.put(0, b"two") == [OK]
    end = shard.store(0).log_end
    for number in (2, 1, 0):
        await shard.kill(number)
    return shard, start, end


async def test_the_longest_log_leads_whoever_comes_back_first(tmp_path: Path) -> None:
    shard, start, end = await killed(tmp_path)
    zero(tmp_path / "member-0", start, end)

    async def later(number: int) -> None:
        await asyncio.sleep(0.5)
        await shard.start(number)

    await asyncio.gather(shard.start(0), later(1), later(2))
    assert await shard.led() in (1, 2)
    await shard.all_in_sync(0, 1, 2)
    await shard.same_logs()
    await until(lambda: shard.bodies(0) == [b"one", b"two"])
    await shard.close()


async def test_nobody_is_waited_for_for_ever(tmp_path: Path) -> None:
    shard, start, end = await killed(tmp_path)
    zero(tmp_path / "member-0", start, end)
    await shard.start(0)
    assert await shard.led() == 0, "the others may be gone for good"
    assert shard.brokers[0].role.current.epoch == 2
    await shard.close()
