"""What can go wrong with the registry: servers that die, or stand still."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable

    from imago_testing.chaos.cluster.shard import Shard

    Fault = Callable[[Shard, random.Random], AsyncIterator[None]]


async def kill_zookeeper(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """One ZooKeeper server dies, as often as not the one that leads."""
    name = rng.choice([shard.zookeeper.leader(), rng.choice(shard.zookeeper.names)])
    shard.zookeeper.kill(name)
    yield
    await asyncio.sleep(4)
    shard.zookeeper.start_missing()
    await asyncio.to_thread(shard.zookeeper.wait)


async def pause_zookeeper(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """One ZooKeeper server stands still, as often as not the one that leads, its ports open."""
    names = [rng.choice([shard.zookeeper.leader(), rng.choice(shard.zookeeper.names)])]
    async for _ in _pause_zookeepers(shard, names, rng.uniform(3, 6)):
        yield


async def pause_every_zookeeper(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """All ZooKeeper servers stand still, until every session and every lease is over."""
    seconds = shard.session_ms / 1000 * rng.uniform(1.2, 2)
    async for _ in _pause_zookeepers(shard, shard.zookeeper.names, seconds):
        yield


async def _pause_zookeepers(shard: Shard, names: list[str], seconds: float) -> AsyncIterator[None]:
    for name in names:
        shard.zookeeper.pause(name, on=True)
    yield
    await asyncio.sleep(seconds)
    for name in names:
        shard.zookeeper.pause(name, on=False)


async def zookeeper_majority_down(shard: Shard, _: random.Random) -> AsyncIterator[None]:
    """Two of three ZooKeeper servers die: nobody can be elected, leases run out."""
    for name in shard.zookeeper.names[:2]:
        shard.zookeeper.kill(name)
    yield
    await asyncio.sleep(shard.session_ms / 1000 * 1.5)
    shard.zookeeper.start_missing()
    await asyncio.to_thread(shard.zookeeper.wait)


async def restart_all_zookeepers(shard: Shard, _: random.Random) -> AsyncIterator[None]:
    """All ZooKeeper servers die together and come back."""
    for name in shard.zookeeper.names:
        shard.zookeeper.kill(name)
    yield
    await asyncio.sleep(1)
    shard.zookeeper.start_missing()
    await asyncio.to_thread(shard.zookeeper.wait)


ZOOKEEPER_FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        kill_zookeeper,
        pause_zookeeper,
        pause_every_zookeeper,
        zookeeper_majority_down,
        restart_all_zookeepers,
    )
}
