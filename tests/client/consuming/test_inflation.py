"""Compressed bodies that grow: what one answer, one consumer and one message may take."""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING, Any

import lz4.frame
import pytest
import zstandard

from imago_client import BodyError, Client, ConsumerConfig, Message, MessageQueue, StartFrom
from imago_client.blocking import Client as BlockingClient
from imago_client.core.consuming.inflation import InflationBudget
from imago_client.core.consuming.process_queue import ProcessQueue
from imago_client.messages import PullStatus
from imago_client.naming import DEAD_LETTER_PREFIX
from imago_client.received import INFLATED_BYTES_MAX, Pulled
from imago_wire.record_format import properties as names
from imago_wire.record_format.layout import (
    SYS_COMPRESSED,
    SYS_COMPRESSION_LZ4,
    SYS_COMPRESSION_ZSTD,
)
from imago_wire.records.record import QueueTail, RecordBuilder, host_bytes, make_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_client import ReceivedMessage

QUEUE = MessageQueue("orders", "shard-0", 0)
HOST = host_bytes("127.0.0.1", 1)
MIB = 1 << 20
CODECS = [
    pytest.param(zlib.compress, 0, id="zlib"),
    pytest.param(lz4.frame.compress, SYS_COMPRESSION_LZ4, id="lz4"),
    pytest.param(zstandard.compress, SYS_COMPRESSION_ZSTD, id="zstd"),
]


def streamed(body: bytes) -> bytes:
    """A Zstandard frame that does not say how large it gets."""
    made = zstandard.ZstdCompressor().compressobj()
    return made.compress(body) + made.flush()


CODECS.append(pytest.param(streamed, SYS_COMPRESSION_ZSTD, id="zstd-streamed"))


def answer(bodies: Sequence[tuple[bytes, int]]) -> Pulled:
    """Return a pull's answer with these bodies and system flags, of ids m0, m1, …"""
    tail = QueueTail(b"orders", 0, dual=False, next_offset=0)
    entries = [
        make_entry(
            tail, body, born_ms=1, born_host=HOST, sys_flag=flag,
            properties=names.encode({"UNIQ_KEY": f"m{number}"}),
        )
        for number, (body, flag) in enumerate(bodies)
    ]  # fmt: skip
    data, placed = RecordBuilder(HOST, 1, 0).build(entries, 0, 4096, 1, 1 << 30)
    assert len(placed) == len(entries)
    return Pulled(PullStatus.FOUND, QUEUE, len(entries), 0, len(entries), data)


@pytest.mark.parametrize(("compress", "kind"), CODECS)
def test_answer_inflates_to_no_more_than_its_budget(
    compress: Callable[[bytes], bytes], kind: int
) -> None:
    small = compress(bytes(MIB))
    pulled = answer([(small, SYS_COMPRESSED | kind)] * 8 + [(b"plain", 0)])
    messages = list(pulled.messages(inflated_bytes_max=3 * MIB))
    assert [message.error is None for message in messages] == [True] * 3 + [False] * 5 + [True]
    assert messages[2].body == bytes(MIB)
    assert messages[-1].body == b"plain"
    with pytest.raises(BodyError, match="m3") as caught:
        _ = messages[3].body
    assert (caught.value.queue, caught.value.offset) == (QUEUE, 3)
    assert caught.value.message_id == messages[3].message_id == "m3"
    assert caught.value.is_too_large
    assert "inflated_bytes_max" in str(caught.value), "the cure"
    assert messages[3].stored.body == small
    # The rest may be asked for again, with a budget of its own.
    again = answer([(small, SYS_COMPRESSED | kind)])
    assert next(iter(again.messages(inflated_bytes_max=3 * MIB))).body == bytes(MIB)


def test_budget_is_one_even_where_nothing_is_said() -> None:
    bomb = zstandard.compress(bytes(INFLATED_BYTES_MAX // 2 + 1))
    pulled = answer([(bomb, SYS_COMPRESSED | SYS_COMPRESSION_ZSTD)] * 3)
    assert [one.error is None for one in pulled.messages()] == [True, False, False]


def test_body_that_is_not_compressed_comes_as_stored_and_says_so() -> None:
    (message,) = answer([(b"plain", SYS_COMPRESSED)]).messages()
    assert message.body == b"plain"
    assert message.error is not None
    assert not message.error.is_too_large


def test_budget_of_a_consumer_is_given_back() -> None:
    budget = InflationBudget(10)
    process = ProcessQueue(0, budget)
    pulled = answer([(zlib.compress(bytes(4)), SYS_COMPRESSED), (b"plain", 0)])
    messages = list(pulled.messages())
    process.add(messages, 2)
    assert (budget.used, budget.free) == (4, 6)
    process.finish(messages)
    assert budget.used == 0
    process.add(messages, 2)
    process.release()
    assert budget.used == 0
    process.finish(messages)
    assert budget.used == 0


async def send_raw(client: Client, bodies: Sequence[bytes], **more: Any) -> None:
    """Send zlib bodies as a client does that compresses; the topic takes whatever they grow to."""

    from imago_client.config import ProducerConfig
    from imago_client.core.sending.outgoing import prepare

    producer = client.producer()
    for number, body in enumerate(bodies):
        message = Message("orders", body, keys=(f"n{number}",), **more)
        outgoing = prepare(client._state, ProducerConfig(), message)._replace(sys_flag=1)
        await producer._send(outgoing, None)


def settings(**more: object) -> ConsumerConfig:
    return ConsumerConfig(group="g", start_from=StartFrom.EARLIEST, error_pause_s=0.05, **more)  # type: ignore[arg-type]  # a table


@pytest.fixture
async def orders(client: Client) -> None:
    # A topic of RocketMQ's alone: of others the broker refuses bodies that grow beyond its limit.
    await client.admin.create_topic("orders", queues=2, attributes={"dialects": "rocketmq"})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(50):
        while not condition():  # noqa: ASYNC110 - nobody sets an event for it
            await asyncio.sleep(0.02)


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("orderly", [False, True])
async def test_consumer_holds_no_more_than_its_budget_and_gets_everything(
    client: Client, *, orderly: bool
) -> None:
    await send_raw(client, [zlib.compress(bytes([n]) * MIB) for n in range(20)])
    done: list[int] = []
    held = most = 0

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        nonlocal held, most
        held += 1
        most = max(most, held)
        await asyncio.sleep(0.01)
        held -= 1
        done.extend(message.body[0] for message in messages)

    config = settings(orderly=orderly, inflated_bytes_max=3 * MIB)
    async with client.push_consumer(config, ["orders"], handle) as consumer:
        await until(lambda: len(done) == 20)
        assert consumer._shared.inflation.used == 0
    assert sorted(done) == list(range(20))
    assert most <= 3


@pytest.mark.usefixtures("orders")
async def test_queue_takes_no_more_than_cached_bytes_max_where_it_has_some(client: Client) -> None:
    await send_raw(client, [zlib.compress(bytes([n]) * MIB) for n in range(12)])
    go_on = asyncio.Event()
    done: list[int] = []

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        await go_on.wait()
        done.extend(message.body[0] for message in messages)

    config = settings(cached_bytes_max=MIB)
    async with client.push_consumer(config, ["orders"], handle) as consumer:
        await until(lambda: consumer._shared.inflation.used == 2 * MIB)
        await asyncio.sleep(0.3)
        assert consumer._shared.inflation.used == 2 * MIB, "one message of each of two queues"
        go_on.set()
        await until(lambda: len(done) == 12)


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("orderly", [False, True])
async def test_bomb_goes_to_the_dead_letters_and_its_queue_goes_on(
    client: Client, caplog: pytest.LogCaptureFixture, *, orderly: bool
) -> None:
    bodies = [zlib.compress(b"a"), zlib.compress(bytes(2 * MIB)), zlib.compress(b"c")]
    await send_raw(client, bodies, ordering_key="k")
    done: list[bytes] = []

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        done.extend(message.body for message in messages)

    config = settings(orderly=orderly, inflated_bytes_max=MIB, suspend_s=0.01)
    async with client.push_consumer(config, ["orders"], handle):
        await until(lambda: set(done) == {b"a", b"c"})
    dead = client.pull_consumer("reader")
    (queue,) = await dead.queues(DEAD_LETTER_PREFIX + "g")
    (found,) = (await dead.pull(queue, 0, poll_s=10)).messages()
    assert found.keys == ("n1",)
    assert found.message_id in caplog.text


@pytest.mark.usefixtures("orders")
async def test_handler_that_looks_at_the_error_passes_over_the_bomb(client: Client) -> None:
    await send_raw(client, [zlib.compress(bytes(2 * MIB)), zlib.compress(b"c")], ordering_key="k")
    done: list[bytes | str] = []

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        done.extend(one.body if one.error is None else one.error.message_id for one in messages)

    config = settings(orderly=True, inflated_bytes_max=MIB, batch_messages_max=2)
    async with client.push_consumer(config, ["orders"], handle):
        await until(lambda: len(done) == 2)
    assert done[1] == b"c"


@pytest.mark.usefixtures("orders")
async def test_blocking_member_gets_everything_within_its_budget(
    client: Client, bootstrap: str
) -> None:
    bodies = [zlib.compress(bytes([n]) * MIB) for n in range(12)]
    bodies[5] = zlib.compress(bytes(4 * MIB))
    await send_raw(client, bodies)

    def work() -> list[object]:
        found: list[object] = []
        with BlockingClient(bootstrap) as blocking:
            config = settings(inflated_bytes_max=3 * MIB)
            with blocking.group_consumer(config, ["orders"]) as member:
                for _ in range(60):
                    polled = member.poll(0.2)
                    assert sum(len(one.body) for one in polled if one.error is None) <= 3 * MIB
                    found += [one.keys[0] if one.error else one.body[0] for one in polled]
                    if len(found) == 12:
                        break
        return found

    found = await asyncio.to_thread(work)
    assert sorted(found, key=str) == sorted([*(n for n in range(12) if n != 5), "n5"], key=str)


@pytest.mark.usefixtures("orders")
async def test_look_up_by_key_shows_a_bomb_as_an_error(client: Client) -> None:
    bomb = zlib.compress(bytes(INFLATED_BYTES_MAX + 1))
    await send_raw(client, [bomb], ordering_key="k")
    found: list[ReceivedMessage] = []
    async with asyncio.timeout(50):
        while not found:
            found = await client.admin.messages_by_key("orders", "n0")
    assert found[0].error is not None
    assert found[0].error.is_too_large


@pytest.mark.usefixtures("orders")
async def test_queue_held_at_a_failure_leaves_room_for_the_others(client: Client) -> None:
    bodies = [zlib.compress(bytes([n]) * MIB) for n in range(20)]
    await send_raw(client, bodies)
    stuck: list[MessageQueue] = []
    done: list[int] = []

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        (message,) = messages
        if not stuck:
            stuck.append(message.queue)
        if message.queue == stuck[0]:
            raise ValueError("never")
        done.append(message.body[0])

    config = settings(orderly=True, inflated_bytes_max=3 * MIB, suspend_s=0.01, drain_s=0.1)
    async with client.push_consumer(config, ["orders"], handle):
        await until(lambda: len(done) == 10)
