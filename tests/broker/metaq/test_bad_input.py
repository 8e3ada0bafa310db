"""What a client must not be able to do to the MetaQ port: grow it, crash it, write elsewhere."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import psutil
import pytest

from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.metaq import MetaqPeer, metaq_peer, put_frame, put_place

if TYPE_CHECKING:
    from pathlib import Path

    from imago_broker.app import Broker

VERSION = b"result 200 7 1\r\n1.4.6.2"

PATH_TRICKS = (
    "../../etc/cron.d/x",
    "..",
    ".",
    "/etc/passwd",
    "a/../b",
    "a\\..\\b",
    "a%2e%2e%2fb/",
    "a\0b",
    "x" * 128,
    "主题",
    "\u202etopic",
    "CON:",
    "a\tb",
    "*",
)


def files_below(folder: Path) -> set[str]:
    """Return every file below a folder but those of the broker's own data folder."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.relative_to(folder).parts[0] != "data"
    }


def memory_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


async def send_for_ever(peer: MetaqPeer) -> None:
    """Send a line without an end until the connection breaks."""
    while True:
        await peer.send(b"x" * (1 << 20))


async def still_serves(broker: Broker) -> bool:
    async with metaq_peer(broker.metaq_port) as peer:
        return await peer.ask(b"version 1\r\n") == VERSION


async def test_topic_names_never_become_paths(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with running_broker(data, "metaq.auto_create_topic=true") as broker:
        async with metaq_peer(broker.metaq_port) as peer:
            for name in PATH_TRICKS:
                await peer.send(name.join(["put ", " 0 1 0 -1 1\r\nx"]).encode())
                assert (await peer.frame()).startswith(b"result 500 "), name
                await peer.send(name.join(["get ", " g 0 0 10 1\r\n"]).encode())
                assert (await peer.frame()).startswith(b"result 404 "), name
                await peer.send(name.join(["offset ", " g 0 0 1\r\n"]).encode())
                assert (await peer.frame()).startswith(b"result 404 "), name
            there = {config.name for config in broker.topics.all()}
        given = {"SCHEDULE_TOPIC_XXXX", "SELF_TEST_TOPIC", "TBW102", "rmq_sys_wheel_timer"}
        assert there == given | {"imago_REPLY_TOPIC"}
    assert files_below(tmp_path) == set()


async def test_group_names_reach_no_file(broker: Broker, peer: MetaqPeer, tmp_path: Path) -> None:
    put_place(await peer.put("test", 0, b"x"))
    for name in PATH_TRICKS:
        await peer.send(f"get test {name} 0 0 1024 1\r\n".encode())
        assert (await peer.frame()).startswith(b"value ")
    assert files_below(tmp_path) == set()
    assert broker.offsets.groups() == []


@pytest.mark.parametrize("number", [-1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 10**9])
async def test_poisonous_numbers_are_answered(broker: Broker, peer: MetaqPeer, number: int) -> None:
    put_place(await peer.put("test", 0, b"x"))
    fits = -(2**31) <= number < 2**31
    if fits:
        assert (await peer.ask(b"get test g %d 0 10 1\r\n" % number)).startswith(b"result 404 ")
        await peer.send(b"get test g 0 0 %d 1\r\n" % number)
        assert (await peer.frame())[:6] in (b"value ", b"result")
        put = await peer.ask(b"put test 0 1 %d -1 1\r\nx" % number)
        assert put[:7] == b"result "
    assert (await peer.ask(b"get test g 0 %d 10 1\r\n" % number))[:10] in (
        b"result 301",
        b"result 404",
    )
    assert (await peer.ask(b"offset test g 0 %d 1\r\n" % number)).startswith(b"result 200 ")
    assert await still_serves(broker)


async def test_endless_line_is_cut_off_before_it_is_kept(broker: Broker) -> None:
    before = memory_bytes()
    async with metaq_peer(broker.metaq_port) as peer:
        with pytest.raises(ConnectionError):
            await send_for_ever(peer)
    assert memory_bytes() - before < 64 << 20
    assert await still_serves(broker)


async def test_declared_sizes_allocate_nothing(broker: Broker) -> None:
    size = broker.config.metaq.message_bytes_max
    before = memory_bytes()
    async with AsyncExitStack() as stack:
        for _ in range(100):
            peer = await stack.enter_async_context(metaq_peer(broker.metaq_port))
            await peer.send(b"put test 0 %d 0 -1 1\r\n" % size + b"x" * 1000)
        assert await still_serves(broker)  # by now the others have been accepted and read
        for session in broker.ports.metaq.sessions:
            session.sweep(1)
        assert memory_bytes() - before < 100 << 20
    await broker.ports.metaq.until_connections(0)


async def test_mutated_requests_are_answered_or_end_the_connection(broker: Broker) -> None:
    rng = random.Random(20260101)
    seeds = (
        put_frame("test", 0, b"hello"),
        b"put test 1 5 0 907060870 TX:test:100 0\r\nhello",
        b"get test g1 0 0 1024 5\r\n",
        b"offset test g1 0 230 19\r\n",
        b"stats offsets 1\r\n",
        b"transaction XID:100:676c:6271:uq s1 BEGIN 5 uq 44\r\n",
        b"sync test 1 5 0 9999 907060870 -7\r\nhello",
        b"version 5\r\n",
        b"result 200 2 9\r\nok",
    )
    for _ in range(300):
        frame = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(frame))
            match rng.randrange(4):
                case 0:
                    frame[at] = rng.randrange(256)
                case 1:
                    del frame[at]
                case 2:
                    frame.insert(at, rng.randrange(256))
                case _:
                    frame[at:at] = frame[at : at + 8]
        async with metaq_peer(broker.metaq_port) as peer:
            peer.writer.write(bytes(frame))
            peer.writer.write_eof()
            answers = await peer.rest()
            assert b"Traceback" not in answers
            assert answers == b"" or answers.startswith((b"result ", b"value "))
    assert await still_serves(broker)
    assert not broker.failed.done()


async def test_one_bad_peer_does_not_hurt_the_others(broker: Broker, peer: MetaqPeer) -> None:
    for number in range(50):
        async with metaq_peer(broker.metaq_port) as bad:
            bad.writer.write(put_frame("test", 0, b"x" * number) + b"\0nonsense\r\n")
            assert (await bad.rest()).count(b"result 200 ") == 1
        position = put_place(await peer.put("test", 1, b"good"))[2]
        assert position == 24 * number
