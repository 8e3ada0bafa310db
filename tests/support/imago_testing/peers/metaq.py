"""A MetaQ client that sees bytes: what was answered, exactly."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class MetaqPeer:
    """One connection to a MetaQ port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @property
    def address(self) -> tuple[str, int]:
        """This side's address, which the broker sees as its peer's."""
        host, port = self.writer.get_extra_info("sockname")[:2]
        return host, port

    async def ask(self, request: bytes) -> bytes:
        """Send a request and return its answer, the whole frame."""
        self.writer.write(request)
        return await self.frame()

    async def send(self, data: bytes) -> None:
        """Send bytes and wait until the kernel has them."""
        self.writer.write(data)
        await self.writer.drain()

    async def frame(self) -> bytes:
        """Return the next answer: its line and its body."""
        line = await self.reader.readuntil(b"\r\n")
        words = line.split()
        size = int(words[2] if words[0] == b"result" else words[1])
        return line + await self.reader.readexactly(size)

    async def frames(self, count: int) -> list[bytes]:
        """Return the next answers."""
        return [await self.frame() for _ in range(count)]

    async def put(self, topic: str, partition: int, body: bytes, *, flag: int = 0) -> bytes:
        """Put a message with its checksum; return the answer's frame."""
        return await self.ask(put_frame(topic, partition, body, flag=flag))

    async def get(self, topic: str, partition: int, offset: int, size: int = 1 << 20) -> bytes:
        """Return the answer's frame."""
        return await self.ask(
            b"get %b g %d %d %d 5\r\n" % (topic.encode(), partition, offset, size)
        )

    async def is_closed_without_an_answer(self) -> bool:
        """Wait for the end of the connection; return whether nothing came before it."""
        return await self.rest() == b""

    async def rest(self) -> bytes:
        """Return everything until the broker closes."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""


def put_frame(topic: str, partition: int, body: bytes, *, flag: int = 0, opaque: int = 1) -> bytes:
    """Return a put as clients since 1.4.4 send it."""
    checksum = zlib.crc32(body) & 0x7FFFFFFF
    head = f"put {topic} {partition} {len(body)} {flag} {checksum} {opaque}\r\n"
    return head.encode() + body


def put_place(frame: bytes) -> tuple[int, int, int]:
    """Return id, partition and position out of the answer to a put that succeeded."""
    line, _, text = frame.partition(b"\r\n")
    assert line.startswith(b"result 200 "), frame
    message_id, partition, position = text.split(b" ")
    return int(message_id), int(partition), int(position)


def value_body(frame: bytes) -> bytes:
    """Return the stored messages out of the answer to a get that found some."""
    line, _, body = frame.partition(b"\r\n")
    assert line.startswith(b"value "), frame
    return body


@asynccontextmanager
async def metaq_peer(port: int) -> AsyncIterator[MetaqPeer]:
    """Connect to a broker on loopback."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    peer = MetaqPeer(reader, writer)
    try:
        yield peer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):  # the broker may have had reasons to reset it
            await writer.wait_closed()
