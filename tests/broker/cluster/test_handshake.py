"""The question for the session time-out, put to servers of every kind."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from imago_broker.cluster.session.handshake import granted_session_timeout_ms

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

GRANT = struct.pack(">iiqi16s?", 0, 4000, 0x1234, 16, bytes(16), False)


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


async def test_the_server_is_asked_for_a_session_and_told_to_close_it() -> None:
    received: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readexactly(4 + 45))
        writer.write(struct.pack(">i", len(GRANT)) + GRANT)
        received.append(await reader.readexactly(12))

    async with server(answer) as port:
        assert await granted_session_timeout_ms("127.0.0.1", port, wanted_ms=6000) == 4000
    request = (45, 0, 0, 6000, 0, 16, bytes(16), False)
    assert struct.unpack(">iiqiqi16s?", received[0]) == request
    assert struct.unpack(">iii", received[1]) == (8, 1, -11), "closeSession"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x00",
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", 1 << 30),
        struct.pack(">i", len(GRANT)) + GRANT[:7],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
async def test_what_is_no_zookeeper_is_refused(sent: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4 + 45)
        writer.write(sent)

    async with server(answer) as port:
        with pytest.raises(ConnectionError):
            await granted_session_timeout_ms("127.0.0.1", port, wanted_ms=6000)
