"""The traffic of the demonstration: half the records in by each protocol, all out by both."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from imago_cli.demo.checks import ReadRecords
from imago_cli.messages.pace import Pace
from imago_cli.messages.side_by_side import side_by_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_cli.demo.records import DemoRecord
    from imago_client import ReceivedMessage
    from imago_client.metaq import MetaqMessage

TOPIC: Final = "debian-history"
METAQ_GROUP: Final = "demo-metaq"
ROCKETMQ_GROUP: Final = "demo-rocketmq"
READ_SECONDS_MAX: Final = 60.0
_METAQ_IN_FLIGHT: Final = 64
_BATCH_BYTES: Final = 64 << 10
_BATCHES_IN_FLIGHT: Final = 8


async def send_by_metaq(servers: str, records: Sequence[DemoRecord]) -> Pace:
    """Put every record, the kind as its attribute."""
    from imago_client.metaq import MetaqClient

    pace = Pace("put through MetaQ", len(records))
    left = iter(records)
    async with MetaqClient(servers) as client:
        producer = client.producer()

        async def work() -> None:
            for record in left:  # all workers share the iterator
                await producer.send(TOPIC, record.body, attribute=record.kind)
                pace.add(1, len(record.body))

        await side_by_side(work, _METAQ_IN_FLIGHT)
    pace.end()
    return pace


async def send_by_rocketmq(bootstrap: str, records: Sequence[DemoRecord]) -> Pace:
    """Send every record in batches, the kind as its tag, its key to look it up by."""
    from imago_client import Client, Message, batches

    pace = Pace("sent through RocketMQ", len(records))
    messages = [
        Message(TOPIC, record.body, tags=record.kind, keys=(record.key.replace(" ", "_"),))
        for record in records
    ]
    left = batches(messages, bytes_max=_BATCH_BYTES)
    async with Client(bootstrap) as client:
        producer = client.producer()

        async def work() -> None:
            for batch in left:  # all workers share the iterator
                await producer.send_batch(batch)
                pace.add(len(batch), sum(len(message.body) for message in batch))

        await side_by_side(work, _BATCHES_IN_FLIGHT)
    pace.end()
    return pace


async def read_by_metaq(servers: str, count: int) -> tuple[ReadRecords, Pace]:
    """Read the topic as a MetaQ group until `count` messages came, or it takes too long."""
    from imago_client.metaq import MetaqClient, MetaqConsumerConfig

    seen, pace, enough = ReadRecords("MetaQ group"), Pace("got by MetaQ", count), asyncio.Event()

    async def handler(message: MetaqMessage) -> None:
        seen.add(message.payload)
        pace.add(1, len(message.payload))
        if seen.count >= count:
            enough.set()

    config = MetaqConsumerConfig(group=METAQ_GROUP, delay_s_max=1.0)
    async with MetaqClient(servers) as client:
        async with client.consumer(config, [TOPIC], handler):
            await _until(enough)
        pace.end()
    return seen, pace


async def read_by_rocketmq(bootstrap: str, count: int) -> tuple[ReadRecords, Pace]:
    """Read the topic as a RocketMQ group until `count` messages came, or it takes too long."""
    from imago_client import Client, ConsumerConfig, StartFrom

    seen, pace, enough = (
        ReadRecords("RocketMQ group"),
        Pace("got by RocketMQ", count),
        asyncio.Event(),
    )

    async def handler(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            seen.add(message.body)
            pace.add(1, len(message.body))
        if seen.count >= count:
            enough.set()

    config = ConsumerConfig(
        group=ROCKETMQ_GROUP,
        start_from=StartFrom.EARLIEST,
        batch_messages_max=64,
        pull_messages_max=1000,
    )
    async with Client(bootstrap) as client, client.push_consumer(config, [TOPIC], handler):
        await _until(enough)
        pace.end()
    return seen, pace


async def _until(enough: asyncio.Event) -> None:
    """Wait; what is missing afterwards is for the checks to say."""
    try:
        async with asyncio.timeout(READ_SECONDS_MAX):
            await enough.wait()
    except TimeoutError:
        return
