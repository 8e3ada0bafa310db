"""Masters are killed while messages wait: each is delivered once, by whoever leads then."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from imago_client import (
    Client,
    ClientConfig,
    ClientError,
    Message,
    ProducerConfig,
    PullStatus,
    SendStatus,
)
from imago_testing.clusters.shard_processes import SECONDS_MAX, TOPIC

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from imago_client.rocketmq.producer import Producer
    from imago_testing.clusters.shard_processes import Members

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]
COUNT = 100
LAST = "last"
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


async def come(client: Client, count: int, bodies: AbstractSet[bytes] = frozenset()) -> list[bytes]:
    """What has been delivered, once that is `count` messages and each of `bodies`."""
    async with asyncio.timeout(2 * SECONDS_MAX):
        while len(told := await delivered(client)) < count or not bodies <= set(told):  # noqa: ASYNC110  told by the brokers
            await asyncio.sleep(0.1)
    return told


@dataclass
class Sent:
    """What was sent: a try without an answer may be stored, so that each try has its own body."""

    producer: Producer
    acknowledged: set[bytes] = field(default_factory=set)
    in_doubt: set[bytes] = field(default_factory=set)

    async def send(self, name: str, *, delay_ms: int = 0, delay_level: int = 0) -> None:
        for number in range(10):
            body = f"{name}.{number}".encode()
            try:
                answer = await self.producer.send(
                    Message(TOPIC, body, delay_ms=delay_ms, delay_level=delay_level)
                )
            except ClientError:
                self.in_doubt.add(body)
                continue
            assert answer.status is SendStatus.OK
            self.acknowledged.add(body)
            return
        pytest.fail(f"{name}: ten tries to send it failed")


@pytest.mark.full
async def test_killed_masters_deliver_each_timer_and_each_delayed_message_once(
    members: Members,
) -> None:
    for number in range(3):
        members.start(number)
        await members.serve(number)
    rng = random.Random(11)
    config = ClientConfig(bootstrap=tuple(members.bootstrap.split(",")), route_age_max_s=1.0)
    async with Client(config) as client:
        leader = await members.leader(client)
        sent = Sent(client.producer(ProducerConfig(retries_max=0)))
        for number in range(COUNT):
            await sent.send(f"timer-{number}", delay_ms=rng.randrange(2000, 15_000))
            await sent.send(f"delayed-{number}", delay_level=rng.choice([1, 2, 3]))
        for share in (COUNT // 4, COUNT):
            await come(client, share)
            members.processes[leader].kill()
            killed, leader = leader, await members.leader(client, but=leader)
            members.start(killed)
            await members.serve(killed)
        await come(client, 0, sent.acknowledged)
        await sent.send(LAST, delay_level=1)
        told = await come(client, 0, sent.acknowledged)
        assert {body: times for body, times in Counter(told).items() if times > 1} == {}
        assert set(told) <= sent.acknowledged | sent.in_doubt
