"""Pipelining clients of both protocols on raw sockets: they never send anything twice."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from imago_testing.chaos.credentials import OPEN, Address
from imago_testing.peers.remoting import pull_ext, send_ext
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.frame import FrameDecoder, encode_frame
from imago_wire.remoting.messages import BatchEntry, encode_batch
from imago_wire.text.commands import Get, Put, Result, Value
from imago_wire.text.decoder import Decoder
from imago_wire.text.encoder import encode
from imago_wire.text.message import encode_body

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from imago_testing.chaos.credentials import Credentials
    from imago_testing.chaos.history import Queue

_READ_BYTES = 1 << 18
_FETCH_BYTES = 1 << 19
GROUP = "chaos"
XA = "XID:100:676c:6271:chaos"
"""What the keys of transactions begin with."""
Answer = TypeVar("Answer")


_OPEN_SECONDS_MAX = 3.0
ANSWER_SECONDS_MAX = 15.0
"""A broker that answers nothing for so long counts as lost."""

Where = Callable[[], Awaitable[Address]]
"""Says where to connect to now, and with what; OSError when nobody knows."""


class ConnectionLostError(Exception):
    """The broker is gone; whether it did what it was last asked is unknown."""


class RefusedError(Exception):
    """The broker answered that it does not do what it was asked."""


def fixed(port: int) -> Where:
    """Return the place of the only broker there is."""

    async def where() -> Address:
        return Address("127.0.0.1", port)

    return where


class Connection(ABC, Generic[Answer]):
    """Requests by number, answers in any order. After a loss every request fails."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        credentials: Credentials = OPEN,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._credentials = credentials
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._numbers = itertools.count(1)
        self._lost = False
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, where: Where) -> Self:
        """Raise OSError when nobody listens."""
        async with asyncio.timeout(_OPEN_SECONDS_MAX):
            host, port, credentials = await where()
            opened = await asyncio.open_connection(host, port, **credentials.transport())
            return cls(*opened, credentials)

    @abstractmethod
    def _decode(self, data: bytes) -> Iterable[tuple[int, Answer]]:
        """Return the answers that are whole now, with the numbers of their requests."""

    def _send(self, number: int, data: bytes) -> asyncio.Future[Answer]:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self._lost or self._writer.is_closing():
            future.set_exception(ConnectionLostError())
            return future
        self._waiting[number] = future
        self._writer.write(data)
        asyncio.get_running_loop().call_later(ANSWER_SECONDS_MAX, self._give_up, number)
        return future

    def _give_up(self, number: int) -> None:
        if number in self._waiting:
            self._writer.transport.abort()

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(_READ_BYTES):
                for number, answer in self._decode(data):
                    future = self._waiting.pop(number, None)
                    if future is not None and not future.done():
                        future.set_result(answer)
        except OSError:
            pass  # as good as an end of the stream, in TLS too
        finally:
            self._lost = True
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(ConnectionLostError())
            self._waiting.clear()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


class MetaqConnection(Connection[Result | Value]):
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        credentials: Credentials = OPEN,
    ) -> None:
        self._decoder = Decoder(line_bytes_max=4096, body_bytes_max=4 << 20)
        super().__init__(reader, writer, credentials)

    def _decode(self, data: bytes) -> Iterable[tuple[int, Result | Value]]:
        self._decoder.feed(data)
        while (command := self._decoder.next_command()) is not None:
            assert isinstance(command, Result | Value), command
            yield command.opaque, command

    def put(
        self, queue: Queue, payload: bytes, attribute: str | None
    ) -> asyncio.Future[Result | Value]:
        number = next(self._numbers)
        flag, body = encode_body(payload, attribute)
        return self._send(number, encode(Put(queue.topic, queue.number, flag, body, number)))

    def get(
        self, queue: Queue, position: int, bytes_max: int = _FETCH_BYTES
    ) -> asyncio.Future[Result | Value]:
        number = next(self._numbers)
        command = Get(queue.topic, GROUP, queue.number, position, bytes_max, number)
        return self._send(number, encode(command))


class RemotingConnection(Connection[RemotingCommand]):
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        credentials: Credentials = OPEN,
    ) -> None:
        self._decoder = FrameDecoder()
        super().__init__(reader, writer, credentials)

    def _decode(self, data: bytes) -> Iterable[tuple[int, RemotingCommand]]:
        self._decoder.feed(data)
        while (command := self._decoder.next_frame()) is not None:
            if command.is_response:
                yield command.opaque, command

    def call(
        self, code: RequestCode, ext: Mapping[str, object], body: bytes = b""
    ) -> asyncio.Future[RemotingCommand]:
        number = next(self._numbers)
        texts = {name: str(value) for name, value in ext.items()}
        fields = dict(self._credentials.signed(texts, body))
        command = RemotingCommand(code=code, opaque=number, ext=fields, body=body)
        return self._send(number, encode_frame(command))

    def put(
        self, queue: Queue, bodies: Sequence[bytes], light: Sequence[str] = ()
    ) -> asyncio.Future[RemotingCommand]:
        """Send one message, which may name light queues, or several as a batch."""
        if len(bodies) == 1:
            named = f"INNER_MULTI_DISPATCH\x01{','.join(light)}\x02" if light else ""
            ext = send_ext(queue.topic, queue.number, f"TAGS\x01{tags(1)}\x02{named}")
            return self.call(RequestCode.SEND_MESSAGE_V2, ext, bodies[0])
        ext = send_ext(queue.topic, queue.number, m="true")
        batch = encode_batch(
            BatchEntry(body, f"TAGS\x01{tags(len(bodies))}\x02".encode()) for body in bodies
        )
        return self.call(RequestCode.SEND_BATCH_MESSAGE, ext, batch)

    def pull(self, queue: Queue, offset: int, hold_ms: int) -> asyncio.Future[RemotingCommand]:
        """Pull; an empty answer may be held back for `hold_ms`."""
        holds = 2 if hold_ms else 0
        brings_its_subscription = 4
        ext = pull_ext(
            queue.topic,
            offset,
            queueId=queue.number,
            consumerGroup=GROUP,
            sysFlag=holds | brings_its_subscription,
            suspendTimeoutMillis=hold_ms,
        )
        return self.call(RequestCode.PULL_MESSAGE, ext)

    def end(self, queue: Queue) -> asyncio.Future[RemotingCommand]:
        """Ask for the offset behind the last message."""
        ext = {"topic": queue.topic, "queueId": queue.number}
        return self.call(RequestCode.GET_MAX_OFFSET, ext)

    def commit(self, queue: Queue, offset: int) -> asyncio.Future[RemotingCommand]:
        ext = _group_ext(queue) | {"commitOffset": offset}
        return self.call(RequestCode.UPDATE_CONSUMER_OFFSET, ext)

    def committed(self, queue: Queue) -> asyncio.Future[RemotingCommand]:
        return self.call(RequestCode.QUERY_CONSUMER_OFFSET, _group_ext(queue))


def tags(count: int) -> str:
    """Return the tag of messages that are sent `count` at a time."""
    return "one" if count == 1 else "batch"


def _group_ext(queue: Queue) -> dict[str, object]:
    return {"consumerGroup": GROUP, "topic": queue.topic, "queueId": queue.number}
