"""Where a group begins, and what a consumer is given: as told, or refused in plain words."""

from __future__ import annotations

import asyncio
import functools
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_client import (
    Client,
    ConsumerConfig,
    Message,
    MessageQueue,
    ResetTo,
    StartFrom,
    UsageError,
)
from imago_client.blocking import Client as BlockingClient
from imago_client.metaq import MetaqClient, MetaqConsumerConfig, MetaqMessage
from imago_client.received import received
from imago_wire.record_format import properties as names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_client import ReceivedMessage


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(50):
        while not condition():  # noqa: ASYNC110 - nobody sets an event for it
            await asyncio.sleep(0.02)


class Kept:
    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
        self.bodies += [message.body for message in messages]


async def send(client: Client, *bodies: bytes) -> None:
    for body in bodies:
        await client.producer().send(Message("orders", body, ordering_key="k"))


async def test_latest_on_a_young_topic_passes_over_what_is_there(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await send(client, b"old")
    kept = Kept()
    async with client.push_consumer(ConsumerConfig(group="g"), ["orders"], kept):
        await send(client, b"new")
        await until(lambda: b"new" in kept.bodies)
    assert kept.bodies == [b"new"]


async def test_timestamp_on_a_young_topic_is_kept_to(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await send(client, b"old")
    await asyncio.sleep(0.05)
    between = time.time_ns() // 1_000_000
    await asyncio.sleep(0.05)
    await send(client, b"new")
    kept = Kept()
    config = ConsumerConfig(group="g", start_from=StartFrom.TIMESTAMP, start_timestamp_ms=between)
    async with client.push_consumer(config, ["orders"], kept):
        await until(lambda: b"new" in kept.bodies)
    assert kept.bodies == [b"new"]


async def test_blocking_member_begins_as_told_too(client: Client, bootstrap: str) -> None:
    await client.admin.create_topic("orders", queues=1)
    await send(client, b"old")

    def work() -> list[bytes]:
        with (
            BlockingClient(bootstrap) as blocking,
            blocking.group_consumer("g", ["orders"]) as member,
        ):
            found = [message.body for message in member.poll(0.2)]
            blocking.producer().send(Message("orders", b"new"))
            return found + [message.body for message in member.poll(10)]

    assert await asyncio.to_thread(work) == [b"new"]


async def test_beginning_at_the_end_is_kept_over_a_crash(client: Client) -> None:
    """Else what comes before the first commit is passed over by whoever takes the queue over."""
    await client.admin.create_topic("orders", queues=1)
    await send(client, b"old")
    kept = Kept()
    config = ConsumerConfig(group="g", commit_s=3600, poll_s=3600)
    consumer = client.push_consumer(config, ["orders"], kept)
    await consumer.start()
    (queue,) = await client.pull_consumer("g").queues("orders")
    assert await client.pull_consumer("g").committed(queue) == 1
    assert await client.pull_consumer("never-here").committed(queue) is None
    await consumer.stop()


async def test_queue_that_comes_later_is_read_from_its_beginning(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await client.admin.create_topic("refunds", queues=1)
    await send(client, b"old")
    kept = Kept()
    config = ConsumerConfig(group="g", rebalance_s=0.3, error_pause_s=0.05)
    async with client.push_consumer(config, ["orders", "refunds"], kept) as consumer:
        await until(lambda: len(consumer.queues) >= 2)
        await client.admin.alter_topic("orders", queues=2)
        queue = MessageQueue("orders", "shard-0", 1)
        async with asyncio.timeout(50):
            while queue not in await client.producer().queues("orders"):
                client._state.drop_route("orders")
                await asyncio.sleep(0.01)
        await client.producer().send(Message("orders", b"first of its queue"), queue=queue)
        await until(lambda: b"first of its queue" in kept.bodies)
    assert b"old" not in kept.bodies


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("earliest", StartFrom.EARLIEST),
        ("LATEST", StartFrom.LATEST),
        ("CONSUME_FROM_TIMESTAMP", StartFrom.TIMESTAMP),
        (StartFrom.EARLIEST, StartFrom.EARLIEST),
    ],
)
def test_beginning_may_be_a_word(given: StartFrom | str, meant: StartFrom) -> None:
    assert ConsumerConfig(group="g", start_from=given, start_timestamp_ms=5).begins is meant


@pytest.mark.parametrize("wrong", ["first", "", 7, None])
def test_word_that_is_no_beginning_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"start_from: .*earliest, latest, timestamp"):
        ConsumerConfig(group="g", start_from=wrong)


async def test_group_is_reset_by_a_word(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await send(client, b"old")
    assert list((await client.admin.reset_group("g", "orders", "latest")).values()) == [1]
    assert list((await client.admin.reset_group("g", "orders", ResetTo.EARLIEST)).values()) == [0]
    with pytest.raises(UsageError, match="earliest, latest"):
        await client.admin.reset_group("g", "orders", "first")


def not_async(messages: object) -> None:
    del messages


class CallsPlainly:
    def __call__(self, messages: object) -> None:
        del messages


async def is_async(messages: object) -> None:
    del messages


WRONG: list[Any] = [
    not_async,
    print,
    [].append,
    CallsPlainly(),
    functools.partial(not_async),
    lambda messages: [messages],
    None,
    "handler",
]


@pytest.mark.parametrize("wrong", WRONG)
async def test_handler_that_is_not_async_is_refused_at_once(client: Client, wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"handler: .*async def"):
        client.push_consumer("g", ["orders"], wrong)
    client.push_consumer("g", ["orders"], is_async)  # the refused one is not a member


@pytest.mark.parametrize("wrong", WRONG)
async def test_metaq_handler_that_is_not_async_is_refused_at_once(wrong: Any) -> None:
    async with MetaqClient("127.0.0.1:1") as client:
        with pytest.raises(UsageError, match=r"handler: .*async def"):
            client.consumer("g", ["orders"], wrong)
        client.consumer("g", ["orders"], functools.partial(is_async))


async def test_handlers_of_the_two_protocols_are_told_apart(
    client: Client, metaq_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The type checker says it too: without the marks below it refuses this test."""
    await client.admin.create_topic("orders", queues=1)
    await send(client, b"x")

    async def of_one(message: MetaqMessage) -> None:
        assert message.payload

    async def of_several(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            assert message.body

    config = ConsumerConfig(group="g", start_from="earliest")
    async with client.push_consumer(config, ["orders"], of_one):  # type: ignore[arg-type]  # the point
        await until(lambda: "a list of messages" in caplog.text)
    settings = MetaqConsumerConfig(group="g", delay_s_max=0.1)
    async with (
        MetaqClient(metaq_server) as metaq,
        metaq.consumer(settings, ["orders"], of_several),  # type: ignore[arg-type]  # the point
    ):
        await until(lambda: "one message, not a list" in caplog.text)


def test_only_a_retry_queue_says_where_a_message_came_from() -> None:
    from imago_wire.records.record import (
        QueueTail,
        RecordBuilder,
        decode_record,
        host_bytes,
        make_entry,
    )

    host = host_bytes("127.0.0.1", 1)
    tail = QueueTail(b"orders", 0, dual=False, next_offset=0)
    claimed = names.encode({names.RETRY_TOPIC: "payments"})
    entry = make_entry(tail, b"x", born_ms=1, born_host=host, properties=claimed)
    data, _ = RecordBuilder(host, 1, 0).build([entry], 0, 4096, 1, 1 << 30)
    stored = decode_record(data)
    assert received(MessageQueue("orders", "a", 0), stored).topic == "orders"
    dead = replace(stored, topic="%DLQ%g")
    assert received(MessageQueue("%DLQ%g", "a", 0), dead).topic == "%DLQ%g"
    retried = replace(stored, topic="%RETRY%g")
    assert received(MessageQueue("%RETRY%g", "a", 0), retried).topic == "payments"
