"""The asyncio producer and pull consumer against a broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_client import (
    BrokerError,
    Client,
    Message,
    MessageQueue,
    NoRouteError,
    ProducerConfig,
    PullStatus,
    SendStatus,
)

if TYPE_CHECKING:
    from imago_client import PullConsumer, ReceivedMessage


async def everything(consumer: PullConsumer, topic: str) -> list[ReceivedMessage]:
    """Return all messages of a topic, queue by queue."""
    found: list[ReceivedMessage] = []
    for queue in await consumer.queues(topic):
        offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
        while offset < end:
            pulled = await consumer.pull(queue, offset)
            assert pulled.status is PullStatus.FOUND
            found += pulled.messages()
            offset = pulled.next_offset
    return found


async def test_message_comes_back_as_it_was_sent(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    sent = Message("orders", b"\x00\xffbody", tags="paid", keys=("a", "b"), properties={"p": "ü"})
    result = await client.producer().send(sent)
    assert (result.status, result.offset) == (SendStatus.OK, 0)
    assert result.queue == MessageQueue("orders", "shard-0", 0)
    (found,) = await everything(client.pull_consumer("g"), "orders")
    assert (found.body, found.tags, found.keys) == (sent.body, "paid", ("a", "b"))
    assert found.properties["p"] == "ü"
    assert (found.message_id, found.stored_id) == (result.message_id, result.stored_id)


async def test_first_send_creates_the_topic(client: Client) -> None:
    producer = client.producer(ProducerConfig(queues_by_default=2))
    results = [await producer.send(Message("new", b"x")) for _ in range(4)]
    assert {result.queue.queue_id for result in results} == {0, 1}
    assert "new" in await client.admin.topics()


async def test_many_sends_at_once_are_all_stored_once(client: Client) -> None:
    await client.admin.create_topic("orders", queues=4)
    producer = client.producer()
    bodies = [b"%d" % number for number in range(500)]
    await asyncio.gather(*(producer.send(Message("orders", body)) for body in bodies))
    found = await everything(client.pull_consumer("g"), "orders")
    assert sorted(message.body for message in found) == sorted(bodies)


async def test_ordering_key_keeps_order_in_one_queue(client: Client) -> None:
    await client.admin.create_topic("orders", queues=4)
    producer = client.producer()
    for number in range(20):
        await producer.send(Message("orders", b"%d" % number, ordering_key="k"))
    found = await everything(client.pull_consumer("g"), "orders")
    assert [message.body for message in found] == [b"%d" % number for number in range(20)]
    assert len({message.queue for message in found}) == 1


async def test_batch_is_stored_as_single_messages(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    messages = [Message("orders", b"%d" % number, tags=f"t{number}") for number in range(100)]
    result = await client.producer().send_batch(messages)
    assert (result.offset, len(result.stored_id.split(","))) == (0, 100)
    found = await everything(client.pull_consumer("g"), "orders")
    assert [(one.body, one.tags) for one in found] == [(one.body, one.tags) for one in messages]
    assert found[0].message_id == result.message_id


async def test_oneway_message_arrives(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    queue = await client.producer().send_oneway(Message("orders", b"x"))
    pulled = await client.pull_consumer("g").pull(queue, 0, poll_s=10)
    assert [message.body for message in pulled.messages()] == [b"x"]


async def test_compressed_body_is_inflated_for_the_consumer(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    producer = client.producer(ProducerConfig(compress_over_bytes=100))
    await producer.send(Message("orders", b"a" * 10_000))
    (found,) = await everything(client.pull_consumer("g"), "orders")
    assert found.body == b"a" * 10_000
    assert found.stored.sys_flag & 1


async def test_refusal_carries_the_brokers_words(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    nowhere = MessageQueue("orders", "shard-0", 77)
    with pytest.raises(BrokerError, match="queueId") as caught:
        await client.producer().send(Message("orders", b"x"), queue=nowhere)
    assert caught.value.code in (1, 29)


async def test_reading_an_unknown_topic_says_how_to_make_it(client: Client) -> None:
    with pytest.raises(NoRouteError, match="imago topic create nothing"):
        await client.pull_consumer("g").queues("nothing")


async def test_bulk_pull_brings_more_than_a_normal_one(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    bodies = [bytes([number % 256]) * 1000 for number in range(1000)]
    await client.producer().send_batch([Message("orders", body) for body in bodies])
    consumer = client.pull_consumer("g")
    (queue,) = await consumer.queues("orders")
    normal = await consumer.pull(queue, 0, messages_max=10_000)
    bulk = await consumer.pull(queue, 0, messages_max=10_000, bulk_bytes=4 << 20)
    assert normal.next_offset < 300
    assert bulk.next_offset == 1000
    assert [message.body for message in bulk.messages()] == bodies


async def test_pull_tells_what_there_is_when_the_offset_is_wrong(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await client.producer().send(Message("orders", b"x"))
    consumer = client.pull_consumer("g")
    (queue,) = await consumer.queues("orders")
    nothing_new = await consumer.pull(queue, 1)
    assert (nothing_new.status, nothing_new.next_offset) == (PullStatus.NO_NEW_MESSAGE, 1)
    beyond = await consumer.pull(queue, 10)
    assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 1)


async def test_pull_by_tag_passes_over_the_others(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    producer = client.producer()
    for tag in ("a", "b", "a", "c"):
        await producer.send(Message("orders", tag.encode(), tags=tag))
    consumer = client.pull_consumer("g")
    (queue,) = await consumer.queues("orders")
    pulled = await consumer.pull(queue, 0, tags="a || c")
    assert [message.tags for message in pulled.messages()] == ["a", "a", "c"]


async def test_held_pull_is_answered_by_the_next_message(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    consumer = client.pull_consumer("g")
    (queue,) = await consumer.queues("orders")
    waiting = asyncio.create_task(consumer.pull(queue, 0, poll_s=20))
    await client.producer().send(Message("orders", b"now"))
    pulled = await asyncio.wait_for(waiting, 50)
    assert [message.body for message in pulled.messages()] == [b"now"]


async def test_committed_offsets_belong_to_the_group(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await client.producer().send_batch([Message("orders", b"x")] * 3)
    (queue,) = await client.pull_consumer("g").queues("orders")
    await client.pull_consumer("g").commit(queue, 2)
    assert await client.pull_consumer("g").committed(queue) == 2
    assert await client.pull_consumer("other").committed(queue) in (None, 0)


async def test_offset_by_time(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await client.producer().send(Message("orders", b"x"))
    consumer = client.pull_consumer("g")
    (queue,) = await consumer.queues("orders")
    (message,) = (await consumer.pull(queue, 0)).messages()
    assert await consumer.offset_at(queue, message.stored.store_ms) == 0
    assert await consumer.offset_at(queue, message.stored.store_ms + 1) == 1
