"""Administration against a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_client import (
    BrokerError,
    Client,
    ConsumerConfig,
    Message,
    MessageQueue,
    NoRouteError,
    ResetTo,
    StartFrom,
    UsageError,
)
from imago_wire.remoting.bodies_config import SubscriptionGroupConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.app import Broker
    from imago_client import ReceivedMessage

QUEUE = MessageQueue("orders", "shard-0", 0)


async def test_shards_are_listed_with_their_addresses(client: Client, broker: Broker) -> None:
    (shard,) = await client.admin.shards()
    assert (shard.shard, shard.addresses) == ("shard-0", {0: f"127.0.0.1:{broker.rocketmq_port}"})


async def test_topic_can_be_sent_to_at_once_after_it_was_made_or_widened(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    assert len(await client.pull_consumer("g").queues("orders")) == 1
    await client.admin.create_topic("orders", queues=3)
    assert len(await client.pull_consumer("g").queues("orders")) == 3


async def test_topic_bounds_follow_what_is_stored(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await client.producer().send_batch([Message("orders", b"x")] * 7)
    (bounds,) = await client.admin.topic_bounds("orders")
    assert (bounds.queue, bounds.min_offset, bounds.max_offset) == (QUEUE, 0, 7)
    assert bounds.updated_ms > 0


async def test_deleted_topic_is_gone(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await client.admin.delete_topic("orders")
    assert "orders" not in await client.admin.topics()
    with pytest.raises(NoRouteError):
        await client.admin.topic_bounds("orders")


async def test_messages_are_found_by_key_and_by_id(client: Client) -> None:
    await client.admin.create_topic("orders", queues=2)
    producer = client.producer()
    result = await producer.send(Message("orders", b"wanted", keys=("k1", "k2")))
    await producer.send(Message("orders", b"other", keys=("k3",)))
    for key in ("k1", "k2", result.message_id):
        (found,) = await client.admin.messages_by_key("orders", key)
        assert found.body == b"wanted"
    assert await client.admin.messages_by_key("orders", "unknown") == []


async def test_group_is_described_while_a_member_runs(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await client.producer().send_batch([Message("orders", b"x")] * 3)

    async def handler(messages: Sequence[ReceivedMessage]) -> None:
        assert messages

    config = ConsumerConfig(group="g", start_from=StartFrom.EARLIEST)
    async with client.push_consumer(config, {"orders": "a || b"}, handler):
        described = await client.admin.describe_group("g")
    assert [member.language for member in described.members] == ["PYTHON"]
    assert described.subscriptions == {"%RETRY%g": "*", "orders": "a || b"}
    after = await client.admin.describe_group("g")
    assert after.members == ()
    assert {one.queue: one.lag for one in after.progress}[QUEUE] == 0


async def test_groups_are_made_listed_and_deleted(client: Client) -> None:
    await client.admin.create_group(SubscriptionGroupConfig(group_name="g", retry_max_times=3))
    assert (await client.admin.groups())["g"].retry_max_times == 3
    await client.admin.delete_group("g")
    assert "g" not in await client.admin.groups()


async def test_reset_moves_a_group_that_nobody_is_in(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await client.producer().send_batch([Message("orders", b"x")] * 5)
    consumer = client.pull_consumer("g")
    (message, *_) = (await consumer.pull(QUEUE, 0)).messages()
    for to, offset in (
        (ResetTo.LATEST, 5),
        (ResetTo.EARLIEST, 0),
        (message.stored.store_ms + 10_000, 5),
        (message.stored.store_ms, 0),
    ):
        assert await client.admin.reset_group("g", "orders", to) == {QUEUE: offset}
        assert await consumer.committed(QUEUE) == offset


async def test_refusals_are_raised(client: Client) -> None:
    with pytest.raises(UsageError, match="only letters"):
        await client.admin.create_topic("no spaces", queues=1)
    with pytest.raises(UsageError, match="at least 1"):
        await client.admin.create_topic("orders", queues=0)
    with pytest.raises(BrokerError):
        await client.admin.create_topic("TBW102", queues=1)
