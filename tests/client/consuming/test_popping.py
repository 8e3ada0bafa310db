"""POP with the client: receipts, times, tags and filters, several shards, changes of master."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_client import BrokerError, Client, Message, PoppedMessage, Sql, UsageError
from imago_client.blocking import Client as BlockingClient
from imago_client.core.consuming import popping
from imago_client.core.consuming.subscriptions import subscribe
from imago_client.errors import AnswerError, ConnectionLostError, NoMasterError, NoRouteError
from imago_testing.peers.client_scripts import ScriptedServers, response
from imago_testing.peers.features import pop_of
from imago_wire.records.record import QueueTail, RecordBuilder, host_bytes, make_entry
from imago_wire.remoting.bodies.pop import BatchAckMessageRequestBody
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.pop import (
    ChangeInvisibleTimeResponseHeader,
    PopMessageResponseHeader,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.app import Broker
    from imago_client import PopConsumer
    from imago_client.core.effects import Request
    from imago_wire.remoting.command import RemotingCommand

GENEROUS_S = 50.0


async def fill(client: Client, count: int, topic: str = "orders", queues: int = 2) -> list[bytes]:
    await client.admin.create_topic(topic, queues=queues)
    producer = client.producer()
    bodies = [b"%d" % number for number in range(count)]
    for body in bodies:
        await producer.send(Message(topic, body, tags="even" if int(body) % 2 == 0 else "odd"))
    return bodies


async def pop_until(
    consumer: PopConsumer, wanted: Callable[[list[PoppedMessage]], bool], **how: object
) -> list[PoppedMessage]:
    found: list[PoppedMessage] = []
    async with asyncio.timeout(GENEROUS_S):
        while not wanted(found):
            found += await consumer.pop("orders", poll_s=1.0, **how)  # type: ignore[arg-type]
    return found


async def test_each_message_is_given_to_one_until_it_is_acknowledged(client: Client) -> None:
    bodies = await fill(client, 70)
    one, other = client.pop_consumer("G"), client.pop_consumer("G")
    first = await one.pop("orders")
    second = await pop_until(other, lambda found: len(first) + len(found) == 70)
    assert len(first) <= 32
    assert sorted(message.body for message in (*first, *second)) == sorted(bodies)
    assert await one.pop("orders") == []
    await one.acknowledge(first)
    await other.acknowledge(second[:1])
    await other.acknowledge(second[1:])
    assert await one.pop("orders") == []
    progress = (await client.admin.describe_group("G")).progress
    assert sum(queue.lag for queue in progress) == 0


async def test_what_is_not_acknowledged_comes_again_and_its_old_receipt_counts_no_more(
    client: Client,
) -> None:
    await fill(client, 1)
    consumer = client.pop_consumer("G")
    (message,) = await pop_until(consumer, bool, invisible_s=0.05)
    assert (message.body, message.reconsume_times) == (b"0", 0)
    (again,) = await pop_until(consumer, bool)
    assert (again.body, again.reconsume_times) == (b"0", 1)
    await consumer.acknowledge([message])
    with pytest.raises(BrokerError, match="does not count") as caught:
        await consumer.postpone(message, 1.0)
    assert caught.value.code == ResponseCode.NO_MESSAGE
    later = await consumer.postpone(again, 60.0)
    with pytest.raises(BrokerError, match="does not count"):
        await consumer.postpone(again, 60.0)
    back = await consumer.postpone(later, 0.0)
    assert back.receipt != later.receipt
    (third,) = await pop_until(consumer, bool)
    assert third.reconsume_times == 2
    await consumer.acknowledge([third])


async def test_tags_and_filters_select(client: Client) -> None:
    await fill(client, 10)
    by_tag, by_filter = client.pop_consumer("T"), client.pop_consumer("S")
    even = await pop_until(by_tag, lambda found: len(found) == 5, tags="even")
    odd = await pop_until(by_filter, lambda found: len(found) == 5, tags=Sql("TAGS = 'odd'"))
    assert {message.tags for message in even} == {"even"}
    assert {message.tags for message in odd} == {"odd"}


async def test_in_order_gives_nothing_of_a_queue_while_messages_are_out(client: Client) -> None:
    await fill(client, 3, queues=1)
    consumer = client.pop_consumer("G")
    (first,) = await consumer.pop("orders", messages_max=1, in_order=True)
    assert await consumer.pop("orders", messages_max=1, in_order=True) == []
    await consumer.acknowledge([first])
    (second,) = await consumer.pop("orders", messages_max=1, in_order=True)
    assert (first.body, second.body) == (b"0", b"1")


async def test_waiting_pop_hears_of_an_arrival(client: Client) -> None:
    await fill(client, 0)
    consumer = client.pop_consumer("G")
    waiting = asyncio.create_task(consumer.pop("orders", poll_s=GENEROUS_S))
    await asyncio.sleep(0.05)
    await client.producer().send(Message("orders", b"new"))
    assert [message.body for message in await waiting] == [b"new"]


async def test_blocking_consumer_pops_acknowledges_and_postpones(
    client: Client, bootstrap: str, broker: Broker
) -> None:
    await fill(client, 3, queues=1)

    def work() -> None:
        with BlockingClient(bootstrap) as blocking:
            consumer = blocking.pop_consumer("G")
            first, second, third = consumer.pop("orders", poll_s=GENEROUS_S)
            consumer.acknowledge([first])
            consumer.postpone(second, 0.0)
            (again,) = consumer.pop("orders", poll_s=GENEROUS_S)
            assert (again.body, again.reconsume_times) == (second.body, 1)
            consumer.acknowledge([again, third])
            assert consumer.pop("orders") == []

    await asyncio.to_thread(work)
    assert pop_of(broker).service.counts.acknowledged == 3


async def test_what_makes_no_sense_is_refused_before_it_is_sent(client: Client) -> None:
    consumer = client.pop_consumer("G")
    for wrong in (
        {"messages_max": 33},
        {"messages_max": 0},
        {"invisible_s": 0.0},
        {"invisible_s": 8 * 86_400.0},
        {"poll_s": -1.0},
    ):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            await consumer.pop("orders", **wrong)
    with pytest.raises(UsageError, match="consumer group"):
        client.pop_consumer("a b")
    with pytest.raises(NoRouteError):
        await consumer.pop("nowhere")


# Several shards and changes of master, without brokers.


def given(*offsets: int) -> RemotingCommand:
    """Return the answer to a POP that these messages of queue 0 came with."""
    host, body = host_bytes("127.0.0.1", 1), b""
    for offset in offsets:
        tail = QueueTail(b"orders", 0, dual=False, next_offset=offset)
        entry = make_entry(tail, b"%d" % offset, b"", born_ms=1, born_host=host)
        body += bytes(RecordBuilder(host, 1, 0).build([entry], 0, 4096, 1, 1 << 30)[0])
    header = PopMessageResponseHeader(
        pop_time=7,
        invisible_time=60_000,
        revive_qid=0,
        rest_num=0,
        start_offset_info=f"0 0 {offsets[0]}",
        msg_offset_info=f"0 0 {','.join(map(str, offsets))}",
    )
    return response(0, header, body=body)


NOTHING = response(ResponseCode.POLLING_TIMEOUT)


def asked(poll_s: float = 0.0, tags: str = "*") -> popping.PopArguments:
    return popping.PopArguments(
        group="G",
        subscription=subscribe("orders", tags, 1),
        messages_max=32,
        invisible_s=60.0,
        poll_s=poll_s,
        in_order=False,
        from_end=False,
    )


def popping_in(world: ScriptedServers, poll_s: float = 0.0, tags: str = "*") -> list[PoppedMessage]:
    return world.run(popping.pop(world.state, asked(poll_s, tags), popping.ShardRotation(0)))


def pops(world: ScriptedServers) -> list[tuple[str, str]]:
    """Return whom a POP was sent to, and how long it might wait there."""
    return [
        (one.address, one.header.to_ext()["pollTime"])
        for one in world.asked(RequestCode.POP_MESSAGE)
        if one.header is not None
    ]


def test_every_shard_is_asked_at_once_then_waited_at_in_turn() -> None:
    world = ScriptedServers()

    def brokers(request: Request) -> RemotingCommand:
        assert request.header is not None
        world.now_s += int(request.header.to_ext()["pollTime"]) / 1000
        return given(4) if len(pops(world)) == 5 else NOTHING

    world.brokers = brokers
    (message,) = popping_in(world, poll_s=30.0)
    assert (message.offset, message.queue.shard) == (4, "b")
    share = f"{round(popping.SHARE_S * 1000)}"
    assert pops(world)[:2] == [("b:1", "0"), ("a:1", "0")]
    assert sorted(pops(world)[2:4]) == [("a:1", share), ("b:1", share)]


def test_the_only_shard_is_waited_at_for_the_whole_time() -> None:
    world = ScriptedServers(shards={"a": "a:1"}, brokers=lambda _: given(0))
    popping_in(world, poll_s=30.0)
    assert pops(world) == [("a:1", "30000")]


def test_shard_without_a_master_is_passed_over() -> None:
    world = ScriptedServers(shards={"a": "a:1"}, placed={"b"}, brokers=lambda _: given(3))
    for _ in range(2):
        assert [message.offset for message in popping_in(world)] == [3]
    world.brokers = lambda _: NOTHING
    assert popping_in(world) == []


def test_master_is_waited_for_where_no_shard_has_one() -> None:
    world = ScriptedServers(brokers=lambda request: ConnectionLostError(request.address, "reset"))
    with pytest.raises(ConnectionLostError):
        popping_in(world)
    assert sum(world.pauses) >= world.state.config.failover_timeout_s
    world = ScriptedServers(shards={}, placed={"a"})
    with pytest.raises(NoMasterError):
        popping_in(world)


def test_refusal_is_raised_and_a_full_broker_is_asked_later() -> None:
    refused = response(ResponseCode.NO_PERMISSION, remark="no")
    with pytest.raises(BrokerError, match="no"):
        popping_in(ScriptedServers(brokers=lambda _: refused))
    world = ScriptedServers(brokers=lambda _: response(ResponseCode.POLLING_FULL))
    assert popping_in(world, poll_s=3.0) == []
    assert sum(world.pauses) >= 3.0
    assert len(world.pauses) < 10, "it is not pressed"


def test_messages_that_only_hash_like_the_tag_are_done_with() -> None:
    world = ScriptedServers(shards={"a": "a:1"}, brokers=lambda _: given(1, 2))
    assert popping_in(world, tags="paid") == []
    (ack,) = world.asked(RequestCode.BATCH_ACK_MESSAGE)
    (one,) = BatchAckMessageRequestBody.decode(ack.body).acks
    assert one.offsets() == [1, 2]


def test_acknowledgements_go_to_each_shard_once_whatever_master_it_has() -> None:
    answers = {"a:1": given(1, 2), "b:1": given(9)}
    world = ScriptedServers(brokers=lambda request: answers[request.address])
    turns = popping.ShardRotation(0)
    messages = [
        message for _ in range(2) for message in world.run(popping.pop(world.state, asked(), turns))
    ]
    assert len(messages) == 3

    def moved(request: Request) -> RemotingCommand:
        world.shards["a"] = "a:2"
        is_old = request.address == "a:1"
        return response(ResponseCode.SERVICE_NOT_AVAILABLE if is_old else 0)

    world.brokers = moved
    world.run(popping.acknowledge(world.state, "G", messages))
    batches = [one.address for one in world.asked(RequestCode.BATCH_ACK_MESSAGE)]
    assert batches == ["a:1", "a:2"]
    assert [one.address for one in world.asked(RequestCode.ACK_MESSAGE)] == ["b:1"]


def test_new_receipt_names_the_message_alone() -> None:
    world = ScriptedServers(shards={"a": "a:1"}, brokers=lambda _: given(1, 2))
    _, message = popping_in(world)
    changed = ChangeInvisibleTimeResponseHeader(pop_time=8, invisible_time=5, revive_qid=0)
    world.brokers = lambda _: response(0, changed)
    later = world.run(popping.postpone(world.state, "G", message, 0.005))
    assert str(message.receipt) == "1 7 60000 0 0 a 0 2"
    assert str(later.receipt) == "2 8 5 0 0 a 0 2"
    world.brokers = lambda _: response(0)
    with pytest.raises(AnswerError):
        world.run(popping.postpone(world.state, "G", message, 0.005))


@pytest.mark.parametrize("info", ["0 0", "0 x 1", "0 0 x", None])
def test_answer_without_offsets_is_an_error(info: str | None) -> None:
    answer = given(1)
    answer.ext["startOffsetInfo"] = info or ""
    with pytest.raises(AnswerError):
        popping_in(ScriptedServers(brokers=lambda _: answer))
