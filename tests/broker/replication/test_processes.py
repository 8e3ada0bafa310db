"""Three broker processes and a ZooKeeper: masters die and hand over while a client sends."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from imago_client import Client, ClientConfig, ClientError, Message, PullStatus, SendStatus
from imago_testing.clusters.shard_processes import SECONDS_MAX, TOPIC

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from imago_testing.clusters.shard_processes import Members

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


@contextlib.asynccontextmanager
async def sending(client: Client, acknowledged: list[bytes]) -> AsyncIterator[None]:
    """Send one message after the other while the block runs; note those that were confirmed."""
    stopped = asyncio.Event()

    async def send() -> None:
        producer, number = client.producer(), 0
        while not stopped.is_set():
            number += 1
            body = b"%06d" % number
            try:
                result = await producer.send(Message(TOPIC, body))
            except ClientError:
                await asyncio.sleep(0.05)
                continue
            if result.status is SendStatus.OK:
                acknowledged.append(body)

    task = asyncio.create_task(send())
    try:
        yield
    finally:
        stopped.set()
        await task


async def more(acknowledged: list[bytes], count: int) -> None:
    wanted = len(acknowledged) + count
    async with asyncio.timeout(SECONDS_MAX):
        while len(acknowledged) < wanted:  # noqa: ASYNC110  told by another task's list
            await asyncio.sleep(0.05)


async def stored(client: Client) -> list[list[bytes]]:
    """The bodies of every queue, in order."""
    consumer, queues = client.pull_consumer("readers"), []
    for queue in await consumer.queues(TOPIC):
        bodies: list[bytes] = []
        offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
        while offset < end:
            pulled = await consumer.pull(queue, offset)
            assert pulled.status is PullStatus.FOUND
            bodies += [message.body for message in pulled.messages()]
            offset = pulled.next_offset
        queues.append(bodies)
    return queues


async def test_nothing_confirmed_is_lost_when_masters_die_and_hand_over(members: Members) -> None:
    for number in range(3):
        members.start(number)
        await members.serve(number)
    acknowledged: list[bytes] = []
    config = ClientConfig(bootstrap=tuple(members.bootstrap.split(",")), route_age_max_s=1.0)
    async with Client(config) as client:
        leader = await members.leader(client)
        async with sending(client, acknowledged):
            await more(acknowledged, 50)
            members.processes[leader].kill()
            other = await members.leader(client, but=leader)
            await more(acknowledged, 50)
            members.start(leader)
            await members.serve(leader)
            assert await asyncio.to_thread(members.processes[other].stop) == 0
            await members.leader(client, but=other)
            await more(acknowledged, 50)
        kept = await stored(client)
    everything = {body for queue in kept for body in queue}
    assert set(acknowledged) <= everything
    for queue in kept:
        assert queue == sorted(queue), "the order in which one producer sent"
