"""More shards come, are drained under load and removed; whoever is owed something gets it."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from imago_testing.chaos.cluster.full_disks import LEVELS
from imago_testing.chaos.cluster.members import Member
from imago_testing.chaos.cluster.second_shard import READS_ALL, Clients, clients
from imago_testing.chaos.cluster.shard import ApartError
from imago_testing.chaos.drained import DrainedShard
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from imago_testing.chaos.cluster.second_shard import Kind
    from imago_testing.chaos.cluster.shard import Shard

    Disturb = Callable[[], Awaitable[None]]
    Fault = Callable[[Shard, random.Random], AsyncIterator[None]]

_LOOKS: Final = 2.5
"""Seconds that a shard has to say falsely that it is drained: it looks each second."""
_SECONDS_MAX = 300.0
"""For a minute after its election no master says who reads: consumers may still come back."""
_OK = 200
_CREATED = {_OK, 201}
_MAY_BE_REPEATED = 500
_GONE = 404


async def drain_shard(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """A second shard is drained while one client after another takes what it is owed there."""
    async with _one_more(shard, rng) as drain:
        yield
        for kind in rng.sample(drain.owed.kinds, len(drain.owed.kinds)):
            await drain.out([kind])
            await asyncio.to_thread(_take_back, drain.member, drain.owed)
        await drain.out_for_good()


async def drain_shard_and_fill_disk(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """Its disk fills up while a second shard is drained; nobody loses what it has not read."""
    async with _one_more(shard, rng) as drain:
        yield
        for used in rng.sample(LEVELS, len(LEVELS)):
            await drain.out(drain.all_kinds(), partial(_filled_for_a_while, drain, used))
            await asyncio.to_thread(_take_back, drain.member, drain.owed)
        await drain.out_for_good()


async def drain_shard_and_restart(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """The broker of a second shard dies, and is stopped in order, while the shard is drained."""
    async with _one_more(shard, rng) as drain:
        yield
        for end in (Member.kill, Member.stop):
            await drain.out(drain.all_kinds(), partial(_restarted, drain, end))
            await asyncio.to_thread(_take_back, drain.member, drain.owed)
        await drain.out_for_good()


async def drain_two_shards(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """Two more shards are drained and removed, one after the other: topics leave both."""
    async with _one_more(shard, rng) as first, _one_more(shard, rng, number=2) as second:
        yield
        for drain in (first, second):
            await drain.out_for_good()


@asynccontextmanager
async def _one_more(shard: Shard, rng: random.Random, number: int = 1) -> AsyncIterator[Drain]:
    """Have one more shard, with its clients; the block drains it for good."""
    drained = DrainedShard()
    shard.drains.append(drained)
    member = await asyncio.to_thread(shard.one_more, number)
    tag = f"{rng.getrandbits(32):08x}"
    try:
        async with clients(member, shard.zookeeper.connect, drained, tag) as owed:
            await asyncio.to_thread(_make_topics, member, owed.topics)
            yield Drain(shard, rng, member, owed, drained)
            await _send_late(owed, drained)
        await asyncio.to_thread(_remove, shard, member)
        drained.removed = True
    finally:
        member.close()


def _waits(kind: Kind) -> bool:
    return kind.__name__ != Clients.timed.__name__


@dataclass
class Drain:
    """A shard on its way out."""

    shard: Shard
    rng: random.Random
    member: Member
    owed: Clients
    drained: DrainedShard

    def all_kinds(self) -> Sequence[Kind]:
        """Return all that clients may be owed: first what comes by itself, the rest in some order.

        Whoever reads all has that as soon as it has come: after the others nobody is owed it.
        """
        return sorted(self.rng.sample(self.owed.kinds, len(self.owed.kinds)), key=_waits)

    async def out_for_good(self) -> None:
        await self.out(self.all_kinds())

    async def out(self, kinds: Sequence[Kind], disturb: Disturb | None = None) -> None:
        """Drain the shard while clients are owed these; each in its turn takes what it is owed."""
        await self.owed.reconnect()
        takes = [(kind.__name__, await kind()) for kind in kinds]
        if disturb is not None:
            await self.owed.send_much()
        producing = asyncio.create_task(self.owed.produce())
        await asyncio.to_thread(_until_done, self.member, "/admin/v1/drain", "POST", {})
        await asyncio.wait_for(producing, _SECONDS_MAX)
        if disturb is not None:
            await disturb()
        for name, take in takes:
            await self.owed.read("orders", READS_ALL)
            await self.stays(name)
            try:
                async with asyncio.timeout(_SECONDS_MAX):
                    await take()
            except TimeoutError:
                left = _left(self.member)
                raise ApartError(f"{name} does not get what it is owed: {left}") from None
        await self.owed.read("orders", READS_ALL)
        await asyncio.to_thread(_until_drained, self.member)

    async def stays(self, what: str) -> None:
        """Note it if the shard says meanwhile that it is drained."""
        began = time.monotonic()
        while time.monotonic() - began < _LOOKS:
            if await asyncio.to_thread(_says_drained, self.member):
                self.drained.early.append(f"{what} is still owed what it was told")
                break
            await asyncio.sleep(0.2)


async def _filled_for_a_while(drain: Drain, used: float) -> None:
    member = drain.member
    await asyncio.to_thread(member.fill_disk, used)
    await drain.stays(f"on a disk of which {used:.0%} are used, everybody")
    if count := await asyncio.to_thread(member.forced_out):
        text = f"{member.name} deleted {count:.0f} messages for want of room in a drain"
        drain.drained.early.append(text)
    await asyncio.to_thread(member.empty_disk)
    await asyncio.to_thread(_until_room, member)
    await drain.owed.reconnect()


def _until_room(member: Member) -> None:
    def has_room() -> bool:
        code, told = member.ask("/admin/v1/status")
        return code == _OK and bool(told["puts"]["accepted"])

    wait_until(has_room, seconds_max=_SECONDS_MAX, what=f"{member.name} has room", poll=0.2)


async def _restarted(drain: Drain, end: Callable[[Member], object]) -> None:
    """Nobody knows what the clients do that were connected, until they have come back."""
    member = drain.member
    await asyncio.to_thread(end, member)
    member.start()
    await asyncio.to_thread(member.wait)
    await drain.owed.reconnect()
    await drain.stays("who was connected before the restart")


async def _send_late(owed: Clients, drained: DrainedShard) -> None:
    """Try what a shard that is on record as drained may not take."""
    await owed.reconnect()
    for kind in ("orders", "fresh", "light", "pop"):
        await owed.send(kind, "nobody")
        drained.late += drained.told.pop(owed.reader(kind, "nobody"), set())


def _make_topics(member: Member, topics: list[str]) -> None:
    for topic in topics:
        body = {"queues": 1, "shards": [f"shard-{member.number}"]}
        _until_done(member, f"/admin/v1/topics/{topic}", "PUT", body)


def _until_done(member: Member, path: str, method: str, body: dict[str, object]) -> None:
    """Make a call, and repeat it while the broker says that this will do."""

    def done() -> bool:
        code, told = member.ask(path, method=method, body=body)
        assert not code or code in _CREATED or code >= _MAY_BE_REPEATED, told
        return code in _CREATED

    wait_until(done, seconds_max=_SECONDS_MAX, what=f"{method} {path} is done", poll=0.5)


def _take_back(member: Member, owed: Clients) -> None:
    """Have the shard take topics again: the next drain has its own."""
    _until_done(member, "/admin/v1/undrain", "POST", {})
    path = f"/admin/v1/topics/{owed.topic('orders')}"

    def takes_messages() -> bool:
        code, told = member.ask(path)
        return code == _OK and not told["sealed"]

    wait_until(takes_messages, seconds_max=_SECONDS_MAX, what="the drain is taken back")
    owed.turn += 1
    _make_topics(member, owed.topics[1:])


def _until_drained(member: Member) -> None:
    what = f"shard-{member.number} is drained"
    try:
        wait_until(lambda: _says_drained(member), seconds_max=_SECONDS_MAX, what=what, poll=0.2)
    except TimeoutError as error:
        raise ApartError(f"{error}: {_left(member)}") from None


def _left(member: Member) -> object:
    return member.ask(f"/admin/v1/shards/{member.number}/remaining")


def _says_drained(member: Member) -> bool:
    code, told = member.ask("/admin/v1/cluster")
    return code == _OK and any(
        each["id"] == member.number and each["drained"] for each in told["shards"]
    )


def _remove(shard: Shard, member: Member) -> None:
    code = member.stop()
    assert code == 0, f"{member.name} ended with {code}:\n{member.log_tail()}"

    answers: list[object] = []

    def removed() -> bool:
        path = f"/admin/v1/shards/{member.number}/remove"
        code, told = shard.leader().ask(path, method="POST", body={})
        answers.append(told)
        return code in (_OK, _GONE)  # gone: a call before had no answer in time

    what = f"shard-{member.number} is removed"
    try:
        wait_until(removed, seconds_max=_SECONDS_MAX, what=what, poll=0.5)
    except TimeoutError as error:
        raise ApartError(f"{error}: {answers[-1]}") from None


DRAINS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        drain_shard,
        drain_shard_and_fill_disk,
        drain_shard_and_restart,
        drain_two_shards,
    )
}
