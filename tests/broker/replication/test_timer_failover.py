"""Masters are killed while messages wait: each is delivered once, by whoever leads then."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from imago_client import Client, ClientConfig, ClientError, Message, PullStatus, SendStatus
from imago_testing.clusters.shard_processes import SECONDS_MAX, TOPIC

if TYPE_CHECKING:
    from imago_testing.clusters.shard_processes import Members

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper, pytest.mark.timeout(240)]
COUNT = 100
LAST = b"last"
"""Due behind all others."""


async def delivered(client: Client) -> list[bytes]:
    """The bodies of all queues; of none where the leader is just being chosen."""
    consumer, bodies = client.pull_consumer("readers"), []
    try:
        for queue in await consumer.queues(TOPIC):
            offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            while offset < end:
                pulled = await consumer.pull(queue, offset)
                if pulled.status is not PullStatus.FOUND:
                    break
                bodies += [message.body for message in pulled.messages()]
                offset = pulled.next_offset
    except ClientError:
        return []
    return bodies


async def come(client: Client, count: int) -> list[bytes]:
    async with asyncio.timeout(2 * SECONDS_MAX):
        while len(told := await delivered(client)) < count:  # noqa: ASYNC110  told by the brokers
            await asyncio.sleep(0.1)
    return told


async def test_killed_masters_deliver_each_timer_and_each_delayed_message_once(
    members: Members,
) -> None:
    for number in range(3):
        members.start(number)
        await members.serve(number)
    rng, sent = random.Random(11), set[bytes]()
    config = ClientConfig(bootstrap=tuple(members.bootstrap.split(",")), route_age_max_s=1.0)
    async with Client(config) as client:
        leader = await members.leader(client)
        producer = client.producer()
        for number in range(COUNT):
            timer, delayed = b"t%03d" % number, b"d%03d" % number
            waiting = [
                Message(TOPIC, timer, delay_ms=rng.randrange(2000, 15_000)),
                Message(TOPIC, delayed, delay_level=rng.choice([1, 2, 3])),
            ]
            for message in waiting:
                assert (await producer.send(message)).status is SendStatus.OK
            sent |= {timer, delayed}
        for share in (COUNT // 4, COUNT):
            await come(client, share)
            members.processes[leader].kill()
            killed, leader = leader, await members.leader(client, but=leader)
            members.start(killed)
            await members.serve(killed)
        await come(client, len(sent))
        assert (await producer.send(Message(TOPIC, LAST, delay_level=1))).status is SendStatus.OK
        told = await come(client, len(sent) + 1)
        assert sorted(told) == sorted([*sent, LAST])
