"""Disks that fill up while the shard is busy with something else: elections, cuts, handovers.

Nobody reads on behalf of one group: whatever goes before it expires is missed.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable, Mapping

    from imago_testing.chaos.cluster.members import Member
    from imago_testing.chaos.cluster.shard import Shard
    from imago_testing.chaos.history import History

    Fault = Callable[[Shard, random.Random], AsyncIterator[None]]

_FORCED = re.compile(r"^imago_log_forced_messages_total (\S+)$", re.MULTILINE)
CROWDED = 0.87
"""Used part of a disk at which old files go, and messages are still taken."""
FULL = 0.93
"""Used part of a disk at which messages are refused."""
LAST_BYTE = 1.0
LEVELS = (CROWDED, FULL, LAST_BYTE)
_BESIDE_SECONDS = 1.5
"""So long a disk is filling before something else happens, and stays full after it."""
_PARTED_SECONDS = 4.0


def forced_in(metrics: str) -> float:
    """Return how many messages a broker has deleted before they had expired, as it tells."""
    found = _FORCED.search(metrics)
    assert found, "it shows no such metric"
    return float(found[1])


def note_forced_out(history: History, fault: str, counts: Mapping[str, float]) -> None:
    """See whether a full disk took what the group that reads nothing has not read."""
    for member, count in counts.items():
        if count:
            history.forced_out.append(f"{fault}: {member} deleted {count:.0f} messages for room")


async def _filled(members: list[Member], used: float) -> None:
    for member in members:
        await asyncio.to_thread(member.fill_disk, used)
    await asyncio.sleep(_BESIDE_SECONDS)


async def _emptied(shard: Shard) -> None:
    await asyncio.sleep(_BESIDE_SECONDS)
    for member in shard.members:
        await asyncio.to_thread(member.empty_disk)


async def crowd_leader(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """The leader's disk is so full that old files would go; the others have room."""
    leader = shard.leader()
    await _filled([leader], CROWDED)
    yield
    await asyncio.sleep(rng.uniform(10, 14))  # until leadership has gone to another
    await _emptied(shard)


async def crowd_every_disk(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """So are all disks."""
    await _filled(list(shard.members), CROWDED)
    yield
    await asyncio.sleep(rng.uniform(2, 5))
    await _emptied(shard)


async def fill_disk_at_election(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """A follower's disk fills up, then the leader dies; it comes back before there is room."""
    leader = shard.leader()
    await _filled([rng.choice(shard.followers())], rng.choice(LEVELS))
    await asyncio.to_thread(leader.kill)
    yield
    await asyncio.sleep(rng.uniform(0.2, 5))
    leader.start()
    await _emptied(shard)


async def fill_disk_at_cut(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """The leader is cut off with what it alone has, and its disk fills up: it has to cut its log.

    It gets no room for a while after it is back.
    """
    leader = shard.leader()
    others = [*(each.name for each in shard.followers()), *shard.zookeeper.names]
    for other in others:
        shard.network.cut(leader.name, other)
        shard.network.cut(other, leader.name)
    yield
    await asyncio.to_thread(leader.fill_disk, rng.choice(LEVELS))
    await asyncio.sleep(shard.session_ms / 1000 + _PARTED_SECONDS)
    shard.network.mend()
    await asyncio.sleep(_PARTED_SECONDS)
    await _emptied(shard)


async def fill_disk_at_handover(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """Leadership leaves a member whose disk fills up, as at the drain of its node."""
    leader, target = shard.leader(), rng.choice(shard.followers())
    await _filled([leader], rng.choice(LEVELS))
    await asyncio.to_thread(shard.hand_over, target)
    yield
    code = await asyncio.to_thread(leader.stop)
    assert code == 0, f"{leader.name} ended with {code}:\n{leader.log_tail()}"
    leader.start()
    await _emptied(shard)


FULL_DISK_FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        crowd_leader,
        crowd_every_disk,
        fill_disk_at_election,
        fill_disk_at_cut,
        fill_disk_at_handover,
    )
}
