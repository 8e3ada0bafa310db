"""What changes in a closed cluster while it works: certificates and passwords."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from imago_testing.chaos.cluster.closing import shown_by
from imago_testing.chaos.cluster.members import METAQ_TLS_PORT, ROCKETMQ_PORT

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable

    from imago_testing.chaos.cluster.members import Member
    from imago_testing.chaos.cluster.shard import Shard

    Fault = Callable[[Shard, random.Random], AsyncIterator[None]]

_HALF_SECONDS = 1.5
"""Longer than a broker takes to look at its files again."""
_SHOWN_TRIES, _SHOWN_SECONDS = 100, 0.3


async def rotate_certificates(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """Each member in turn gets a new certificate, half of it first; connections stay."""
    members = rng.sample(shard.members, len(shard.members))
    for member in members:
        await _rotate(shard, member, half_first=rng.random() < 0.7)
        if member is members[0]:
            yield


async def rotate_and_kill_leader(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """All members get new certificates, and the leader dies: all connect with them anew."""
    for member in shard.members:
        await _rotate(shard, member, half_first=False)
    leader = shard.leader()
    await asyncio.to_thread(leader.kill)
    yield
    await asyncio.sleep(rng.uniform(0.2, 3))
    leader.start()


async def rotate_password(shard: Shard, rng: random.Random) -> AsyncIterator[None]:
    """The clients that sign get another password, and the leader that answered so dies."""
    assert shard.closed is not None
    leader = shard.leader()
    secret = f"secret-{rng.getrandbits(64):016x}"
    if not await asyncio.to_thread(shard.closed.new_password, leader, secret):
        shard.idle.append(f"{leader.name} rotate_password: it changed no password")
    await asyncio.to_thread(leader.kill)
    yield
    await asyncio.sleep(rng.uniform(0.2, 3))
    leader.start()


async def _rotate(shard: Shard, member: Member, *, half_first: bool) -> None:
    assert shard.closed is not None
    pair = await asyncio.to_thread(shard.closed.new_certificate, member)
    if half_first:
        whole = pair.certificate.read_bytes()
        member.pair.certificate.write_bytes(whole[: len(whole) // 2])
        await asyncio.sleep(_HALF_SECONDS)
    pair.copy_to(member.pair)
    wanted = ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())
    for _ in range(_SHOWN_TRIES):
        shown = [
            await asyncio.to_thread(shown_by, member.address, port)
            for port in (ROCKETMQ_PORT, METAQ_TLS_PORT)
        ]
        if all(each and ssl.PEM_cert_to_DER_cert(each) == wanted for each in shown):
            return
        await asyncio.sleep(_SHOWN_SECONDS)
    shard.idle.append(f"{member.name} rotates: it does not show its new certificate")


ROTATIONS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (rotate_certificates, rotate_and_kill_leader, rotate_password)
}
