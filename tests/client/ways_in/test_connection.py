"""The asyncio connection and driver against servers that misbehave."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from imago_client import (
    Client,
    ClientClosedError,
    ClientConfig,
    ConnectionLostError,
    RequestTimeoutError,
)
from imago_client.core.effects import Request, ask
from imago_client.metaq import MetaqClient, MetaqConfig
from imago_client.rocketmq.driver import Driver
from imago_wire.remoting.command import FLAG_RESPONSE, RemotingCommand
from imago_wire.remoting.frame import FrameDecoder, encode_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from imago_client.rocketmq.connection import Connection

    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[str]:
    """Serve every connection with a coroutine function; give the address."""
    writers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await serve(reader, writer)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        await server.wait_closed()


async def commands(reader: asyncio.StreamReader) -> AsyncIterator[RemotingCommand]:
    decoder = FrameDecoder()
    while data := await reader.read(1 << 16):
        decoder.feed(data)
        while command := decoder.next_frame():
            yield command


def unasked(_connection: Connection, command: RemotingCommand) -> None:
    raise AssertionError(command)


@asynccontextmanager
async def driving(**settings: float) -> AsyncIterator[Driver]:
    config = ClientConfig(bootstrap=("127.0.0.1:1",), **settings)  # type: ignore[arg-type]  # a table
    driver = Driver(config, unasked)
    try:
        yield driver
    finally:
        await driver.close()


def echo(command: RemotingCommand) -> bytes:
    return encode_frame(
        RemotingCommand(
            code=command.code, flag=FLAG_RESPONSE, opaque=command.opaque, body=command.body
        )
    )


async def test_answers_find_their_requests_in_whatever_order_they_come() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held: list[RemotingCommand] = []
        async for command in commands(reader):
            held.append(command)
            if len(held) == 10:
                writer.write(b"".join(echo(one) for one in reversed(held)))

    async with serving(serve) as address, driving() as driver:
        answers = await asyncio.gather(
            *(driver.run(ask(Request(address, 5, body=b"%d" % n))) for n in range(10))
        )
        assert [answer.body for answer in answers] == [b"%d" % n for n in range(10)]


async def test_late_answer_is_dropped_and_the_connection_used_on() -> None:
    go_on = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for command in commands(reader):
            if command.body == b"slow":
                await go_on.wait()
            writer.write(echo(command))

    async with serving(serve) as address, driving() as driver:
        with pytest.raises(RequestTimeoutError, match=r"0\.05 s"):
            await driver.run(ask(Request(address, 5, body=b"slow", timeout_s=0.05)))
        go_on.set()
        answer = await driver.run(ask(Request(address, 5, body=b"fast")))
        assert answer.body == b"fast"


async def test_lost_connection_fails_what_waits_and_is_opened_again() -> None:
    count = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        async for command in commands(reader):
            if count == 1:
                writer.close()
                return
            writer.write(echo(command))

    async with serving(serve) as address, driving() as driver:
        requests = [ask(Request(address, 5, body=b"x")) for _ in range(3)]
        failed = await asyncio.gather(*map(driver.run, requests), return_exceptions=True)
        assert {type(error) for error in failed} == {ConnectionLostError}
        assert (await driver.run(ask(Request(address, 5, body=b"again")))).body == b"again"
        assert count == 2


async def test_server_of_another_protocol_is_an_error_that_names_it() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serving(serve) as address, driving() as driver:
        with pytest.raises(ConnectionLostError, match=f"{address}: broke the protocol"):
            await driver.run(ask(Request(address, 5)))


async def test_answer_beyond_the_limit_ends_the_connection() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for command in commands(reader):
            writer.write(echo(command))

    async with serving(serve) as address, driving(frame_bytes_max=1000) as driver:
        with pytest.raises(ConnectionLostError, match="limit is 1000"):
            await driver.run(ask(Request(address, 5, body=bytes(2000))))


async def test_no_more_requests_are_in_flight_than_allowed() -> None:
    in_flight: list[RemotingCommand] = []
    most = 0
    go_on = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most

        async def answer() -> None:
            await go_on.wait()
            while True:
                while in_flight:
                    writer.write(echo(in_flight.pop()))
                await asyncio.sleep(0)

        answering = asyncio.create_task(answer())
        async for command in commands(reader):
            in_flight.append(command)
            most = max(most, len(in_flight))
            if len(in_flight) == 4:
                go_on.set()
        answering.cancel()

    async with serving(serve) as address, driving(in_flight_max=4) as driver:
        asked = [driver.run(ask(Request(address, 5, timeout_s=20))) for _ in range(40)]
        assert len(await asyncio.gather(*asked)) == 40
    assert most == 4


async def test_nobody_listening_is_told_at_once() -> None:
    async with Client("127.0.0.1:1") as client:
        with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:1"):
            await client.admin.topics()


async def test_closed_client_says_so() -> None:
    client = Client("127.0.0.1:1")
    await client.close()
    with pytest.raises(ClientClosedError):
        await client.admin.topics()


async def test_idle_metaq_connection_is_kept_alive_and_given_up_when_nobody_answers() -> None:
    beats: list[bytes] = []
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            if line.startswith(b"stats"):
                opaque = line.split()[-1]
                writer.write(b"result 200 4 %b\r\na 1\n" % opaque)
            else:
                beats.append(line)
                if len(beats) <= 2:
                    writer.write(b"result 200 1 %b\r\n1" % line.split()[-1])
        closed.set()

    async with serving(serve) as address:
        config = MetaqConfig(servers=(address,), heartbeat_s=0.02, request_timeout_s=0.1)
        async with MetaqClient(config) as client:
            assert await client.stats(address) == {"a": "1"}
            await asyncio.wait_for(closed.wait(), 20)
    assert len(beats) == 5  # two answered, then three misses
    assert {beat.split()[0] for beat in beats} == {b"version"}


async def test_metaq_server_that_vanishes_is_an_error_then_found_again() -> None:
    count = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        line = await reader.readline()
        if count > 1:
            writer.write(b"result 200 4 %b\r\na 1\n" % line.split()[-1])
        writer.close()

    async with serving(serve) as address, MetaqClient(address) as client:
        with pytest.raises(ConnectionLostError):
            await client.stats(address)
        assert await client.stats(address) == {"a": "1"}
