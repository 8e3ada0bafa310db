"""The idempotent producer against brokers, one of which is killed under load."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from imago_client import (
    Client,
    Message,
    MessageQueue,
    OutOfOrderSequenceError,
    ProducerConfig,
    ProducerFencedError,
    UsageError,
)
from imago_client import blocking as sockets
from imago_testing.chaos.broker import ChaosBroker

if TYPE_CHECKING:
    from pathlib import Path

QUEUE = MessageQueue("orders", "shard-0", 0)
KILLS = 5


async def bodies(client: Client, queue: MessageQueue = QUEUE) -> list[bytes]:
    """Return what is in a queue."""
    consumer = client.pull_consumer("g")
    found: list[bytes] = []
    while True:
        messages = list((await consumer.pull(queue, len(found))).messages())
        if not messages:
            return found
        found += [message.body for message in messages]


async def test_many_at_once_keep_their_order(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    producer = client.producer(idempotent=True)
    sent = [b"%d" % number for number in range(300)]
    results = await asyncio.gather(*[producer.send(Message("orders", body)) for body in sent])
    assert [result.offset for result in results] == list(range(300))
    assert await bodies(client) == sent


async def test_same_identity_repeats_itself_and_a_higher_epoch_takes_over(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)

    async def run(epoch: int, count: int) -> list[int]:
        config = ProducerConfig(idempotent=True, producer_id=7, producer_epoch=epoch)
        producer = client.producer(config)
        batch = await producer.send_batch([Message("orders", b"b")] * 3, queue=QUEUE)
        single = [await producer.send(Message("orders", b"s"), queue=QUEUE) for _ in range(count)]
        assert all(result.stored_id for result in (batch, *single))
        return [batch.offset, *[result.offset for result in single]]

    assert await run(4, 1) == [0, 3]
    assert await run(4, 3) == [0, 3, 4, 5]
    assert await run(5, 0) == [6]
    with pytest.raises(ProducerFencedError, match="epoch 4 is over, epoch 5 has begun"):
        await run(4, 0)
    assert await bodies(client) == [b"b"] * 3 + [b"s"] * 3 + [b"b"] * 3


async def test_gap_is_refused_with_its_cause(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    config = ProducerConfig(idempotent=True, producer_id=7)
    producer = client.producer(config)
    await producer.send(Message("orders", b"0"), queue=QUEUE)
    await client.admin.delete_topic("orders")
    await client.admin.create_topic("orders", queues=1)
    with pytest.raises(OutOfOrderSequenceError, match="does not know"):
        await producer.send(Message("orders", b"1"), queue=QUEUE)
    # One without an id of the caller's begins anew by itself.
    own = client.producer(idempotent=True)
    assert (await own.send(Message("orders", b"2"), queue=QUEUE)).offset == 0


async def test_oneway_is_refused(client: Client) -> None:
    with pytest.raises(UsageError, match="acknowledgements"):
        await client.producer(idempotent=True).send_oneway(Message("orders", b"x"))


async def test_blocking_face(bootstrap: str) -> None:
    def work() -> None:
        with sockets.Client(bootstrap) as client:
            client.admin.create_topic("orders", queues=1)
            config = ProducerConfig(idempotent=True, producer_id=7)
            producers = [client.producer(config) for _ in range(2)]
            for producer in producers:
                first = producer.send(Message("orders", b"0"), queue=QUEUE)
                batch = producer.send_batch([Message("orders", b"1")] * 500, queue=QUEUE)
                assert (first.offset, batch.offset) == (0, 1)
                assert batch.stored_id.count(",") == 499
            (bounds,) = client.admin.topic_bounds("orders")
            assert bounds.max_offset == 501
            with pytest.raises(UsageError, match="acknowledgements"):
                producers[0].send_oneway(Message("orders", b"x"))

    await asyncio.to_thread(work)


@pytest.mark.processes
@pytest.mark.full
async def test_killed_broker_stores_nothing_twice(tmp_path: Path) -> None:
    """Producers that know nothing of the kills: every message once, each queue in order."""
    with closing(ChaosBroker(tmp_path)) as broker:
        broker.start()
        await asyncio.to_thread(broker.wait)
        async with Client(f"127.0.0.1:{broker.rocketmq_port + 2}") as client:
            await client.admin.create_topic("orders", queues=2)
            producer = client.producer(idempotent=True)
            sent: list[bytes] = []
            waiting: list[asyncio.Task[object]] = []
            for kill in range(KILLS):
                for number in range(100 * kill, 100 * kill + 100):
                    sent.append(b"%06d" % number)
                    queue = MessageQueue("orders", "shard-0", number % 2)
                    message = Message("orders", sent[-1])
                    waiting.append(asyncio.create_task(producer.send(message, queue=queue)))
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                await waiting[100 * kill + 20]  # some are stored, some on their way
                await asyncio.to_thread(broker.kill)
                broker.start()
                await asyncio.to_thread(broker.wait)
            await asyncio.gather(*waiting)
            for number in range(2):
                queue = MessageQueue("orders", "shard-0", number)
                assert await bodies(client, queue) == sent[number::2]
        assert broker.stop() == 0
