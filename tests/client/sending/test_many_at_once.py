"""Many calls at once: one question for a route, sends that wait their turn, nothing left over."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_client import (
    Client,
    ClientConfig,
    ConsumerConfig,
    Message,
    MessageQueue,
    NoRouteError,
    ProducerConfig,
    StartFrom,
    UsageError,
)
from imago_client.connections.admission import Admission
from imago_client.core.effects import Operation, Request, Wait
from imago_client.core.lookup import find_route
from imago_client.rocketmq.driver import Driver
from imago_testing.peers.client_scripts import ScriptedServers, response, route_body
from imago_wire.record_format.layout import SYS_COMPRESSED
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_client import ReceivedMessage
    from imago_client.core.routing import TopicRoute

SYS_FLAG_AT = 36
"""In a record: after size, magic, checksum, queue, flag, queue offset and log offset."""


def start_two(world: ScriptedServers) -> tuple[Operation[TopicRoute], Operation[TopicRoute], Wait]:
    """Let two ask for one route: the first asks the name service, the second waits for it."""
    first, second = find_route(world.state, "orders"), find_route(world.state, "orders")
    assert isinstance(next(first), Request)
    waiting = next(second)
    assert isinstance(waiting, Wait)
    assert not waiting.gate.is_open
    return first, second, waiting


def test_one_question_serves_all_who_want_the_route() -> None:
    first, second, waiting = start_two(ScriptedServers())
    with pytest.raises(StopIteration) as found:
        first.send(response(body=route_body({"a": "a:1"})))
    assert waiting.gate.is_open
    with pytest.raises(StopIteration) as shared:
        second.send(None)
    assert shared.value.value is found.value.value


def test_error_of_the_one_question_is_everybodys() -> None:
    first, second, _ = start_two(ScriptedServers())
    with pytest.raises(NoRouteError):
        first.send(response(ResponseCode.TOPIC_NOT_EXIST))
    with pytest.raises(NoRouteError):
        second.send(None)


def test_who_waited_asks_when_the_first_was_given_up() -> None:
    first, second, waiting = start_two(ScriptedServers())
    first.close()
    assert waiting.gate.is_open
    assert isinstance(second.send(None), Request)


async def test_sends_wait_their_turn_by_number_and_by_bytes() -> None:
    admission = Admission(count_max=3, bytes_max=100)
    inside: list[int] = []
    ends: dict[int, asyncio.Event] = {}

    async def send(number: int, size: int) -> None:
        async with admission.room(size):
            inside.append(number)
            ends[number] = asyncio.Event()
            await ends[number].wait()
            inside.remove(number)

    async def settle() -> list[int]:
        for _ in range(5):
            await asyncio.sleep(0)
        return list(inside)

    sizes = [500, 60, 30, 20, 1]
    tasks = [asyncio.create_task(send(number, size)) for number, size in enumerate(sizes)]
    assert await settle() == [0]  # larger than all, and alone
    ends[0].set()
    assert await settle() == [1, 2]
    tasks[3].cancel()  # it stood before one that fits
    assert await settle() == [1, 2, 4]
    for number in (1, 2, 4):
        ends[number].set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert tasks[3].cancelled()


async def test_send_given_up_as_it_is_let_in_leaves_its_room() -> None:
    admission = Admission(count_max=1, bytes_max=1)

    async def send() -> None:
        async with admission.room(1):
            pass

    async with admission.room(1):
        waiting = asyncio.create_task(send())
        await asyncio.sleep(0)
    waiting.cancel()  # its turn has come in this very turn of the loop
    await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(50):
        await send()


async def test_thousands_of_sends_called_at_once_are_all_stored(client: Client) -> None:
    producer = client.producer(ProducerConfig(send_timeout_s=60))
    count = 3000
    results = await asyncio.gather(
        *(producer.send(Message("orders", b"%d" % number)) for number in range(count))
    )
    assert len({(result.queue, result.offset) for result in results}) == count


async def test_close_does_not_wait_for_a_server_that_reads_nothing() -> None:
    held: list[asyncio.StreamWriter] = []

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's, both ways
        held.append(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    config = ClientConfig(bootstrap=(address,), request_timeout_s=0.2)
    driver = Driver(config, lambda *_: None)

    def flood() -> Operation[None]:
        for _ in range(8):
            yield Request(address, 1, body=bytes(8 << 20), timeout_s=0.01)

    with pytest.raises(Exception, match="no answer"):
        await driver.run(flood())
    async with asyncio.timeout(50):
        await driver.close()
    for writer in held:
        writer.transport.abort()
    server.close()
    await server.wait_closed()


def test_client_of_another_event_loop_is_refused() -> None:
    client = Client("127.0.0.1:1")

    async def use() -> None:
        await client.admin.topics()

    with pytest.raises(Exception, match="Connection refused"):
        asyncio.run(use())
    with pytest.raises(UsageError, match="event loop"):
        asyncio.run(use())


async def ignore(messages: Sequence[ReceivedMessage]) -> None:
    del messages


async def test_consumer_can_be_started_again_after_a_stop(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    got = asyncio.Event()

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        del messages
        got.set()

    config = ConsumerConfig(group="g", start_from=StartFrom.EARLIEST)
    consumer = client.push_consumer(config, ["orders"], handle)
    async with asyncio.timeout(50):
        for _ in range(2):
            got.clear()
            async with consumer:
                await client.producer().send(Message("orders", b"x"))
                await got.wait()
                with pytest.raises(UsageError, match="runs already"):
                    await consumer.start()


async def test_group_is_free_again_after_a_start_that_failed(client: Client) -> None:
    consumer = client.push_consumer("g", ["nothing-here"], ignore)
    with pytest.raises(NoRouteError):
        await consumer.start()
    client.push_consumer("g", ["orders"], ignore)


async def test_handler_may_not_stop_its_own_consumer(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    told: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        del messages
        try:
            await consumer.stop()
        except UsageError as error:
            told.set_result(error)

    config = ConsumerConfig(group="g", start_from=StartFrom.EARLIEST)
    consumer = client.push_consumer(config, ["orders"], handle)
    async with asyncio.timeout(50), consumer:
        await client.producer().send(Message("orders", b"x"))
        assert "handlers" in str(await told)


async def test_body_that_cannot_be_inflated_comes_as_stored(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await client.producer().send(Message("orders", b"plain"))
    consumer = client.pull_consumer("g")
    pulled = await consumer.pull((await consumer.queues("orders"))[0], 0)
    record = bytearray(pulled.body)
    record[SYS_FLAG_AT + 3] |= SYS_COMPRESSED
    told = replace(pulled, body=bytes(record) + pulled.body)
    assert [message.body for message in told.messages()] == [b"plain", b"plain"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"body": "text"},
        {"body": None},
        {"keys": "order-17"},
        {"keys": (17,)},
        {"flag": 1 << 31},
    ],
)
def test_message_of_wrong_values_is_refused_when_it_is_made(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Message(**({"topic": "orders", "body": b"x"} | wrong))  # type: ignore[arg-type]  # wrong


@pytest.mark.parametrize("wrong", [{"tags": "\udc80"}, {"tags": 1}, {"properties": {"n": 1}}])
async def test_text_that_is_none_is_refused_before_anything_is_sent(
    wrong: dict[str, object],
) -> None:
    async with Client("127.0.0.1:1") as client:
        with pytest.raises(UsageError, match="text"):
            await client.producer().send(Message("orders", b"x", **wrong))  # type: ignore[arg-type]


async def test_names_that_cannot_be_sent_are_refused(client: Client) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        await client.pull_consumer("g").queues("\udc80")
    await client.admin.create_topic("orders", queues=1)
    with pytest.raises(UsageError, match="not one of topic"):
        await client.producer().send(
            Message("orders", b"x"), queue=MessageQueue("other", "shard-0", 0)
        )
    with pytest.raises(UsageError, match="perm"):
        await client.admin.create_topic("orders", perm=9)
