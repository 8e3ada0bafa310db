"""Members of consumer groups against a broker."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.processors.rocketmq.pull.pull_path import PullPath
from imago_client import (
    BrokerError,
    Client,
    ConsumerConfig,
    Message,
    NoRouteError,
    ResetTo,
    RetryLater,
    Sql,
    StartFrom,
    UsageError,
    blocking,
)
from imago_client.naming import DEAD_LETTER_PREFIX
from imago_log.lifecycle.forced import ForcedRange
from imago_log.results import ReadResult, ReadStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.app import Broker
    from imago_client import ReceivedMessage


class Collector:
    """A handler that keeps what it gets, and can be waited for."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self._changed = asyncio.Condition()

    async def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
        async with self._changed:
            self.messages += messages
            self._changed.notify_all()

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(50), self._changed:
            await self._changed.wait_for(condition)

    async def until_count(self, count: int) -> None:
        await self.until(lambda: len(self.messages) >= count)


def earliest(group: str = "g", **settings: object) -> ConsumerConfig:
    return ConsumerConfig(group=group, start_from=StartFrom.EARLIEST, **settings)  # type: ignore[arg-type]  # a table


async def send(client: Client, count: int, topic: str = "orders") -> list[bytes]:
    bodies = [b"%d" % number for number in range(count)]
    producer = client.producer()
    for body in bodies:
        await producer.send(Message(topic, body))
    return bodies


async def test_group_gets_every_message_and_commits_what_it_did(client: Client) -> None:
    await client.admin.create_topic("orders", queues=2)
    bodies = await send(client, 50)
    collector = Collector()
    async with client.push_consumer(earliest(), ["orders"], collector):
        await collector.until_count(50)
    assert sorted(collector.bodies) == sorted(bodies)
    progress = (await client.admin.describe_group("g")).progress
    orders = [one for one in progress if one.queue.topic == "orders"]
    assert [(one.committed, one.lag) for one in orders] == [(25, 0), (25, 0)]


async def test_next_run_goes_on_after_the_committed_offset(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await send(client, 5)
    first = Collector()
    async with client.push_consumer(earliest(), ["orders"], first):
        await first.until_count(5)
    await client.producer().send(Message("orders", b"later"))
    second = Collector()
    async with client.push_consumer(earliest(), ["orders"], second):
        await second.until_count(1)
    assert second.bodies == [b"later"]


async def test_latest_passes_over_what_was_there_after_a_reset(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await send(client, 5)
    await client.admin.reset_group("g", "orders", ResetTo.LATEST)
    collector = Collector()
    async with client.push_consumer("g", ["orders"], collector):
        await client.producer().send(Message("orders", b"new"))
        await collector.until_count(1)
    assert collector.bodies == [b"new"]


async def test_tags_are_filtered(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    producer = client.producer()
    for tag in ("a", "b", "c", "a"):
        await producer.send(Message("orders", tag.encode(), tags=tag))
    collector = Collector()
    async with client.push_consumer(earliest(), {"orders": "a||c"}, collector):
        await collector.until_count(3)
    assert collector.bodies == [b"a", b"c", b"a"]


async def test_sql_selects_by_properties(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    producer = client.producer()
    for price in (3, 7, 5, 9):
        message = Message("orders", b"%d" % price, properties={"price": f"{price}"})
        await producer.send(message)
    collector = Collector()
    async with client.push_consumer(earliest(), {"orders": Sql("price > 4")}, collector):
        await collector.until_count(3)
    assert collector.bodies == [b"7", b"5", b"9"]
    (queue,) = await client.pull_consumer("readers").queues("orders")
    pulled = await client.pull_consumer("readers").pull(queue, 0, tags=Sql("price = 3"))
    assert [message.body for message in pulled.messages()] == [b"3"]


async def test_member_with_a_filter_that_is_none_does_not_start(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    consumer = client.push_consumer(earliest(), {"orders": Sql("price >")}, Collector())
    with pytest.raises(BrokerError, match="Encountered"):
        await consumer.start()
    with pytest.raises(UsageError, match="empty"):
        client.push_consumer(earliest(), {"orders": Sql(" ")}, Collector())
    with pytest.raises(UsageError, match="Sql: None is no filter"):
        Sql(None)


async def test_two_members_share_the_queues_and_take_over(client: Client, bootstrap: str) -> None:
    await client.admin.create_topic("orders", queues=4)
    first, second = Collector(), Collector()
    # The balance that counts is the one that the broker's notice causes.
    config = earliest(rebalance_s=60.0)
    one = client.push_consumer(config, ["orders"], first)
    async with one:
        assert len([queue for queue in one.queues if queue.topic == "orders"]) == 4
        async with Client(bootstrap) as other:
            two = other.push_consumer(config, ["orders"], second)
            async with two:
                await until(lambda: len(of_topic(one.queues)) == len(of_topic(two.queues)) == 2)
                assert not set(of_topic(one.queues)) & set(of_topic(two.queues))
                await send(client, 40)
                await until(lambda: len(first.messages) + len(second.messages) == 40)
                assert len(first.messages) == 20
        await until(lambda: len(of_topic(one.queues)) == 4)


def of_topic(queues: Sequence[object]) -> list[str]:
    return [str(queue) for queue in queues if str(queue).startswith("orders/")]


async def until(condition: Callable[[], bool]) -> None:
    """Return when something that nobody announces has come true."""
    async with asyncio.timeout(50):
        while not condition():  # noqa: ASYNC110 - nobody sets an event for it
            await asyncio.sleep(0.02)


async def test_failed_message_comes_again_alone(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await send(client, 3)
    collector = Collector()

    async def fail_once(messages: Sequence[ReceivedMessage]) -> None:
        if messages[0].body == b"1" and messages[0].reconsume_times == 0:
            raise RetryLater(delay_level=1)
        await collector(messages)

    async with client.push_consumer(earliest(), ["orders"], fail_once):
        await collector.until_count(3)
    assert sorted(collector.bodies) == [b"0", b"1", b"2"]
    (again,) = (message for message in collector.messages if message.body == b"1")
    assert (again.topic, again.reconsume_times) == ("orders", 1)
    assert again.queue.topic == "%RETRY%g"


async def test_message_given_up_goes_to_the_dead_letters(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await send(client, 1)
    refused = asyncio.Event()

    async def refuse(messages: Sequence[ReceivedMessage]) -> None:
        assert [message.body for message in messages] == [b"0"]
        refused.set()
        raise RetryLater(delay_level=-1)

    async with client.push_consumer(earliest(), ["orders"], refuse):
        await asyncio.wait_for(refused.wait(), 20)
    dead = client.pull_consumer("reader")
    (queue,) = await dead.queues(DEAD_LETTER_PREFIX + "g")
    pulled = await dead.pull(queue, 0, poll_s=10)
    assert [message.body for message in pulled.messages()] == [b"0"]


async def test_orderly_member_holds_the_line_at_a_failure(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await send(client, 5)
    collector = Collector()
    calls: list[bytes] = []

    async def fail_twice(messages: Sequence[ReceivedMessage]) -> None:
        calls.append(messages[0].body)
        if messages[0].body == b"2" and calls.count(b"2") < 3:
            raise ValueError("not yet")
        await collector(messages)

    config = earliest(orderly=True, suspend_s=0.01)
    async with client.push_consumer(config, ["orders"], fail_twice):
        await collector.until_count(5)
    assert calls == [b"0", b"1", b"2", b"2", b"2", b"3", b"4"]
    assert collector.bodies == [b"0", b"1", b"2", b"3", b"4"]


async def test_orderly_queue_is_read_by_its_lock_holder_only(
    client: Client, bootstrap: str
) -> None:
    await client.admin.create_topic("orders", queues=2)
    first, second = Collector(), Collector()
    config = earliest(orderly=True, rebalance_s=0.2)
    async with Client(bootstrap) as other:
        one = client.push_consumer(config, ["orders"], first)
        two = other.push_consumer(config, ["orders"], second)
        async with one, two:
            await until(lambda: len(of_topic(one.queues)) == len(of_topic(two.queues)) == 1)
            await send(client, 20)
            await until(lambda: len(first.messages) + len(second.messages) == 20)
    assert len(first.messages) == len(second.messages) == 10


async def test_slow_handlers_hold_back_pulling(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await client.producer().send_batch([Message("orders", b"x")] * 500)
    go_on, running, most = asyncio.Event(), 0, 0
    done = Collector()

    async def slow(messages: Sequence[ReceivedMessage]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go_on.wait()
        running -= 1
        await done(messages)

    config = earliest(concurrency=4, cached_messages_max=50)
    async with client.push_consumer(config, ["orders"], slow) as consumer:
        await until(lambda: running == 4)
        assert consumer.positions()[consumer.queues[-1]] == 0
        go_on.set()
        await done.until_count(500)
    assert most == 4


async def test_reset_reaches_a_member_that_is_running(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await send(client, 3)
    collector = Collector()
    async with client.push_consumer(earliest(), ["orders"], collector):
        await collector.until_count(3)
        await client.admin.reset_group("g", "orders", ResetTo.EARLIEST)
        await collector.until_count(6)
    assert sorted(collector.bodies) == [b"0", b"0", b"1", b"1", b"2", b"2"]


async def test_group_without_its_topic_says_so(client: Client) -> None:
    async def nothing(messages: Sequence[ReceivedMessage]) -> None:
        raise AssertionError(messages)

    await client.admin.create_topic("orders")
    with pytest.raises(NoRouteError, match="nothing-here"):
        await client.push_consumer("g", ["nothing-here"], nothing).start()
    with pytest.raises(NoRouteError, match=r"did you mean orders\?"):
        await client.push_consumer("g", ["ordres"], nothing).start()
    with pytest.raises(NoRouteError, match=r"did you mean orders\?"):
        await client.pull_consumer("g").queues("ordres")


async def test_client_is_in_a_group_once(client: Client) -> None:
    collector = Collector()
    client.push_consumer("g", ["orders"], collector)
    with pytest.raises(UsageError, match="member already"):
        client.push_consumer("g", ["orders"], collector)


async def test_member_whose_place_is_gone_notes_why_as_the_broker_says(
    client: Client,
    broker: Broker,
    bootstrap: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Both kinds: who is given messages, and who fetches them."""
    await client.admin.create_topic("orders", queues=1)
    bodies = await send(client, 3)
    read = broker.store.read

    def shortened(topic: str, queue: int, offset: int, **how: Any) -> Any:
        if topic == "orders" and offset < 2:
            return ReadResult(ReadStatus.OFFSET_TOO_SMALL, 2, 2, 3)
        return read(topic, queue, offset, **how)

    monkeypatch.setattr(PullPath, "_serves", lambda _: False)
    monkeypatch.setattr(broker.store, "read", shortened)
    monkeypatch.setattr(broker.store.forced, "last", lambda: ForcedRange(0, 4096, 1, 1))
    wanted = r"offset_out_of_range queue=.* asked=1 continues_at=2 reason=.*for want of room"
    for group in ("given", "fetches"):
        broker.offsets.commit(group, "orders", 0, 1)
        caplog.clear()
        if group == "given":
            collector = Collector()
            async with client.push_consumer(earliest(group), ["orders"], collector):
                await collector.until_count(1)
            assert collector.bodies == bodies[2:]
        else:
            assert await asyncio.to_thread(fetched, bootstrap, earliest(group)) == bodies[2:]
        (line,) = [each for each in caplog.messages if "offset_out_of_range" in each]
        assert re.match(wanted, line), line


def fetched(bootstrap: str, config: ConsumerConfig) -> list[bytes]:
    with (
        blocking.Client(bootstrap) as client,
        client.group_consumer(config, ["orders"]) as consumer,
    ):
        while not (found := consumer.poll(1)):
            pass
        return [message.body for message in found]
