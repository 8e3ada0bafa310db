"""Messages of a group that the caller asks for, against a broker."""

from __future__ import annotations

import asyncio
import re
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from imago_client import (
    Client,
    ConsumerConfig,
    Message,
    MessageQueue,
    StartFrom,
    UsageError,
    blocking,
)
from imago_client.core.consuming import following
from imago_client.core.consuming.membership import KnownQueues
from imago_client.core.consuming.pulling import EndResponseHeader
from imago_client.core.lookup import find_route
from imago_testing.peers.client_scripts import ScriptedServers, response
from imago_wire.remoting.bodies.route import ClusterInfo, TopicList
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    from imago_client import PushConsumer, ReceivedMessage, Subscriber
    from imago_client.blocking.rocketmq.group import GroupConsumer
    from imago_client.core.effects import Request
    from imago_wire.remoting.command import RemotingCommand


def config(group: str = "g", **settings: object) -> ConsumerConfig:
    return ConsumerConfig(group=group, start_from=StartFrom.EARLIEST, **settings)  # type: ignore[arg-type]  # a table


async def fill(client: Client, count: int, queues: int = 1) -> None:
    await client.admin.create_topic("orders", queues=queues)
    producer = client.producer()
    for number in range(count):
        await producer.send(Message("orders", b"%d" % number))


async def take(subscription: Subscriber, count: int) -> list[bytes]:
    found = []
    async with asyncio.timeout(50):
        async for message in subscription:
            found.append(message.body)
            if len(found) == count:
                break
    return found


async def committed(client: Client, group: str = "g") -> list[int | None]:
    reader = client.pull_consumer(group)
    return [await reader.committed(queue) for queue in await reader.queues("orders")]


async def test_iterating_consumes_what_was_iterated_over(client: Client) -> None:
    await fill(client, 30)
    async with client.subscribe("orders", group=config()) as first:
        assert await take(first, 10) == [b"%d" % number for number in range(10)]
    assert await committed(client) == [10]
    second = client.subscribe("orders", group=config())
    assert await take(second, 20) == [b"%d" % number for number in range(10, 30)]
    await second.stop()  # who asked for no more after the last one may not have consumed it
    assert await committed(client) == [29]


async def test_a_pattern_takes_topics_that_are_there_and_those_that_come(client: Client) -> None:
    for name in ("orders-de", "refunds"):
        await client.admin.create_topic(name, queues=1)
        await client.producer().send(Message(name, name.encode()))
    settings = config(rebalance_s=0.05)
    gone = asyncio.Event()

    async def revoked(_: tuple[MessageQueue, ...]) -> None:
        gone.set()

    subscription = client.subscribe(pattern="orders-.*", group=settings, on_revoked=revoked)
    async with asyncio.timeout(50), subscription as messages:
        assert (await anext(messages)).body == b"orders-de"
        await client.admin.create_topic("orders-fr", queues=1)
        await client.producer().send(Message("orders-fr", b"before it was seen"))
        assert (await anext(messages)).body == b"before it was seen"
        assert {queue.topic for queue in messages.queues} >= {"orders-de", "orders-fr"}
        await client.admin.delete_topic("orders-de")
        await gone.wait()
        assert all(queue.topic != "orders-de" for queue in messages.queues)


async def make_anew(client: Client, count: int) -> None:
    await client.admin.delete_topic("orders")
    await fill(client, count)


@pytest.mark.parametrize("pattern", [None, "orders.*"])
async def test_a_topic_that_is_made_anew_is_read_from_its_beginning(
    client: Client, pattern: str | None
) -> None:
    await fill(client, 3)
    settings = config(rebalance_s=3600, error_pause_s=0.05)
    topics = None if pattern else "orders"
    subscription = client.subscribe(topics, pattern=pattern, group=settings)
    async with subscription as messages:
        assert await take(messages, 3) == [b"0", b"1", b"2"]
        await make_anew(client, 5)
        messages._consumer.rebalance_soon()
        found: set[bytes] = set()
        async with asyncio.timeout(50):
            async for message in messages:
                found.add(message.body)
                if len(found) == 5:
                    break


async def test_a_blocking_member_follows_a_pattern_too(client: Client, bootstrap: str) -> None:
    await client.admin.create_topic("orders-de", queues=1)

    def read() -> list[bytes]:
        settings = ConsumerConfig(group="g", rebalance_s=0.05)  # from the end, as usual
        with (
            blocking.Client(bootstrap) as member,
            member.group_consumer(settings, re.compile("orders-.*")) as consumer,
        ):
            consumer.poll(0)
            member.admin.create_topic("orders-fr", queues=1)
            member.producer().send(Message("orders-fr", b"before it was seen"))
            found: list[ReceivedMessage] = []
            while not found:
                found = consumer.poll(1)
            return [message.body for message in found]

    async with asyncio.timeout(50):
        assert await asyncio.to_thread(read) == [b"before it was seen"]


async def test_a_blocking_member_begins_anew_in_a_topic_that_is_made_anew(
    client: Client, bootstrap: str
) -> None:
    await fill(client, 3)

    def poll_until(consumer: GroupConsumer, wanted: set[bytes]) -> None:
        found: set[bytes] = set()
        while found != wanted:
            found |= {message.body for message in consumer.poll(1)}

    async with asyncio.timeout(50):
        with (
            blocking.Client(bootstrap) as member,
            member.group_consumer(config(rebalance_s=0.05), ["orders"]) as consumer,
        ):
            await asyncio.to_thread(poll_until, consumer, {b"0", b"1", b"2"})
            await make_anew(client, 5)
            await asyncio.to_thread(poll_until, consumer, {b"%d" % at for at in range(5)})


def test_queues_of_a_topic_that_is_made_anew_are_new() -> None:
    now: list[int | None] = [7]

    def answers(request: Request) -> RemotingCommand:
        assert request.code == RequestCode.GET_MAX_OFFSET
        return response(header=EndResponseHeader(offset=3, imago_incarnation=now[0]))

    world = ScriptedServers(shards={"a": "a:1"}, brokers=answers)
    queues = [MessageQueue("orders", "a", number) for number in range(2)]
    world.run(find_route(world.state, "orders"))
    known = KnownQueues()
    known.note(world.state, "orders")
    for now[0], found in ((7, set()), (None, set()), (7, set()), (8, set(queues)), (8, set())):
        assert world.run(known.made_anew(world.state, queues)) == found
        assert known.is_new(queues[0]) == (now[0] == 8)
    retries = [MessageQueue("%RETRY%g", "a", 0)]
    assert world.run(known.made_anew(world.state, retries)) == set()


def test_a_pattern_takes_no_more_topics_than_the_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(following, "TOPICS_MAX", 2)
    names = ["a3", "a1", "a2", "b", "%RETRY%a", "TBW102"]

    def answers(request: Request) -> RemotingCommand:
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return response(body=ClusterInfo().encode(standard=True))
        assert request.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        return response(body=TopicList(topic_list=tuple(names)).encode(standard=True))

    world = ScriptedServers(brokers=answers)
    followed = following.FollowedTopics(re.compile("a.|.*R.*|T.*"), "g", 1)
    assert world.run(followed.look(world.state, ())) == ["a1", "a2"]
    assert "pattern_too_wide" in caplog.text
    assert list(followed.by_topic) == ["%RETRY%g", "a1", "a2"]
    names[:] = ["a2", "a3"]
    assert world.run(followed.look(world.state, ["a1"])) == ["a3"]
    assert list(followed.by_topic) == ["%RETRY%g", "a1", "a2", "a3"], "a1 is read yet"
    assert world.run(followed.look(world.state, ())) == []
    assert "a1" not in followed.by_topic


@pytest.mark.parametrize(
    ("topics", "pattern", "why"),
    [
        (None, None, "name topics, or a pattern"),
        ("orders", "orders", "name topics, or a pattern"),
        (None, "(", "is no regular expression"),
        (None, 5, "pattern: 5, must be text"),
    ],
)
async def test_topics_or_a_pattern_are_named(topics: Any, pattern: Any, why: str) -> None:
    client = Client("127.0.0.1:9")
    with pytest.raises(UsageError, match=why):
        client.subscribe(topics, group="g", pattern=pattern)


async def test_an_error_in_the_loop_has_its_message_come_again(client: Client) -> None:
    await fill(client, 5)

    async def read() -> None:
        async with client.subscribe("orders", group=config()) as messages:
            async for message in messages:
                if message.body == b"2":
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await read()
    assert await committed(client) == [2]
    async with client.subscribe("orders", group=config()) as messages:
        assert await take(messages, 3) == [b"2", b"3", b"4"]


async def test_batches_come_when_something_is_there_or_the_time_is_up(client: Client) -> None:
    await fill(client, 7)
    async with client.subscribe(["orders"], group=config()) as messages:
        found: list[ReceivedMessage] = []
        while len(found) < 7:
            batch = await messages.batch(messages_max=3, timeout_s=50.0)
            assert 1 <= len(batch) <= 3
            found += batch
        assert [message.offset for message in found] == list(range(7))
        assert await messages.batch(timeout_s=0.01) == []
        await messages.commit()
        assert await committed(client) == [7]


async def test_manual_acknowledgement_in_any_order_commits_no_gap(client: Client) -> None:
    await fill(client, 4)
    async with client.subscribe("orders", group=config(), manual=True) as messages:
        first, second, third, fourth = [await anext(messages) for _ in range(4)]
        messages.acknowledge([fourth, second])
        assert list(messages.positions().values())[-1] == 0
        messages.acknowledge(first)
        await messages.commit()
        assert await committed(client) == [2]
        with pytest.raises(UsageError, match="done already"):
            messages.acknowledge(first)
        with pytest.raises(UsageError, match="must be"):
            messages.acknowledge(["no message"])  # type: ignore[list-item]  # what is tested
        await messages.retry(third, 1)
        async with asyncio.timeout(50):
            again = await anext(messages)
        assert (again.body, again.reconsume_times) == (third.body, 1)
        messages.acknowledge(again)
    assert await committed(client) == [4]


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(client: Client) -> None:
    await fill(client, 20, queues=2)
    async with client.subscribe("orders", group=config()) as messages:
        first = await anext(messages)
        [other] = [q for q in messages.queues if q.topic == "orders" and q != first.queue]
        messages.pause(other)
        assert messages.paused == (other,)
        rest = [await anext(messages) for _ in range(9)]
        assert {message.queue for message in rest} == {first.queue}
        assert await messages.batch(timeout_s=0.2) == []
        messages.resume(other)
        async with asyncio.timeout(50):
            assert {(await anext(messages)).queue for _ in range(10)} == {other}
        with pytest.raises(UsageError, match="not one that this member reads"):
            messages.pause(type(other)("orders", "nowhere", 0))


async def test_seeking_goes_on_elsewhere(client: Client) -> None:
    await fill(client, 10)
    async with client.subscribe("orders", group=config()) as messages:
        assert await take(messages, 10) == [b"%d" % number for number in range(10)]
        [queue] = [queue for queue in messages.queues if queue.topic == "orders"]
        await messages.seek(queue, 4)
        assert messages.positions()[queue] == 4
        assert await take(messages, 6) == [b"%d" % number for number in range(4, 10)]


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_push_consumer_pauses_and_seeks_too(client: Client, *, orderly: bool) -> None:
    await fill(client, 5)
    seen: list[bytes] = []
    arrived = asyncio.Event()

    async def handle(messages: list[ReceivedMessage]) -> None:
        seen.extend(message.body for message in messages)
        arrived.set()

    async def until(count: int) -> None:
        async with asyncio.timeout(50):
            while len(seen) < count:
                arrived.clear()
                await arrived.wait()

    consumer: PushConsumer = client.push_consumer(config(orderly=orderly), ["orders"], handle)
    async with consumer:
        await until(5)
        [queue] = [one for one in consumer.queues if one.topic == "orders"]
        consumer.pause(queue)
        await client.producer().send(Message("orders", b"later"))
        await asyncio.sleep(0.2)
        assert (seen[5:], consumer.paused) == ([], (queue,))
        consumer.resume(queue)
        await until(6)
        await consumer.seek(queue, 3)
        await until(9)
        assert seen[5:] == [b"later", b"3", b"4", b"later"]


async def test_members_are_told_what_they_read(client: Client, bootstrap: str) -> None:
    await fill(client, 0, queues=4)
    told: list[tuple[str, int]] = []
    shared = asyncio.Event()

    async def came(queues: tuple[MessageQueue, ...]) -> None:
        assert {queue.topic for queue in queues} == {"orders"}
        told.append(("came", len(queues)))

    async def went(queues: tuple[MessageQueue, ...]) -> None:
        told.append(("went", len(queues)))
        shared.set()
        raise ZeroDivisionError  # is logged, and harms nothing

    mine = client.subscribe(
        "orders", group=config(rebalance_s=0.2), on_assigned=came, on_revoked=went
    )
    async with mine:
        assert told == [("came", 4)]
        async with Client(bootstrap) as other, other.subscribe("orders", group=config()):
            async with asyncio.timeout(50):
                await shared.wait()
        assert told[1] == ("went", 2)
    assert told[-1][0] == "went"


async def test_wrong_uses_are_said(client: Client) -> None:
    with pytest.raises(UsageError, match="orderly"):
        client.subscribe("orders", group=ConsumerConfig(group="h", orderly=True))
    with pytest.raises(UsageError, match="on_assigned"):
        client.subscribe("orders", group="i", on_assigned=print)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(UsageError, match="tags: 5, must be text"):
        Message("orders", b"", tags=5)  # type: ignore[arg-type]  # what is tested


async def test_a_client_that_nobody_closed_says_so(bootstrap: str) -> None:
    def use(*, closed: bool) -> None:
        one = blocking.Client(bootstrap)
        one.admin.create_topic(f"left-{closed}", queues=1)
        if closed:
            one.close()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            one.__del__()
        said = [str(each.message) for each in caught if each.category is ResourceWarning]
        assert [bootstrap in text for text in said] == ([] if closed else [True])
        one.close()

    for closed in (False, True):
        await asyncio.to_thread(use, closed=closed)
    one = Client(bootstrap)
    await one.admin.create_topic("left-too", queues=1)
    with pytest.warns(ResourceWarning, match="unclosed client of"):
        one.__del__()
    await one.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one.__del__()
