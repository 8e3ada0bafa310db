"""A client of the gRPC port without an SDK: frames and messages as a test says them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
from typing import TYPE_CHECKING, Any

from hpack import Decoder, Encoder

from imago_wire.grpc import frames
from imago_wire.grpc.frames import END_HEADERS, END_STREAM, Http2Frame
from imago_wire.grpc.messages import SERVICE, encoded, parse

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

HEADERS = {
    "x-mq-client-id": "test@1@0@a",
    "x-mq-language": "PYTHON",
    "x-mq-client-version": "5.1.2",
    "x-mq-date-time": "20261130T000000Z",
}


def signed_headers(user: str, password: str) -> dict[str, str]:
    """Return what a user's client says of itself."""
    date = HEADERS["x-mq-date-time"]
    made = hmac.new(password.encode(), date.encode(), hashlib.sha1).hexdigest()
    told = f"MQv2-HMAC-SHA1 Credential={user}, SignedHeaders=x-mq-date-time, Signature={made}"
    return {**HEADERS, "authorization": told}


def request_headers(method: str, more: Mapping[str, str] = HEADERS) -> list[tuple[str, str]]:
    """Return a call's headers."""
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", SERVICE + method),
        (":authority", "broker"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        *more.items(),
    ]


def framed(message: bytes) -> bytes:
    """Return a message as gRPC has it in a stream."""
    return b"\0" + len(message).to_bytes(4, "big") + message


class SdkFrames:
    """Writes a client's frames, and reads a server's."""

    def __init__(self) -> None:
        self.encoder, self._decoder = Encoder(), Decoder()
        self._next = 1
        self._data = bytearray()

    def greeting(self) -> bytes:
        """How a connection begins."""
        return frames.PREFACE + frames.settings({})

    def begin(
        self, method: str, more: Mapping[str, str] = HEADERS, *, end: bool = False
    ) -> tuple[int, bytes]:
        """Return a new stream's number and its headers."""
        number, self._next = self._next, self._next + 2
        block = self.encoder.encode(request_headers(method, more))
        flags = END_HEADERS | (END_STREAM if end else 0)
        return number, frames.frame(Http2Frame.HEADERS, flags, number, block)

    def data(self, number: int, message: bytes, *, end: bool = True) -> bytes:
        """Return a message's frames."""
        whole, size = framed(message), frames.FRAME_BYTES_MAX
        parts = [whole[at : at + size] for at in range(0, len(whole), size)]
        return b"".join(
            frames.frame(
                Http2Frame.DATA, END_STREAM if end and part is parts[-1] else 0, number, part
            )
            for part in parts
        )

    def call(
        self, method: str, request: Any, more: Mapping[str, str] = HEADERS
    ) -> tuple[int, bytes]:
        """Return a unary call's number and all of its bytes."""
        number, head = self.begin(method, more)
        return number, head + self.data(number, encoded(request))

    def read(self, data: bytes) -> list[tuple[int, int, int, Any]]:
        """Return the server's frames: kind, flags, stream, and headers or bytes."""
        self._data += data
        found: list[tuple[int, int, int, Any]] = []
        while len(self._data) >= frames.HEAD_BYTES:
            size, kind, flags, number = frames.read_head(self._data, 0)
            end = frames.HEAD_BYTES + size
            if len(self._data) < end:
                break
            payload: Any = bytes(self._data[frames.HEAD_BYTES : end])
            del self._data[:end]
            if kind == Http2Frame.HEADERS:
                payload = dict(self._decoder.decode(payload))
            found.append((kind, flags, number, payload))
        return found


class SdkPeer:
    """One connection to a broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self.frames = SdkFrames()
        self._bodies: dict[int, bytearray] = {}
        self.trailers: dict[int, dict[str, str]] = {}
        self.resets: dict[int, int] = {}
        self.goaway: bytes | None = None

    @classmethod
    async def connect(
        cls, port: int, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> SdkPeer:
        """Connect, and say what an HTTP/2 client says first."""
        peer = cls(*await asyncio.open_connection(host, port, ssl=tls))
        peer.writer.write(peer.frames.greeting())
        return peer

    def start(self, method: str, request: Any, more: Mapping[str, str] = HEADERS) -> int:
        """Begin a call."""
        number, data = self.frames.call(method, request, more)
        self.writer.write(data)
        return number

    async def call(self, method: str, request: Any, more: Mapping[str, str] = HEADERS) -> Any:
        """Return the answer of a unary call."""
        return (await self.answers(self.start(method, request, more), f"{method}Response"))[0]

    async def answers(self, number: int, name: str) -> Sequence[Any]:
        """Return all messages of an answer, once it is whole."""
        while number not in self.trailers:
            await self.step()
        return self.messages(number, name)

    def messages(self, number: int, name: str) -> list[Any]:
        """Return, and forget, the messages that have come in a stream."""
        body, found = self._bodies.get(number, bytearray()), []
        while len(body) >= 5 and len(body) >= 5 + (size := int.from_bytes(body[1:5], "big")):
            found.append(parse(name, bytes(body[5 : 5 + size])))
            del body[: 5 + size]
        return found

    async def message(self, number: int, name: str) -> Any:
        """Return the next message of a stream that goes on."""
        while True:
            if found := self.messages(number, name):
                assert len(found) == 1
                return found[0]
            await self.step()

    async def step(self) -> None:
        """Read once."""
        for kind, flags, number, payload in self.frames.read(await self._data()):
            if kind == Http2Frame.DATA:
                self._bodies.setdefault(number, bytearray()).extend(payload)
                size = len(payload)
                if size:
                    for stream in (0, number):
                        self.writer.write(frames.window_update(stream, size))
            elif kind == Http2Frame.HEADERS and flags & END_STREAM:
                self.trailers[number] = payload
            elif kind == Http2Frame.RST_STREAM:
                self.resets[number] = int.from_bytes(payload, "big")
            elif kind == Http2Frame.GOAWAY:
                self.goaway = payload

    async def _data(self) -> bytes:
        data = await asyncio.wait_for(self._reader.read(1 << 16), 50)
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        return data

    async def ended(self) -> None:
        """Wait until the broker closes the connection."""
        while True:
            try:
                data = await asyncio.wait_for(self._reader.read(1 << 16), 50)
            except ConnectionResetError:
                return  # it had not read all that was sent
            if not data:
                return
            for kind, _, _, payload in self.frames.read(data):
                if kind == Http2Frame.GOAWAY:
                    self.goaway = payload

    async def close(self) -> None:
        """Leave."""
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()
