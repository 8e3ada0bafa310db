"""The MetaQ clients against a broker, and their rules."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_client import Client, Message, UsageError
from imago_client.blocking import metaq as blocking
from imago_client.errors import AnswerError, ClientClosedError, ConnectionLostError
from imago_client.metaq import (
    Fetched,
    FileOffsets,
    MemoryOffsets,
    MetaqClient,
    MetaqConsumerConfig,
    MetaqError,
    MetaqMessage,
    Partition,
)
from imago_client.metaq.connection import TextConnections
from imago_client.metaq.reading.cursor import FetchCursor, UnreadableMessageError
from imago_client.metaq.values import FETCH_BYTES_MAX, read_get, read_offsets, read_put
from imago_wire.text.commands import Result, Value
from imago_wire.text.message import encode_message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_client.metaq.connection import TextConnection

PARTITION = Partition("orders", "127.0.0.1:8123", 0)


@pytest.fixture
async def metaq(metaq_server: str, client: Client) -> AsyncIterator[MetaqClient]:
    await client.admin.create_topic("orders", queues=2)
    async with MetaqClient(f"meta://{metaq_server}") as made:
        yield made


class Collector:
    def __init__(self, count: int) -> None:
        self.messages: list[MetaqMessage] = []
        self._count = count
        self._full = asyncio.Event()

    async def __call__(self, message: MetaqMessage) -> None:
        self.messages.append(message)
        if len(self.messages) >= self._count:
            self._full.set()

    async def wait(self) -> None:
        await asyncio.wait_for(self._full.wait(), 20)


async def test_message_comes_back_as_it_was_put(metaq: MetaqClient, metaq_server: str) -> None:
    sent = await metaq.producer().send("orders", b"\x00\xff", attribute="ü", partition=1)
    assert (sent.partition, sent.offset) == (Partition("orders", metaq_server, 1), 0)
    fetched = await metaq.get(sent.partition, 0, group="g")
    (found,) = fetched.messages()
    assert (found.payload, found.attribute, found.message_id) == (b"\x00\xff", "ü", sent.message_id)
    assert found.next_offset == (await metaq.partitions("orders"))[sent.partition][1]


async def test_refused_put_carries_the_brokers_words(metaq: MetaqClient) -> None:
    with pytest.raises(MetaqError, match="do not accept topic nothing") as caught:
        await metaq.producer().send("nothing", b"x")
    assert caught.value.status == 500


async def test_consumer_reads_both_protocols_in_order_and_keeps_its_place(
    metaq: MetaqClient, client: Client, tmp_path: Path
) -> None:
    producer = metaq.producer()
    for number in range(10):
        await producer.send("orders", b"m%d" % number, partition=number % 2)
    rocketmq = client.producer()
    for number in range(10):
        await rocketmq.send(Message("orders", b"r%d" % number, tags="t", ordering_key="k"))
    first = Collector(20)
    offsets = FileOffsets(tmp_path / "offsets.json")
    async with metaq.consumer("g", ["orders"], first, offsets=offsets):
        await first.wait()
    payloads = [message.payload for message in first.messages]
    assert [one for one in payloads if one.startswith(b"r")] == [b"r%d" % n for n in range(10)]
    assert {one.attribute for one in first.messages if one.payload[:1] == b"r"} == {"t"}
    await producer.send("orders", b"later")
    second = Collector(1)
    again = FileOffsets(tmp_path / "offsets.json")
    async with metaq.consumer("g", ["orders"], second, offsets=again):
        await second.wait()
    assert [message.payload for message in second.messages] == [b"later"]


async def test_consumer_from_the_end_gets_only_what_comes_after(metaq: MetaqClient) -> None:
    producer = metaq.producer()
    await producer.send("orders", b"old", partition=0)
    collector = Collector(2)
    config = MetaqConsumerConfig(group="g", from_end=True, delay_s_max=0.1, partitions_s=0.05)
    async with metaq.consumer(config, ["orders"], collector) as consumer:
        async with asyncio.timeout(50):
            while list(consumer.positions.values()) != [23]:  # noqa: ASYNC110 - told by the broker
                await asyncio.sleep(0.01)
        await producer.send("orders", b"new", partition=0)
        # A partition that had no message yet is read from its beginning.
        await producer.send("orders", b"first", partition=1)
        await collector.wait()
    assert sorted(message.payload for message in collector.messages) == [b"first", b"new"]


async def test_failing_message_is_tried_again_then_rejected(metaq: MetaqClient) -> None:
    producer = metaq.producer()
    for number in range(3):
        await producer.send("orders", b"%d" % number, partition=0)
    collector, rejected = Collector(2), []

    async def handler(message: MetaqMessage) -> None:
        if message.payload == b"1":
            raise ValueError("never")
        await collector(message)

    async def reject(message: MetaqMessage, error: Exception) -> None:
        rejected.append((message.payload, str(error)))

    config = MetaqConsumerConfig(group="g", retries_max=2, delay_s_max=0.01)
    consumer = metaq.consumer(config, ["orders"], handler)
    consumer.on_reject = reject
    async with consumer:
        await collector.wait()
    assert rejected == [(b"1", "never")]
    assert [message.payload for message in collector.messages] == [b"0", b"2"]


async def test_message_larger_than_the_fetch_arrives(metaq: MetaqClient) -> None:
    payload = bytes(range(256)) * 1000
    await metaq.producer().send("orders", payload, partition=0)
    collector = Collector(1)
    config = MetaqConsumerConfig(group="g", fetch_bytes=1000)
    async with metaq.consumer(config, ["orders"], collector):
        await collector.wait()
    assert collector.messages[0].payload == payload


async def test_blocking_client_puts_and_gets(metaq_server: str, metaq: MetaqClient) -> None:
    del metaq  # made the topic

    def work() -> None:
        with blocking.MetaqClient(metaq_server) as client:
            sent = client.send("orders", b"x", attribute="a", partition=1)
            ((partition, bounds),) = client.partitions("orders").items()
            assert (partition, bounds) == (sent.partition, (0, 26))
            (found,) = client.get(partition, 0, group="g").messages()
            assert (found.payload, found.attribute) == (b"x", "a")
            assert client.get(partition, 26, group="g").block == b""
            assert client.stats(metaq_server)["version"]

    await asyncio.to_thread(work)


def test_partition_needs_its_server_where_there_are_several() -> None:
    client = blocking.MetaqClient("a:1,b:2")
    with pytest.raises(UsageError, match="give the server too"):
        client.send("orders", b"x", partition=0)


def fetched(block: bytes = b"", next_offset: int = 0) -> Fetched:
    return Fetched(PARTITION, 0, block, next_offset)


def test_delay_grows_in_ten_steps_and_ends_with_the_next_message() -> None:
    cursor = FetchCursor(0, 1000, 5.0)
    delays = []
    for _ in range(12):
        cursor.take(fetched())
        delays.append(cursor.delay_s)
    assert delays[:3] == [0.5, 1.0, 1.5]
    assert delays[-1] == 5.0
    (message,) = cursor.take(fetched(encode_message(1, 0, b"x")))
    assert cursor.delay_s == 0.0
    assert cursor.position == 0
    cursor.advance(message)
    assert cursor.position == 21


def test_moved_position_is_followed() -> None:
    cursor = FetchCursor(5, 1000, 5.0)
    cursor.take(read_get(PARTITION, 5, Result(301, b"777", 1)))
    assert cursor.position == 777


def test_cut_message_doubles_the_fetch_until_nothing_helps() -> None:
    cursor = FetchCursor(0, FETCH_BYTES_MAX // 4, 5.0)
    cut = fetched(encode_message(1, 0, bytes(100))[:50])
    for size in (FETCH_BYTES_MAX // 2, FETCH_BYTES_MAX):
        cursor.take(cut)
        assert cursor.fetch_bytes == size
    with pytest.raises(UnreadableMessageError, match="orders/"):
        cursor.take(cut)


@pytest.mark.parametrize("code", [403, 404])
def test_closed_or_empty_partition_has_nothing_new(code: int) -> None:
    assert read_get(PARTITION, 5, Result(code, b"no", 1)) == Fetched(PARTITION, 5, b"", 5)


def test_other_answers_are_errors() -> None:
    with pytest.raises(MetaqError, match="status 500: broken"):
        read_get(PARTITION, 5, Result(500, b"broken", 1))
    with pytest.raises(AnswerError, match="put answered 'nonsense'"):
        read_put("a:1", "t", Result(200, b"nonsense", 1))
    with pytest.raises(AnswerError, match="messages where none"):
        read_put("a:1", "t", Value(b"", 1))


def test_offsets_of_one_topic_are_picked_out_of_the_statistics() -> None:
    lines = ["orders part 0 min_offset 5 max_offset 9", "other part 0 min_offset 0 max_offset 1"]
    text = "\r\n".join(["STATS", *lines, "END", ""])
    assert read_offsets("127.0.0.1:8123", "orders", text) == {PARTITION: (5, 9)}


def test_offset_file_is_refused_when_it_is_something_else(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_text("[1]")
    with pytest.raises(UsageError, match="move it away"):
        FileOffsets(path)


def test_offset_file_keeps_groups_apart(tmp_path: Path) -> None:
    store = FileOffsets(tmp_path / "deep" / "offsets.json")
    store.save("g", {PARTITION: 5})
    store.save("h", {PARTITION: 6})
    again = FileOffsets(tmp_path / "deep" / "offsets.json")
    assert (again.load("g", PARTITION), again.load("h", PARTITION)) == (5, 6)
    assert again.load("i", PARTITION) is None
    memory = MemoryOffsets()
    memory.save("g", {PARTITION: 1})
    assert memory.load("g", PARTITION) == 1


async def test_consumer_can_be_started_again_where_it_stopped(metaq: MetaqClient) -> None:
    producer = metaq.producer()
    config = MetaqConsumerConfig(group="g", delay_s_max=0.1)
    handler = Collector(1)
    consumer = metaq.consumer(config, ["orders"], handler)
    await producer.send("orders", b"first", partition=0)
    async with consumer:
        await handler.wait()
        with pytest.raises(UsageError, match="runs already"):
            await consumer.start()
    await producer.send("orders", b"second", partition=0)
    again = Collector(1)
    handler.messages, handler._full = again.messages, again._full
    async with consumer:
        await again.wait()
    assert [message.payload for message in again.messages] == [b"second"]


async def test_start_that_failed_reads_nothing_on(metaq: MetaqClient, metaq_server: str) -> None:
    await metaq.producer().send("orders", b"x", partition=0)
    before = asyncio.all_tasks()

    async def handle(message: MetaqMessage) -> None:
        raise AssertionError(message)

    async with MetaqClient(f"{metaq_server},127.0.0.1:1") as half:
        consumer = half.consumer("g", ["orders"], handle)
        with pytest.raises(ConnectionLostError):
            await consumer.start()
        assert not consumer._tasks.is_running
    assert asyncio.all_tasks() <= before | {asyncio.current_task()}


async def test_reject_that_fails_is_tried_again(metaq: MetaqClient) -> None:
    await metaq.producer().send("orders", b"bad", partition=0)
    rejected: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    calls = 0

    async def handle(message: MetaqMessage) -> None:
        raise ValueError(message.payload)

    async def reject(message: MetaqMessage, error: Exception) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError from error
        rejected.set_result(message.payload)

    config = MetaqConsumerConfig(group="g", delay_s_max=0.01, retries_max=1)
    consumer = metaq.consumer(config, ["orders"], handle)
    consumer.on_reject = reject
    async with asyncio.timeout(50), consumer:
        assert await rejected == b"bad"


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"g": 5}', '{"g": {"t": {"s": {"0": "7"}}}}'])
def test_file_that_holds_no_positions_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "positions.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="move it away"):
        FileOffsets(path)


async def test_dead_address_holds_up_no_other(metaq_server: str, client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    async with MetaqClient(f"{metaq_server},127.0.0.1:1") as both:
        sockets = both.connections
        assert isinstance(sockets, TextConnections)
        connections = sockets._connections
        real, nobody_answers = connections._connect, asyncio.Event()

        async def connect(address: str) -> TextConnection:
            if address == "127.0.0.1:1":
                nobody_answers.set()
                await asyncio.Event().wait()
            return await real(address)

        connections._connect = connect  # for this test
        waiting = asyncio.create_task(both.stats("127.0.0.1:1"))
        await nobody_answers.wait()
        async with asyncio.timeout(50):
            assert (await both.producer().send("orders", b"x", server=metaq_server)).offset == 0
    with pytest.raises(ClientClosedError):
        await waiting


async def test_partitions_of_the_others_are_found_while_a_broker_is_gone(
    metaq: MetaqClient, metaq_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Collector(1)
    async with MetaqClient(f"127.0.0.1:1,{metaq_server}") as both:
        real, gone = both._stats, False

        async def stats(server: str, item: str) -> str:
            if server == metaq_server:
                return await real(server, item)
            if gone:
                raise ConnectionLostError(server, "gone")
            return ""

        monkeypatch.setattr(both, "_stats", stats)
        config = MetaqConsumerConfig(group="g", partitions_s=0.05, delay_s_max=0.1)
        async with both.consumer(config, ["orders"], collector):
            gone = True
            await metaq.producer().send("orders", b"x", partition=1)
            await collector.wait()
