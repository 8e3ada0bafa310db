"""A client of the remoting protocol that says exactly what a test tells it to."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

from imago_wire.remoting.command import FLAG_ONEWAY, RemotingCommand, SerializeType
from imago_wire.remoting.frame import FrameDecoder, encode_frame
from imago_wire.remoting.messages import decode_messages
from imago_wire.remoting.peer import OWN_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_wire.records.record import StoredMessage

WAIT_SECONDS = 50.0
"""Only so that a test that would hang fails instead."""


class RemotingPeer:
    """One connection. Frames that nobody waits for are kept, in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder()
        self._kept: list[RemotingCommand] = []
        self._opaque = 0

    @classmethod
    async def connect(cls, port: int) -> RemotingPeer:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    @property
    def address(self) -> tuple[str, int]:
        """Our end: what the broker calls this peer."""
        host, port = self._writer.get_extra_info("sockname")
        return host, port

    async def call(
        self,
        code: int,
        ext: Mapping[str, object] | None = None,
        body: bytes = b"",
        *,
        version: int = OWN_VERSION,
        serialize: SerializeType = SerializeType.JSON,
    ) -> RemotingCommand:
        """Send a request and return its answer."""
        opaque = self.send(code, ext, body, version=version, serialize=serialize)
        return await self.answer(opaque)

    def send(
        self,
        code: int,
        ext: Mapping[str, object] | None = None,
        body: bytes = b"",
        *,
        oneway: bool = False,
        version: int = OWN_VERSION,
        serialize: SerializeType = SerializeType.JSON,
    ) -> int:
        """Send a request and return its number."""
        self._opaque += 1
        command = RemotingCommand(
            code=int(code),
            flag=FLAG_ONEWAY if oneway else 0,
            opaque=self._opaque,
            version=version,
            ext={key: str(value) for key, value in (ext or {}).items()},
            body=body,
            serialize=serialize,
        )
        self.write(encode_frame(command))
        return self._opaque

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)

    async def answer(self, opaque: int) -> RemotingCommand:
        """Wait for the answer to a request."""
        return await self._first(lambda one: one.is_response and one.opaque == opaque)

    async def request(self, code: int) -> RemotingCommand:
        """Wait for a request of the broker's own."""
        return await self._first(lambda one: not one.is_response and one.code == code)

    async def closed(self) -> bool:
        """Wait until the other side closes; False when it sends something else first."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                return await self._reader.read(1 << 16) == b""
        except ConnectionError:
            return True

    async def _first(self, wanted: object) -> RemotingCommand:
        assert callable(wanted)
        while True:
            for at, command in enumerate(self._kept):
                if wanted(command):
                    return self._kept.pop(at)
            async with asyncio.timeout(WAIT_SECONDS):
                data = await self._reader.read(1 << 18)
            if not data:
                raise ConnectionError("closed by the other side")
            self._decoder.feed(data)
            while (frame := self._decoder.next_frame()) is not None:
                self._kept.append(frame)

    @property
    def unread(self) -> list[RemotingCommand]:
        """Frames that have come and that nobody asked for."""
        return self._kept

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    # -- what most tests do ---------------------------------------------------------------------

    async def put(
        self, topic: str, body: bytes, *, queue_id: int = 0, properties: str = "", **more: object
    ) -> RemotingCommand:
        """Send one message as Java clients do; `more` are fields of the V2 header."""
        return await self.call(310, send_ext(topic, queue_id, properties, **more), body)

    async def pull(self, topic: str, offset: int = 0, **more: object) -> RemotingCommand:
        """Pull without waiting; `more` are fields of the pull header."""
        return await self.call(11, pull_ext(topic, offset, **more))

    async def messages(self, topic: str, offset: int = 0, **more: object) -> list[StoredMessage]:
        """Pull and decode."""
        answer = await self.pull(topic, offset, **more)
        return decode_messages(answer.body)


def send_ext(
    topic: str, queue_id: int = 0, properties: str = "", **more: object
) -> dict[str, object]:
    """Return the V2 header of a send."""
    fields: dict[str, object] = {
        "a": "producers",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": 1_700_000_000_000,
        "h": 0,
        "i": properties or "UNIQ_KEY\x01" + "0" * 32 + "\x02",
        "j": 0,
    }
    return {**fields, **more}


def pull_ext(topic: str, offset: int = 0, **more: object) -> dict[str, object]:
    """Return the header of a pull that brings its own subscription and does not wait."""
    fields: dict[str, object] = {
        "consumerGroup": "consumers",
        "topic": topic,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 15_000,
        "subVersion": 0,
        "subscription": "*",
    }
    return {**fields, **more}


def heartbeat(group: str, *, version: int = 1, client: str = "client") -> bytes:
    """Return the heartbeat of a consumer of topic T, which is a producer of group P too."""
    subscription = {"topic": "T", "subString": "*", "subVersion": version}
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [subscription],
    }
    return json.dumps(
        {
            "clientID": client,
            "consumerDataSet": [consumer],
            "producerDataSet": [{"groupName": "P"}],
        }
    ).encode()
