"""Handshakes above a rate wait, each address in its turn, and served connections do not."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from imago_broker.config.sections import TlsSection
from imago_broker.server import handshake_turns, tls_entry
from imago_broker.server.handshake_turns import HandshakeTurns
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_pair import eventually
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_testing.processes.certificates import Authority
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Seconds:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def until_idle() -> None:
    """Let everything run that does not wait for time to pass."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_so_many_a_second_and_each_address_in_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshake_turns, "TURN_SECONDS", 0)
    monkeypatch.setattr(handshake_turns, "SAVED_SECONDS", 2.0)
    clock, begun = Seconds(), list[str]()
    turns = HandshakeTurns(1, clock)

    async def shake(address: str) -> None:
        await turns.wait(address)
        begun.append(address)

    tasks = [asyncio.create_task(shake(one)) for one in ["flood"] * 6 + ["ann", "bob"]]
    await until_idle()
    assert begun == ["flood"] * 2, "what was saved up"
    assert (turns.waiting, turns.delayed) == (6, 6)
    tasks[3].cancel()  # its connection is gone: no turn is spent on it
    for expected in ("flood", "ann", "bob", "flood", "flood"):
        before = len(begun)
        clock.now += 1.0
        await eventually(lambda: len(begun) > before)  # noqa: B023  it is called here
        await until_idle()
        assert begun[before:] == [expected]
    assert turns.waiting == 0
    clock.now += 100.0
    tasks += [asyncio.create_task(shake("late")) for _ in range(5)]
    await until_idle()
    assert begun.count("late") == 2, "of a long idle time no more is saved"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_no_turn_of_the_loop_has_more_than_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_turns, "TURN_SECONDS", 0)
    clock, begun = Seconds(), list[int]()
    turns = HandshakeTurns(TlsSection().handshakes_per_second_max, clock)

    async def shake(number: int) -> None:
        await turns.wait(f"10.0.{number % 40}.1")
        begun.append(number)

    clock.now += 1000.0  # whatever was saved up, and however late the loop is
    tasks = [asyncio.create_task(shake(number)) for number in range(200)]
    while len(begun) < len(tasks):
        before = len(begun)
        await eventually(lambda: len(begun) > before)  # noqa: B023  it is called here
        await until_idle()
        assert len(begun) - before <= 10
        clock.now += 1.0
    await asyncio.gather(*tasks)


async def test_zero_is_no_rate() -> None:
    turns = HandshakeTurns(0, Seconds())
    for _ in range(1000):
        await turns.wait("a")
    assert (turns.waiting, turns.delayed) == (0, 0)


async def test_a_storm_waits_and_what_is_served_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path / "authority")
    pair = authority.issue("server")
    settings = (
        f"tls.certificate_file={pair.certificate}",
        f"tls.key_file={pair.key}",
        "tls.handshakes_per_second_max=1",
    )
    hello = bytes.fromhex("1603010005010000010000")  # of a handshake that never goes on
    async with running_broker(tmp_path / "data", *settings) as broker:
        served = await RemotingPeer.connect(broker.rocketmq_port)
        turns = broker.ports.turns
        storm = [
            await asyncio.open_connection("127.0.0.1", broker.rocketmq_port) for _ in range(30)
        ]
        for _, writer in storm:
            writer.write(hello)
        await eventually(lambda: turns.waiting >= 20)
        for _ in range(20):
            sent = await served.call(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"body")
            assert sent.code == 0
        assert turns.waiting >= 20
        # Who waits too long is closed as who says nothing is.
        monkeypatch.setattr(tls_entry, "HANDSHAKE_SECONDS_MAX", 0)
        async with asyncio.timeout(50):
            for reader, writer in storm:
                with contextlib.suppress(OSError):
                    await reader.read()  # until it is closed
                writer.close()
        await eventually(lambda: broker.ports.rocketmq.connections == 1)
        await served.close()
