"""What one protocol commits is what the other one reads: bodies, attribute and TAGS alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_client import Client, Message
from imago_client.metaq import MetaqClient, MetaqMessage, Xid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from imago_client.core.sending.transacting import Decision
    from imago_client.received import ReceivedMessage

XID = Xid(b"global")


@pytest.fixture
async def metaq(metaq_server: str, client: Client) -> AsyncIterator[MetaqClient]:
    await client.admin.create_topic("orders", queues=2)
    async with MetaqClient(metaq_server) as made:
        yield made


async def pulled(client: Client, tags: str) -> list[tuple[int, bytes, str | None]]:
    """Return what a RocketMQ consumer finds: queue, body, tags."""
    consumer, found = client.pull_consumer("g"), []
    for queue in await consumer.queues("orders"):
        answer = await consumer.pull(queue, 0, tags=tags)
        found += [(queue.queue_id, each.body, each.tags) for each in answer.messages()]
    return found


async def test_rocketmq_reads_what_metaqs_transactions_committed(
    metaq: MetaqClient, client: Client
) -> None:
    async with metaq.transaction() as transaction:
        await transaction.send("orders", b"one", partition=0, attribute="red")
        await transaction.send("orders", b"two", partition=1, attribute="blue")
    resource = metaq.xa_resource("q")
    for step in (resource.commit, resource.roll_back):
        await resource.begin(XID)
        await resource.send(XID, "orders", b"three", partition=1, attribute="red")
        assert await resource.prepare(XID)
        assert await pulled(client, "*") == [(0, b"one", "red"), (1, b"two", "blue")] + (
            [] if step == resource.commit else [(1, b"three", "red")]
        )
        await step(XID)
    assert await pulled(client, "red") == [(0, b"one", "red"), (1, b"three", "red")]


async def test_metaq_reads_what_rocketmqs_transactions_committed(
    metaq: MetaqClient, client: Client
) -> None:
    async def never(message: ReceivedMessage) -> Decision:
        raise AssertionError(message)

    async with client.transaction_producer("P", never) as producer:
        kept = await producer.begin(Message("orders", b"kept", tags="red"))
        dropped = await producer.begin(Message("orders", b"dropped", tags="red"))
        assert await metaq.partitions("orders") == {}
        await dropped.rollback()
        await kept.commit()
    found: list[MetaqMessage] = []
    for partition in await metaq.partitions("orders"):
        found += (await metaq.get(partition, 0, group="g")).messages()
    assert [(each.payload, each.attribute) for each in found] == [(b"kept", "red")]
