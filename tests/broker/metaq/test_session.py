"""One connection: framing, back-pressure, idle and stuck peers, closing in order."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from imago_broker.server.text.text_session import TextSession
from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.metaq import MetaqPeer, metaq_peer, put_frame, put_place, value_body

if TYPE_CHECKING:
    from pathlib import Path

    from imago_broker.app import Broker

VERSION = b"result 200 7 1\r\n1.4.6.2"


def only_session(broker: Broker) -> TextSession:
    (session,) = broker.ports.metaq.sessions
    assert isinstance(session, TextSession)
    return session


async def settle(turns: int = 20) -> None:
    """Let what is under way on this loop go on for some turns."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def stuck_session(broker: Broker) -> TextSession:
    """Wait for a session whose peer has stopped to take its answers."""
    while True:
        for session in broker.ports.metaq.sessions:
            assert isinstance(session, TextSession)
            if session.transport.get_write_buffer_size():
                return session
        await asyncio.sleep(0)


async def test_requests_may_arrive_byte_by_byte(broker: Broker, peer: MetaqPeer) -> None:
    data = put_frame("test", 0, b"hello") + b"get test g 0 0 100 2\r\nversion 1\r\n"
    session = only_session(broker)
    for at in range(len(data)):
        session.data_received(data[at : at + 1])
    frames = await peer.frames(3)
    assert sorted(frame.split(b" ")[0] for frame in frames) == [b"result", b"result", b"result"]
    assert VERSION in frames


@pytest.mark.parametrize("cut", [1, 7, 40, 41, 60])
async def test_requests_may_be_cut_anywhere(broker: Broker, peer: MetaqPeer, cut: int) -> None:
    data = put_frame("test", 0, b"hello") * 3 + b"version 1\r\n"
    session = only_session(broker)
    for at in range(0, len(data), cut):
        session.data_received(data[at : at + cut])
    frames = await peer.frames(4)
    assert VERSION in frames
    assert sum(frame.startswith(b"result 200 2") for frame in frames) == 3


async def test_pipelined_requests_are_answered_in_few_writes(peer: MetaqPeer) -> None:
    await peer.send(b"".join(put_frame("test", 0, b"x", opaque=n) for n in range(500)))
    positions = [put_place(frame)[2] for frame in await peer.frames(500)]
    assert positions == [21 * n for n in range(500)]


@pytest.mark.parametrize("word", [b"quit\r\n", b"qqq\r\n", b"quit now please\r\n"])
async def test_quit_closes_after_what_was_asked_is_answered(
    broker: Broker, peer: MetaqPeer, word: bytes
) -> None:
    await peer.send(put_frame("test", 0, b"hello") + b"version 1\r\n" + word + b"version 2\r\n")
    answers = await peer.rest()
    assert answers.count(b"result 200 ") == 2
    assert VERSION in answers
    assert b"result 200 7 2" not in answers
    await broker.ports.metaq.until_connections(0)


async def test_config_then_quit_in_one_write_yields_config_then_the_end(
    broker: Broker, peer: MetaqPeer
) -> None:
    await peer.send(b"stats config\r\nquit\r\n")
    answer = await peer.rest()
    assert answer.partition(b"\r\n")[2] == broker.config_file()


async def test_half_closed_peer_gets_its_answers(peer: MetaqPeer) -> None:
    peer.writer.write(put_frame("test", 0, b"hello") + b"version 1\r\n")
    peer.writer.write_eof()
    answers = await peer.rest()
    assert answers.count(b"result 200 ") == 2


async def test_put_that_waits_for_the_disk_is_answered_before_the_connection_closes(
    tmp_path: Path,
) -> None:
    async with (
        running_broker(
            tmp_path, "acknowledgement.level=leader-fsync", "topics.t.queues=1"
        ) as broker,
        metaq_peer(broker.metaq_port) as peer,
    ):
        await peer.send(put_frame("t", 0, b"hello") + b"quit\r\n")
        assert put_place(await peer.rest())[2] == 0


@pytest.mark.parametrize(
    "line",
    [
        b"hello world\r\n",
        b"\r\n",
        b"   \r\n",
        b"GET test g 0 0 10 1\r\n",
        b"put test 0 5\r\nhello",
        b"put test 0 5 0 1 2 3 4 5 6\r\nhello",
        b"put test 0 -5 0 1 2\r\n",
        b"put test x 5 0 1\r\nhello",
        b"put  test 0 5 0 1\r\nhello",
        b"put test 0 5 0 1 99999999999\r\nhello",
        b"put test 2147483648 5 0 1 1\r\nhello",
        b"statsx 1\r\n",
        b"stats offsets x\r\n",
        b"get test g 0 0 10\r\n",
        b"get test g 0 9223372036854775808 10 1\r\n",
        b"offset test g 0 0\r\n",
        b"transaction TX:s1:9 s1 FOO 58\r\n",
        b"transaction XID:1:2:3 s1 BEGIN 58\r\n",
        b"gett test g 0 0 10 1\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n",  # a TLS greeting
        b"\x00\x00\x00\x10\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"put test 0 99999999 0 1 1\r\n",
        b"put test 0 2147483647 0 1 1\r\n",
        b"put " + b"t" * 5000,
        b"x" * 4099,
    ],
)
async def test_malformed_input_closes_without_an_answer(
    broker: Broker, peer: MetaqPeer, line: bytes
) -> None:
    await peer.send(line)
    assert await peer.is_closed_without_an_answer()
    assert broker.metaq_counters.malformed == 1


async def test_what_came_before_malformed_input_is_answered(peer: MetaqPeer) -> None:
    await peer.send(put_frame("test", 0, b"hello") + b"version 1\r\nnonsense\r\nversion 1\r\n")
    answers = await peer.rest()
    assert answers.count(b"result 200 ") == 2
    assert answers.count(b"1.4.6.2") == 1


@pytest.mark.parametrize("ending", [b"\n", b"\r", b"\n\r"])
async def test_a_lone_end_of_line_ends_no_line(
    broker: Broker, peer: MetaqPeer, ending: bytes
) -> None:
    await peer.send(b"version 1" + ending)
    await settle()
    assert broker.metaq_counters.malformed == 0
    await peer.send(b"\r\n")  # now the stray byte is part of the number
    assert await peer.is_closed_without_an_answer()


async def test_peer_that_never_reads_is_not_served_for_ever(
    broker: Broker, peer: MetaqPeer
) -> None:
    body = bytes(500_000)
    for _ in range(4):
        put_place(await peer.put("test", 0, body))
    raw = socket.create_connection(("127.0.0.1", broker.metaq_port))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    with raw:
        request = b"get test g 0 0 1048576 1\r\n" * 1000
        await asyncio.get_running_loop().sock_sendall(raw, request)
        session = await stuck_session(broker)
        waiting = session.transport.get_write_buffer_size()
        limits = broker.config.limits
        assert waiting <= limits.output_bytes_pause + (2 << 20)
        assert broker.ports.budget.held > limits.output_bytes_pause
        # Others are served, and the time comes when the stuck one is cut off.
        assert await peer.ask(b"version 1\r\n") == VERSION
        session.sweep(1_000)
        session.sweep(1_000 + limits.output_stall_seconds * 1000)
        assert broker.ports.metaq.connections == 2
        session.sweep(1_001 + limits.output_stall_seconds * 1000)
        await broker.ports.metaq.until_connections(1)
        assert broker.ports.budget.held == 0
    assert await peer.ask(b"version 1\r\n") == VERSION


async def test_answers_become_small_then_busy_while_others_do_not_read(
    broker: Broker, peer: MetaqPeer
) -> None:
    for _ in range(4):
        put_place(await peer.put("test", 0, bytes(30_000)))
    budget = broker.ports.budget
    assert (await peer.get("test", 0, 0)).startswith(b"value ")
    budget.hold(budget.bytes_max)
    assert len(value_body(await peer.get("test", 0, 0))) <= 64 << 10
    budget.hold(budget.bytes_max)
    assert (await peer.get("test", 0, 0)).startswith(b"result 503 ")
    put_place(await peer.put("test", 0, b"puts go on"))
    budget.release(2 * budget.bytes_max)
    assert (await peer.get("test", 0, 0)).startswith(b"value ")


async def test_slow_reader_gets_everything_it_asked_for(broker: Broker, peer: MetaqPeer) -> None:
    body = bytes(300_000)
    for _ in range(3):
        put_place(await peer.put("test", 0, body))
    block = value_body(await peer.get("test", 0, 0))
    async with metaq_peer(broker.metaq_port) as slow:
        slow.writer.write(b"".join(b"get test g 0 0 1048576 %d\r\n" % n for n in range(64)))
        slow.writer.write(put_frame("test", 1, b"after", opaque=64))
        opaques = []
        for _ in range(65):
            frame = await slow.frame()
            opaques.append(int(frame.split(b"\r\n")[0].split()[-1]))
            if opaques[-1] < 64:
                assert value_body(frame)[: len(block)] == block
        assert sorted(opaques) == list(range(65))


async def test_idle_connection_is_closed_and_a_heartbeat_keeps_it(
    broker: Broker, peer: MetaqPeer
) -> None:
    idle_ms = broker.config.metaq.idle_seconds * 1000
    session = only_session(broker)
    session.sweep(0)
    session.sweep(idle_ms)
    assert await peer.ask(b"version 1\r\n") == VERSION
    session.sweep(idle_ms + 1)
    session.sweep(2 * idle_ms + 1)
    assert broker.ports.metaq.connections == 1
    session.sweep(2 * idle_ms + 2)
    assert await peer.is_closed_without_an_answer()


async def test_unfinished_command_is_given_up(broker: Broker, peer: MetaqPeer) -> None:
    stall_ms = broker.config.limits.input_stall_seconds * 1000
    session = only_session(broker)
    await peer.send(b"vers")
    await settle()
    session.sweep(5)
    await peer.send(b"i")  # a byte now and then does not help
    await settle()
    session.sweep(stall_ms + 5)
    assert broker.ports.metaq.connections == 1
    session.sweep(stall_ms + 6)
    assert await peer.is_closed_without_an_answer()


async def test_connections_above_the_limit_are_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path, "limits.connections_max=2") as broker:
        port = broker.metaq_port
        async with metaq_peer(port) as one, metaq_peer(port) as two:
            assert await one.ask(b"version 1\r\n") == VERSION
            assert await two.ask(b"version 1\r\n") == VERSION
            async with metaq_peer(port) as three:
                assert await three.is_closed_without_an_answer()
            assert broker.ports.metaq.refused == 1
        await broker.ports.metaq.until_connections(0)
        async with metaq_peer(port) as four:
            assert await four.ask(b"version 1\r\n") == VERSION


async def test_stopping_answers_what_is_in_flight(tmp_path: Path) -> None:
    settings = ("acknowledgement.level=leader-fsync", "topics.t.queues=1")
    async with (
        running_broker(tmp_path, *settings) as broker,
        metaq_peer(broker.metaq_port) as peer,
        metaq_peer(broker.metaq_port) as idle,
    ):
        assert await idle.ask(b"version 1\r\n") == VERSION
        assert await peer.ask(b"version 1\r\n") == VERSION
        puts = b"".join(put_frame("t", 0, b"x", opaque=n) for n in range(50))
        for session in broker.ports.metaq.sessions:
            if session.transport.get_extra_info("peername") == peer.address:
                session.data_received(puts)
        await broker.stop()
        answers = await peer.rest()
        assert await idle.is_closed_without_an_answer()
    assert answers.count(b"result 200 ") == 50


@pytest.mark.parametrize("how", ["drained", "half-closed"])
async def test_requests_left_for_a_slow_reader_are_answered_before_the_end(
    broker: Broker, peer: MetaqPeer, how: str
) -> None:
    put_place(await peer.put("test", 0, bytes(900_000)))
    async with metaq_peer(broker.metaq_port) as slow:
        slow.writer.write(b"".join(b"get test g 0 0 1048576 %d\r\n" % n for n in range(32)))
        if how == "half-closed":
            slow.writer.write_eof()
        session = await stuck_session(broker)
        if how == "drained":
            session.drain()
        answers = await slow.rest()
    assert answers.count(b"value 900020 ") == 32
    await broker.ports.metaq.until_connections(1)


async def test_reset_by_the_peer_is_an_ordinary_end(broker: Broker) -> None:
    raw = socket.create_connection(("127.0.0.1", broker.metaq_port))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    raw.sendall(put_frame("test", 0, b"hello"))
    raw.close()
    await settle()
    await broker.ports.metaq.until_connections(0)
    async with metaq_peer(broker.metaq_port) as peer:
        assert await peer.ask(b"version 1\r\n") == VERSION
