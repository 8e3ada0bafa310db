"""Administration against a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.errors import HidesMessagesError as BrokerHidesMessagesError
from imago_broker.model.topics.topics import TopicConfig
from imago_client import (
    BrokerError,
    Client,
    ConsumerConfig,
    HidesMessagesError,
    Message,
    MessageQueue,
    NoRouteError,
    NoTopicError,
    ResetTo,
    StartFrom,
    TopicExistsError,
    UsageError,
)
from imago_client.core.administration import topic_changes
from imago_client.core.effects import Pause
from imago_testing.peers.client_scripts import ScriptedServers, response
from imago_wire.hot import make_entry
from imago_wire.remoting.bodies.config import (
    SubscriptionGroupConfig,
    TopicConfigSerializeWrapper,
)
from imago_wire.remoting.bodies.config import TopicConfig as WireTopicConfig
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.app import Broker
    from imago_client import ReceivedMessage
    from imago_client.core.effects import Operation, Request
    from imago_wire.remoting.command import RemotingCommand

QUEUE = MessageQueue("orders", "shard-0", 0)


async def test_shards_are_listed_with_their_addresses(client: Client, broker: Broker) -> None:
    (shard,) = await client.admin.shards()
    assert (shard.shard, shard.addresses) == ("shard-0", {0: f"127.0.0.1:{broker.rocketmq_port}"})


async def test_topic_can_be_sent_to_at_once_after_it_was_made_or_widened(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    assert len(await client.pull_consumer("g").queues("orders")) == 1
    assert await client.admin.alter_topic("orders", queues=3) == 0
    assert len(await client.pull_consumer("g").queues("orders")) == 3


async def test_topic_bounds_follow_what_is_stored(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await client.producer().send_batch([Message("orders", b"x")] * 7)
    (bounds,) = await client.admin.topic_bounds("orders")
    assert (bounds.queue, bounds.min_offset, bounds.max_offset) == (QUEUE, 0, 7)
    assert bounds.updated_ms > 0
    assert bounds.size_bytes is None
    (sized,) = await client.admin.topic_bounds("orders", sizes=True)
    assert sized.size_bytes is not None
    assert 7 * 100 < sized.size_bytes < 7 * 400


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
    with pytest.raises(UsageError, match="1 to 65536"):
        await client.admin.create_topic("orders", queues=0)
    with pytest.raises(BrokerError):
        await client.admin.create_topic("TBW102", queues=1)


async def filled(client: Client, queues: int, count: int) -> None:
    """Make a topic and put as many messages into each of its queues."""
    await client.admin.create_topic("orders", queues=queues)
    for number in range(queues):
        queue = MessageQueue("orders", "shard-0", number)
        for _ in range(count):
            await client.producer().send(Message("orders", b"x"), queue=queue)


async def test_topic_that_is_there_is_no_other_than_asked_for(client: Client) -> None:
    level = {"acknowledgement": "leader-fsync"}
    await client.admin.create_topic("orders", queues=8, attributes=level)
    await client.admin.create_topic("orders")
    await client.admin.create_topic("orders", queues=8, perm=6, attributes=level)
    for other, said in [
        ({"queues": 4}, "8 queues"),
        ({"perm": 4}, "perm 6"),
        ({"attributes": {"acknowledgement": "leader"}}, "acknowledgement=leader-fsync"),
        ({"attributes": {"retention.ms": "60000"}}, "no retention.ms"),
    ]:
        with pytest.raises(TopicExistsError, match=said):
            await client.admin.create_topic("orders", **other)  # type: ignore[arg-type]
    with pytest.raises(TopicExistsError, match="the topic orders exists already"):
        await client.admin.create_topic("orders", queues=8, exist_ok=False)
    assert len(await client.pull_consumer("g").queues("orders")) == 8


async def test_what_is_not_named_stays(client: Client, broker: Broker) -> None:
    await filled(client, 8, 10)
    assert await client.admin.alter_topic("orders", attributes={"retention.ms": "60000"}) == 0
    topic = broker.topics.get("orders")
    assert topic is not None
    assert (topic.read_queues, topic.write_queues, topic.retention_ms) == (8, 8, 60_000)
    assert sum(one.max_offset for one in await client.admin.topic_bounds("orders")) == 80
    with pytest.raises(NoTopicError, match="there is no topic ordrs"):
        await client.admin.alter_topic("ordrs", queues=4)


async def test_queues_with_messages_go_only_when_that_is_asked_for(
    client: Client, broker: Broker
) -> None:
    await filled(client, 8, 10)
    with pytest.raises(HidesMessagesError, match="4 of its 8 queues left to read, 40 messages"):
        await client.admin.alter_topic("orders", queues=4)
    assert len(await client.pull_consumer("g").queues("orders")) == 8
    assert await client.admin.alter_topic("orders", queues=4, hide_messages=True) == 40
    assert len(await client.pull_consumer("g").queues("orders")) == 4
    assert broker.store.queue_range("orders", 7) == (0, 10)


async def test_broker_looks_for_itself_when_it_makes_the_change(
    client: Client, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages may come after whoever asks has looked, and stand in no log yet."""

    def saw_nothing(*_: object) -> Operation[None]:
        yield Pause(0)

    await client.admin.create_topic("orders", queues=2)
    monkeypatch.setattr(topic_changes, "_refuse_hiding", saw_nothing)
    await client.producer().send(
        Message("orders", b"x"), queue=MessageQueue("orders", "shard-0", 1)
    )
    with pytest.raises(HidesMessagesError, match="1 message would be hidden"):
        await client.admin.alter_topic("orders", queues=1)
    entry = make_entry(broker.store.tail("orders", 1), b"x", b"", born_ms=1, born_host=bytes(8))
    broker.messages.put_one(entry, None, lambda *_: None, None)
    with pytest.raises(BrokerHidesMessagesError, match="2 messages would be hidden"):
        broker.topics.create_or_update(TopicConfig(name="orders", read_queues=1, write_queues=1))


def test_settings_are_found_where_a_broker_knows_only_how_to_tell_all() -> None:
    """RocketMQ 4.9 has no request for the settings of one topic."""
    table = TopicConfigSerializeWrapper(
        topic_config_table={"orders": WireTopicConfig(topic_name="orders", write_queue_nums=7)}
    )

    def brokers(request: Request) -> RemotingCommand:
        if request.code == RequestCode.GET_TOPIC_CONFIG:
            return response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="request type 351")
        assert request.code == RequestCode.GET_ALL_TOPIC_CONFIG
        return response(body=table.encode())

    world = ScriptedServers(brokers=brokers)
    living = {"a": "a:1"}
    found = world.run(topic_changes._configs(world.state, "orders", living))
    assert found["a"].write_queue_nums == 7
    assert world.run(topic_changes._configs(world.state, "refunds", living)) == {}
