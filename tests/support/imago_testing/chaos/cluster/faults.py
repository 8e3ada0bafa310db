"""What can go wrong with a cluster: each fault is done to it and undone again."""

from __future__ import annotations

import asyncio
import errno
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from imago_testing.chaos.cluster.damages import DAMAGES
from imago_testing.chaos.cluster.drains import DRAINS
from imago_testing.chaos.cluster.file_faults import FILE_FAULTS
from imago_testing.chaos.cluster.full_disks import FULL_DISK_FAULTS
from imago_testing.chaos.cluster.lossy import Line
from imago_testing.chaos.cluster.members import REPLICATION_PORT
from imago_testing.chaos.cluster.rotations import ROTATIONS
from imago_testing.chaos.cluster.zookeeper_faults import ZOOKEEPER_FAULTS

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable

    from imago_testing.chaos.cluster.members import Member
    from imago_testing.chaos.cluster.shard import Shard

    Fault = Callable[[Shard, random.Random], "AsyncIterator[None]"]

_CLOCK_STEP_SECONDS = 3600.0
_SLOW_SYNC_SECONDS = 0.05
_STALLED_SYNC_SECONDS = 2.0
_FILES_LEFT = 2
_BAD_LINE_SECONDS = 4.0
_KILLS_IN_TURN = 3
_HANDOVERS = 3
_BETWEEN_FOLLOWERS_SECONDS = 0.3


async def _kill(shard: Shard, members: list[Member], seconds: float) -> AsyncIterator[None]:
    for member in members:
        await asyncio.to_thread(member.kill)
    yield
    await asyncio.sleep(seconds)
    for member in members:
        member.start()
    del shard


async def kill_leader(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """kill -9 of the leader; it comes back a moment later."""
    async for _ in _kill(shard, [shard.leader()], rng.uniform(0.2, 5)):
        yield


async def kill_follower(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """kill -9 of a follower."""
    async for _ in _kill(shard, [rng.choice(shard.followers())], rng.uniform(0.2, 5)):
        yield


async def kill_all(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """kill -9 of every member."""
    async for _ in _kill(shard, list(shard.members), rng.uniform(0.2, 2)):
        yield


async def kill_two(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """kill -9 of two members."""
    async for _ in _kill(shard, rng.sample(shard.members, 2), rng.uniform(0.2, 5)):
        yield


async def kill_in_turn(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """kill -9 of one member after the other, while those before still catch up."""
    for turn in range(_KILLS_IN_TURN):
        member = rng.choice([each for each in shard.members if each.alive])
        await asyncio.to_thread(member.kill)
        if not turn:
            yield
        await asyncio.sleep(rng.uniform(0.2, 2))
        member.start()
        await asyncio.sleep(rng.uniform(0.5, 3))


async def wipe_follower(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """A follower dies and comes back with an empty disk."""
    member = rng.choice(shard.followers())
    await asyncio.to_thread(member.kill)
    yield
    await asyncio.to_thread(DAMAGES["lose_folder"], member.data, rng)
    member.start()


async def pause_leader(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """The leader's process stands still for longer than its session lasts."""
    leader = shard.leader()
    leader.pause(on=True)
    yield
    await asyncio.sleep(shard.session_ms / 1000 * rng.uniform(1.2, 2))
    leader.pause(on=False)


async def pause_follower(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """A follower's process stands still, its connections stay open."""
    member = rng.choice(shard.followers())
    member.pause(on=True)
    yield
    await asyncio.sleep(rng.uniform(3, 6))
    member.pause(on=False)


async def pause_follower_after_kill(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """A follower dies and is started again at once; the other one stands still meanwhile."""
    dead, still = rng.sample(shard.followers(), 2)
    await asyncio.to_thread(dead.kill)
    await asyncio.sleep(_BETWEEN_FOLLOWERS_SECONDS)
    still.pause(on=True)
    dead.start()
    yield
    await asyncio.sleep(rng.uniform(5, 7))
    still.pause(on=False)


async def _cut(shard: Shard, pairs: list[tuple[str, str]], seconds: float) -> AsyncIterator[None]:
    for source, target in pairs:
        shard.network.cut(source, target)
    yield
    await asyncio.sleep(seconds)
    shard.network.mend()


def _both(ones: list[str], others: list[str]) -> list[tuple[str, str]]:
    pairs = [(one, other) for one in ones for other in others]
    return pairs + [(other, one) for one, other in pairs]


async def part_leader_from_followers(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """The leader reaches ZooKeeper and its clients, but no follower."""
    followers = [each.name for each in shard.followers()]
    pairs = _both([shard.leader().name], followers)
    async for _ in _cut(shard, pairs, rng.uniform(3, 6)):
        yield


async def part_leader_from_zookeeper(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """The leader reaches followers and clients, but not ZooKeeper, until its session is over."""
    pairs = _both([shard.leader().name], shard.zookeeper.names)
    async for _ in _cut(shard, pairs, shard.session_ms / 1000 * rng.uniform(1.5, 2.5)):
        yield


async def isolate_leader(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """The leader reaches nobody but its clients."""
    followers = [each.name for each in shard.followers()]
    pairs = _both([shard.leader().name], [*followers, *shard.zookeeper.names])
    async for _ in _cut(shard, pairs, shard.session_ms / 1000 * rng.uniform(1.5, 2.5)):
        yield


async def cut_towards_followers(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """What the leader sends to its followers is lost, what they send arrives."""
    leader = shard.leader().name
    pairs = [(leader, each.name) for each in shard.followers()]
    async for _ in _cut(shard, pairs, rng.uniform(3, 6)):
        yield


async def cut_towards_leader(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """What the followers send to the leader is lost, what it sends arrives."""
    leader = shard.leader().name
    pairs = [(each.name, leader) for each in shard.followers()]
    async for _ in _cut(shard, pairs, rng.uniform(3, 6)):
        yield


async def bridge(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """Two members do not reach each other, the third reaches both."""
    one, other = rng.sample([each.name for each in shard.members], 2)
    async for _ in _cut(shard, _both([one], [other]), rng.uniform(3, 6)):
        yield


async def _bad_line(shard: Shard, name: str, line: Line, seed: int) -> AsyncIterator[None]:
    with shard.network.bad_line(name, line, seed) as lossy:
        yield
        await asyncio.sleep(_BAD_LINE_SECONDS)
    print(
        f"  {line}: {lossy.passed} passed, {lossy.lost} lost, {lossy.changed} changed", flush=True
    )


async def lose_packets(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """A member's line loses packets, and brings some twice."""
    member = rng.choice(shard.members)
    line = Line(lost=rng.choice([0.01, 0.05, 0.3]), twice=0.02)
    async for _ in _bad_line(shard, member.name, line, rng.getrandbits(32)):
        yield


async def delay_packets(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """A member's line is slow: 200 ms and 100 ms more or less, so that packets overtake others."""
    member = rng.choice(shard.members)
    line = Line(late_s=0.2, jitter_s=0.1, twice=0.02)
    async for _ in _bad_line(shard, member.name, line, rng.getrandbits(32)):
        yield


async def change_bits(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """Bits of what the members copy from each other change on the way, unseen by TCP."""
    member = rng.choice(shard.members)
    line = Line(changed=0.05, port=REPLICATION_PORT)
    async for _ in _bad_line(shard, member.name, line, rng.getrandbits(32)):
        yield


async def step_clock(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """The leader's wall clock jumps by an hour and back."""
    leader = shard.leader()
    leader.knobs.turn(clock_s=rng.choice([-1, 1]) * _CLOCK_STEP_SECONDS)
    yield
    await asyncio.sleep(3)
    leader.knobs.turn()


async def step_clock_of_follower(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """A follower's wall clock is an hour off when it becomes the leader, and then right again."""
    member = rng.choice(shard.followers())
    member.knobs.turn(clock_s=rng.choice([-1, 1]) * _CLOCK_STEP_SECONDS)
    await asyncio.to_thread(shard.hand_over, member)
    yield
    await asyncio.sleep(3)
    member.knobs.turn()


async def _fill(members: list[Member]) -> AsyncIterator[None]:
    for member in members:
        await asyncio.to_thread(member.fill_disk)
    yield
    await asyncio.sleep(3)
    for member in members:
        await asyncio.to_thread(member.empty_disk)


async def fill_disk(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """The leader's disk is full for a while."""
    del rng
    async for _ in _fill([shard.leader()]):
        yield


async def fill_follower_disk(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """A follower's disk is full for a while."""
    async for _ in _fill([rng.choice(shard.followers())]):
        yield


async def fill_every_disk(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """Every member's disk is full for a while."""
    del rng
    async for _ in _fill(list(shard.members)):
        yield


async def break_sync(shard: Shard, _: random.Random) -> AsyncIterator[None]:
    """The leader's disk refuses every sync, until its process has ended and starts again."""
    leader = shard.leader()
    leader.knobs.turn(sync_errno=errno.EIO)
    yield
    await asyncio.sleep(2)
    leader.knobs.turn()


async def slow_disk(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """A sync of one member takes 50 ms longer."""
    member = rng.choice(shard.members)
    member.knobs.turn(sync_delay_s=_SLOW_SYNC_SECONDS)
    yield
    await asyncio.sleep(4)
    member.knobs.turn()


async def stall_disk(shard: Shard, _: random.Random) -> AsyncIterator[None]:
    """A sync of the leader takes two seconds."""
    leader = shard.leader()
    leader.knobs.turn(sync_delay_s=_STALLED_SYNC_SECONDS)
    yield
    await asyncio.sleep(4)
    leader.knobs.turn()


async def exhaust_files(shard: Shard, _: random.Random) -> AsyncIterator[None]:
    """The leader may open no more files for a while."""
    leader = shard.leader()
    leader.files_max(leader.open_files() + _FILES_LEFT)
    yield
    await asyncio.sleep(3)
    if leader.alive:
        leader.files_max(65536)


async def roll(shard: Shard, _: random.Random) -> AsyncIterator[None]:
    """Every member in turn is stopped in order and started again, the leader last."""
    first = True
    for member in [*shard.followers(), shard.leader()]:
        code = await asyncio.to_thread(member.stop)
        assert code == 0, f"{member.name} ended with {code}:\n{member.log_tail()}"
        if first:
            yield
        first = False
        member.start()
        await asyncio.to_thread(member.wait)
        await asyncio.to_thread(shard.settled)


async def hand_over(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """Leadership goes from member to member while retention takes the oldest files."""
    for turn in range(_HANDOVERS):
        await asyncio.to_thread(shard.hand_over, rng.choice(shard.followers()))
        if not turn:
            yield
        await asyncio.to_thread(shard.settled)
        await asyncio.sleep(rng.uniform(0.2, 2))


FAULTS: dict[str, Fault] = (
    {
        fault.__name__: fault
        for fault in (
            kill_leader,
            kill_follower,
            kill_two,
            kill_all,
            kill_in_turn,
            wipe_follower,
            pause_leader,
            pause_follower,
            pause_follower_after_kill,
            part_leader_from_followers,
            part_leader_from_zookeeper,
            isolate_leader,
            cut_towards_followers,
            cut_towards_leader,
            bridge,
            lose_packets,
            delay_packets,
            change_bits,
            step_clock,
            step_clock_of_follower,
            fill_disk,
            fill_follower_disk,
            fill_every_disk,
            break_sync,
            slow_disk,
            stall_disk,
            exhaust_files,
            hand_over,
            roll,
        )
    }
    | FILE_FAULTS
    | FULL_DISK_FAULTS
    | ZOOKEEPER_FAULTS
)


@asynccontextmanager
async def done_to(shard: Shard, name: str, rng: random.Random) -> AsyncIterator[None]:
    """Do the fault; when the block ends it is undone."""
    steps = (FAULTS | DRAINS | ROTATIONS)[name](shard, rng)
    await anext(steps)
    try:
        yield
    finally:
        async for _ in steps:
            raise AssertionError(f"{name} goes on after it was undone")
