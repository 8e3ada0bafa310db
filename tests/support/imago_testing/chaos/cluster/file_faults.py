"""Members whose files are damaged while they are down."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from imago_testing.chaos.cluster.damages import DAMAGES, NothingThereError

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable, Sequence

    from imago_testing.chaos.cluster.members import Member
    from imago_testing.chaos.cluster.shard import Shard

    Fault = Callable[[Shard, random.Random], AsyncIterator[None]]

_DOWN_SECONDS_MAX = 3.0


async def damage(shard: Shard, member: Member, names: Sequence[str], rng: random.Random) -> None:
    """Do the first of these damages that finds something there."""
    problems = []
    for name in names:
        try:
            done = await asyncio.to_thread(DAMAGES[name], member.data, rng)
        except NothingThereError as error:
            problems.append(f"{name}: {error}")
        else:
            print(f"  {member.name} {name}: {done}", flush=True)
            return
    shard.idle.append(f"{member.name} {'; '.join(problems)}")
    print(f"  {member.name}: nothing damaged, {'; '.join(problems)}", flush=True)


def _any(rng: random.Random) -> list[str]:
    """Return all damages in an order of chance."""
    return rng.sample(list(DAMAGES), len(DAMAGES))


async def _bring_down(member: Member, rng: random.Random) -> None:
    await asyncio.to_thread(rng.choice([member.kill, member.stop]))


async def _damage_one(
    names: Sequence[str], shard: Shard, rng: random.Random
) -> AsyncIterator[None]:
    """A member goes down, in order or not, and finds its files damaged when it comes back."""
    member = rng.choice(shard.members)
    await _bring_down(member, rng)
    yield
    await damage(shard, member, names, rng)
    await asyncio.sleep(rng.uniform(0, _DOWN_SECONDS_MAX))
    member.start()


async def damage_files(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """The same with any of the damages."""
    async for _ in _damage_one(_any(rng), shard, rng):
        yield


async def damage_both_followers(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """Both followers go down, and each finds other files damaged."""
    followers = shard.followers()
    for member in followers:
        await _bring_down(member, rng)
    yield
    for member in followers:
        await damage(shard, member, _any(rng), rng)
        member.start()


async def damage_then_kill_leader(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """The leader dies while a follower that found its files damaged has just come back."""
    leader, member = shard.leader(), rng.choice(shard.followers())
    await _bring_down(member, rng)
    yield
    await damage(shard, member, _any(rng), rng)
    member.start()
    await asyncio.sleep(rng.uniform(0.5, _DOWN_SECONDS_MAX))
    await asyncio.to_thread(leader.kill)
    await asyncio.sleep(rng.uniform(0.2, _DOWN_SECONDS_MAX))
    leader.start()


async def kill_all_damage_one(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """Every member dies, and one finds its files damaged."""
    async for _ in _kill_all_damage(_any(rng), shard, rng):
        yield


async def kill_all_zero_tail(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """Every member dies, and the last writes of one never reached its disk."""
    async for _ in _kill_all_damage(["zero_tail"], shard, rng):
        yield


async def _kill_all_damage(
    names: Sequence[str], shard: Shard, rng: random.Random
) -> AsyncIterator[None]:
    for member in shard.members:
        await asyncio.to_thread(member.kill)
    yield
    await damage(shard, rng.choice(shard.members), names, rng)
    for member in rng.sample(shard.members, len(shard.members)):
        member.start()


FILE_FAULTS: dict[str, Fault] = {
    "damage_files": damage_files,
    "damage_both_followers": damage_both_followers,
    "damage_then_kill_leader": damage_then_kill_leader,
    "kill_all_damage_one": kill_all_damage_one,
    "kill_all_zero_tail": kill_all_zero_tail,
    **{name: partial(_damage_one, [name]) for name in DAMAGES},
}
"""Also one for each damage, by its name."""
