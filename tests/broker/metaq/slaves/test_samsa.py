"""This broker as the samsa master of a gregor slave: both have a message before it is answered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from imago_broker.replication.metaq import samsa
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_brokers import until
from imago_testing.peers.metaq import MetaqPeer, metaq_peer, put_frame, put_place, value_body
from imago_wire.text.commands import Sync
from imago_wire.text.decoder import Decoder

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from imago_broker.app import Broker

TOPIC = "topics.test.queues=2"


def to(port: int) -> tuple[str, ...]:
    return (TOPIC, f"metaq.samsa_slave=127.0.0.1:{port}", "metaq.samsa_timeout_ms=500")


async def connected(broker: Broker) -> None:
    await until(lambda: broker.samsa is not None and broker.samsa.refusal is None)


async def whole(peer: MetaqPeer, partition: int) -> bytes:
    found = b""
    while (answer := await peer.get("test", partition, len(found))).startswith(b"value"):
        found += value_body(answer)
    return found


async def test_both_sides_have_what_was_answered(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "slave", TOPIC, "metaq.gregor=true") as slave,
        running_broker(tmp_path / "master", *to(slave.metaq_port)) as master,
        metaq_peer(master.metaq_port) as peer,
        metaq_peer(slave.metaq_port) as other,
    ):
        await connected(master)
        for number in range(100):
            flag = number % 2
            body = (b"\0\0\0\3tag" if flag else b"") + b"x" * (number % 50)
            put_place(await peer.ask(put_frame("test", number % 2, body, flag=flag)))
        for number in range(2):
            expected = await whole(peer, number)
            assert len(expected) > 500
            assert await whole(other, number) == expected
    # The slave as the next master: positions and ids go on.
    async with running_broker(tmp_path / "slave", TOPIC) as broker:
        end = broker.store.position_range("test", 0)[1]
        async with metaq_peer(broker.metaq_port) as peer:
            assert put_place(await peer.put("test", 0, b"next"))[2] == end


async def test_without_its_slave_a_master_takes_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "slave", TOPIC, "metaq.gregor=true") as slave:
        port = slave.metaq_port
        async with running_broker(tmp_path / "master", *to(port)) as master:
            await connected(master)
            async with metaq_peer(master.metaq_port) as peer:
                put_place(await peer.put("test", 0, b"first"))
                await slave.stop()
                await until(lambda: master.samsa is not None and bool(master.samsa.refusal))
                text = b"Slave is disconnected "
                answer = await peer.put("test", 0, b"no")
                assert answer == b"result 500 %d 1\r\n%b" % (len(text), text)
                assert master.store.position_range("test", 0)[1] == 25
                again = (TOPIC, "metaq.gregor=true", f"metaq.port={port}")
                async with running_broker(tmp_path / "slave", *again):
                    await connected(master)
                    assert put_place(await peer.put("test", 0, b"second"))[2] == 25


class StubbornSlave(asyncio.Protocol):
    """Answers `sync` as it is told: with 200, 500, or not at all."""

    def __init__(self, codes: list[int]) -> None:
        self.codes = codes
        self.seen: list[Sync] = []
        self._decoder = Decoder(line_bytes_max=4096, body_bytes_max=1 << 20)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._decoder.feed(data)
        while command := self._decoder.next_command():
            if isinstance(command, Sync):
                self.seen.append(command)
                code = self.codes.pop(0) if self.codes else 200
                if code:
                    answer = b"result %d 2 %d\r\nno" % (code, command.opaque)
                    self.transport.write(answer)  # type: ignore[attr-defined]


async def test_what_the_slave_refuses_or_does_not_answer_has_failed(tmp_path: Path) -> None:
    slave = StubbornSlave([200, 500, 0, 200])
    server = await asyncio.get_running_loop().create_server(lambda: slave, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    text = f"Put message to [slave 'meta://127.0.0.1:{port}'] [partition 'test-0'] failed".encode()
    async with running_broker(tmp_path, *to(port)) as master:
        await connected(master)
        async with metaq_peer(master.metaq_port) as peer:
            places = [await peer.put("test", 0, b"hello") for _ in range(4)]
        assert [put_place(each)[2] for each in (places[0], places[3])] == [0, 75]
        for failed in places[1:3]:
            assert failed == b"result 500 %d 1\r\n%b" % (len(text), text)
        assert master.store.position_range("test", 0)[1] == 100, "the master has them all the same"
    assert [(each.topic, each.partition, each.body) for each in slave.seen] == [
        ("test", 0, b"hello")
    ] * 4
    assert all(each.message_id > 0 for each in slave.seen)
    server.close()


async def test_after_many_failures_the_slave_is_probed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samsa, "LOOK_SECONDS", 0.02)
    slave = StubbornSlave([500, 500, 500])
    server = await asyncio.get_running_loop().create_server(lambda: slave, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = (*to(port), "metaq.samsa_failures_max=2")
    async with running_broker(tmp_path, *settings) as master:
        await connected(master)
        async with metaq_peer(master.metaq_port) as peer:
            for _ in range(2):
                assert (await peer.put("test", 0, b"a")).startswith(b"result 500 ")
            await connected(master)
            put_place(await peer.put("test", 0, b"a"))
    probes = [each for each in slave.seen if each.topic == "_metaq_slave_status_test"]
    assert [(each.partition, each.body, each.checksum) for each in probes] == [
        (0, b"test", 1484750348)
    ] * 2
    server.close()


async def test_more_than_the_slave_can_take_has_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samsa, "WAITING_BYTES_MAX", 100)
    slave = StubbornSlave([0])
    server = await asyncio.get_running_loop().create_server(lambda: slave, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with running_broker(tmp_path, *to(port)) as master:
        await connected(master)
        async with metaq_peer(master.metaq_port) as peer:
            await peer.send(put_frame("test", 0, b"x" * 200))
            await until(lambda: len(slave.seen) == 1)
            assert (await peer.put("test", 0, b"more")).startswith(b"result 503 ")
            assert (await peer.frame()).startswith(b"result 500 ")
            put_place(await peer.put("test", 0, b"again"))
    server.close()


async def test_what_closes_every_connection_fills_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(samsa, "LOOK_SECONDS", 0.01)
    seen = 0

    def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen += 1
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    caplog.set_level("INFO")
    async with server, running_broker(tmp_path, *to(port)):
        await until(lambda: seen > 5)
    assert caplog.text.count("samsa_slave_connected") == 1
