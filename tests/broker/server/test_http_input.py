"""What the admin port takes of requests that do not end, and how it goes on with those that do."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from imago_broker.app import Broker
from imago_broker.app.ports import admin_port
from imago_testing.clusters.brokers import loopback_config
from imago_testing.clusters.shard_brokers import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
LIMIT = 16 << 10


@pytest.fixture
async def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    monkeypatch.setattr(admin_port, "INPUT_BYTES_MAX", LIMIT)
    broker = Broker(loopback_config(tmp_path))
    await broker.start()
    yield broker
    await broker.stop()


class Peer:
    """One connection."""

    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self._reader, self._writer = streams

    @classmethod
    async def of(cls, broker: Broker) -> Peer:
        return cls(await asyncio.open_connection("127.0.0.1", broker.ports.admin_port))

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self) -> tuple[int, bytes]:
        """Return the status and the body of the next answer."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        body = await self._reader.readexactly(int(fields[b"Content-Length"]))
        return int(head.split(b" ")[1]), body

    async def rest(self) -> bytes:
        try:
            return await self._reader.read()
        except ConnectionError:
            return b""
        finally:
            self._writer.close()

    async def close(self) -> None:
        self._writer.close()


def topic(name: str, body: bytes, more: bytes = b"") -> bytes:
    head = b"PUT /admin/v1/topics/%b HTTP/1.1\r\nHost: localhost\r\n" % name.encode()
    return head + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize("size", [1, 13, 10_000])
async def test_requests_of_one_connection_are_answered_in_order(broker: Broker, size: int) -> None:
    peer = await Peer.of(broker)
    data = topic("a", b'{"queues":1}') + HEALTH + b"\r\n" + topic("b", b"{", b"X: y\r\n")
    data += b"PUT /admin/v1/topics/c HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    data += b'\r\n5\r\n{"que\r\n7\r\nues":2}\r\n0\r\n\r\n' + topic("d", b'{"queues":3}')
    for at in range(0, len(data), size):
        peer.send(data[at : at + size])
        if size < 100:
            await asyncio.sleep(0)
    answers = [await peer.answer() for _ in range(5)]
    assert [status for status, _ in answers] == [201, 200, 400, 201, 201]
    assert [json.loads(answers[at][1])["queues"] for at in (0, 3, 4)] == [1, 2, 3]
    await peer.close()


async def test_what_is_refused_before_its_body_leaves_the_connection(broker: Broker) -> None:
    peer = await Peer.of(broker)
    foreign = topic("a", b'{"queues":1}', b"Origin: http://elsewhere\r\n")
    peer.send(foreign + HEALTH + b"\r\n")
    assert [(await peer.answer())[0] for _ in range(2)] == [403, 200]
    await peer.close()


async def test_a_body_is_asked_for_once_it_may_come(broker: Broker) -> None:
    peer = await Peer.of(broker)
    whole = topic("a", b'{"queues":1}', b"Expect: 100-continue\r\n")
    head, end, body = whole.partition(b"\r\n\r\n")
    peer.send(head + end)
    assert await peer._reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    peer.send(body)
    assert (await peer.answer())[0] == 201
    await peer.close()


async def test_unfinished_requests_together_have_a_limit(broker: Broker) -> None:
    first, second = await Peer.of(broker), await Peer.of(broker)
    begun = HEALTH + b"X: " + b"a" * (LIMIT * 3 // 4 - 100)
    listener = broker.ports.admin._listener
    first.send(begun)
    await until(lambda: broker.ports.admin._input_budget.held > LIMIT // 2)
    second.send(begun)
    assert await second.rest() == b"", "it would have to wait"
    await until(lambda: listener.connections == 1)
    first.send(b"\r\n\r\n")
    assert (await first.answer())[0] in (200, 400)
    await first.close()


async def test_who_may_do_nothing_has_no_body_read(broker: Broker) -> None:
    peer = await Peer.of(broker)
    peer.send(b"PUT /nothing HTTP/1.1\r\nHost: elsewhere\r\nContent-Length: 1000000\r\n\r\n")
    assert (await peer.answer())[0] in (403, 404)
    for _ in range(40):
        peer.send(bytes(4096))
        await asyncio.sleep(0)
    assert broker.ports.admin._input_budget.held < LIMIT
    await peer.close()
