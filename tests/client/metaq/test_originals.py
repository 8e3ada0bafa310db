"""Our clients against the original brokers: what we take for the protocol is what they speak."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from imago_client import (
    Client,
    ConsumerConfig,
    Message,
    ProducerConfig,
    ResetTo,
    RetryLater,
    SendStatus,
    StartFrom,
)
from imago_client.blocking import Client as BlockingClient
from imago_client.metaq import MetaqClient, MetaqConsumerConfig, MetaqError
from imago_spark.columns.decode import decode_batches
from imago_spark.schema import ALL
from imago_testing.java.originals import metaq_original, rocketmq_original
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from imago_client import ReceivedMessage
    from imago_client.metaq import MetaqMessage
    from imago_client.received import Pulled

pytestmark = [pytest.mark.interop, pytest.mark.processes]

BODIES = [b"%d" % number for number in range(50)]


@pytest.fixture(scope="module", params=[pytest.param(4, marks=pytest.mark.full), 5])
def rocketmq(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The name service of an original RocketMQ."""
    folder = tmp_path_factory.mktemp(f"rocketmq-{request.param}")
    with rocketmq_original(folder, request.param) as broker:
        yield broker.registry


async def until_a_broker_is_there(client: Client) -> None:
    async with asyncio.timeout(60):
        while not await client.admin.shards():  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.2)


async def test_rocketmq_takes_gives_retries_and_administers(rocketmq: str) -> None:
    got: list[ReceivedMessage] = []
    everything = asyncio.Event()

    async def handler(messages: Sequence[ReceivedMessage]) -> None:
        if messages[0].body == b"7" and messages[0].reconsume_times == 0:
            raise RetryLater(delay_level=1)
        got.extend(messages)
        if len(got) == len(BODIES) + 2:
            everything.set()

    async with Client(rocketmq) as client:
        await until_a_broker_is_there(client)
        await client.admin.create_topic("orders", queues=2)
        producer = client.producer(ProducerConfig(compress_over_bytes=100))
        sent = await producer.send(Message("orders", b"single", tags="t", keys=("key",)))
        assert sent.status is SendStatus.OK
        await producer.send_batch([Message("orders", body) for body in BODIES])
        await producer.send(Message("orders", b"z" * 5000))
        assert (await producer.send(Message("made-by-sending", b"x"))).offset == 0

        config = ConsumerConfig(group="readers", start_from=StartFrom.EARLIEST)
        async with client.push_consumer(config, ["orders"], handler):
            await asyncio.wait_for(everything.wait(), 60)
            (member,) = (await client.admin.describe_group("readers")).members
            assert member.language == "PYTHON"
        assert sorted(message.body for message in got) == sorted([*BODIES, b"single", b"z" * 5000])
        assert [one.reconsume_times for one in got if one.body == b"7"] == [1]
        described = await client.admin.describe_group("readers")
        assert {one.lag for one in described.progress} == {0}
        (found,) = await client.admin.messages_by_key("orders", "key")
        assert (found.body, found.stored_id) == (b"single", sent.stored_id)
        moved = await client.admin.reset_group("readers", "orders", ResetTo.EARLIEST)
        assert set(moved.values()) == {0}


async def test_rocketmqs_records_decode_as_rows(rocketmq: str) -> None:
    def work() -> None:
        with BlockingClient(rocketmq) as client:
            client.admin.create_topic("rows", queues=1)
            messages = [Message("rows", body, tags="t", keys=("k",)) for body in BODIES]
            client.producer().send_batch(messages)
            consumer = client.pull_consumer("rows")
            (queue,) = consumer.queues("rows")
            # 4.9 acknowledges before its queues show the message.
            wait_until(
                lambda: consumer.max_offset(queue) == len(BODIES), seconds_max=60, what="dispatch"
            )
            # It knows nothing of bulk pulls, and answers with what it answers everybody.
            pieces = list(consumer.scan(queue, 0, len(BODIES)))
            assert len(pieces) > 1
            rows = [row for piece in pieces for row in rows_of(piece)]
        assert [row["value"] for row in rows] == BODIES
        assert {(row["key"], row["tags"], row["metaq_offset"]) for row in rows} == {
            ("k", "t", None)
        }

    await asyncio.to_thread(work)


def rows_of(piece: Pulled) -> list[dict[str, Any]]:
    batches = decode_batches(piece.body, piece.queue, ALL, end_offset=1 << 60)
    return [row for batch in batches for row in batch.to_pylist()]


async def until_it_takes(client: MetaqClient) -> None:
    """The original refuses puts for a moment while it is still registering its topics."""
    async with asyncio.timeout(60):
        while True:
            try:
                await client.producer().send("orders", b"first", partition=1)
            except MetaqError:
                await asyncio.sleep(0.2)
            else:
                return


@pytest.mark.full
async def test_metaq_takes_and_gives(tmp_path: Path) -> None:
    got: list[MetaqMessage] = []
    everything = asyncio.Event()

    async def handler(message: MetaqMessage) -> None:
        if message.partition.number == 0:
            got.append(message)
        if len(got) == len(BODIES):
            everything.set()

    with metaq_original(tmp_path, ["orders"]) as broker:
        async with MetaqClient(broker.url) as client:
            await until_it_takes(client)
            producer = client.producer()
            for body in BODIES:
                sent = await producer.send("orders", body, attribute="a", partition=0)
                assert sent.partition.number == 0
            config = MetaqConsumerConfig(group="readers", delay_s_max=1.0, partitions_s=0.5)
            async with client.consumer(config, ["orders"], handler):
                await asyncio.wait_for(everything.wait(), 60)
            (partition, (low, high)), _ = (await client.partitions("orders")).items()
    assert [message.payload for message in got] == BODIES
    assert {message.attribute for message in got} == {"a"}
    assert (low, high) == (0, got[-1].next_offset)
    assert got[-1].partition == partition
