"""Handshakes above a rate wait, each address in its turn, and served connections do not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.config.sections.security_sections import TlsSection
from imago_broker.server.tls import handshake_queue, handshake_steps, tls_entry
from imago_broker.server.tls.handshake_queue import HandshakeQueue
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_pair import eventually
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_testing.peers.tls_hellos import client
from imago_testing.processes.certificates import Authority
from imago_testing.searching import seldom
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    from pathlib import Path


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
    monkeypatch.setattr(handshake_queue, "TURN_SECONDS", 0)
    monkeypatch.setattr(handshake_queue, "SAVED_SECONDS", 2.0)
    monkeypatch.setattr(handshake_queue, "BUDGET_SECONDS", 1.0)
    clock, begun = Seconds(), list[str]()
    turns = HandshakeQueue(1, clock)

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


@pytest.mark.full
async def test_no_turn_of_the_loop_has_more_than_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_queue, "TURN_SECONDS", 0)
    clock, begun = Seconds(), list[int]()
    turns = HandshakeQueue(TlsSection().handshakes_per_second_max, clock)

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


@pytest.mark.parametrize("cost_s", [0.0001, 0.0004, 0.0033, 0.02])
async def test_handshakes_have_a_quarter_of_the_processor_whatever_one_costs(
    monkeypatch: pytest.MonkeyPatch, cost_s: float
) -> None:
    step_s = handshake_queue.TURN_SECONDS
    monkeypatch.setattr(handshake_queue, "TURN_SECONDS", 0)
    clock, begun, in_turn = Seconds(), list[int](), Counter[float]()
    turns = HandshakeQueue(TlsSection().handshakes_per_second_max, clock)

    async def shake(number: int) -> None:
        await turns.wait(f"10.0.{number % 40}.1")
        begun.append(number)
        in_turn[clock.now] += 1
        turns.took(cost_s - handshake_queue.BESIDES_SECONDS)

    tasks = [asyncio.create_task(shake(number)) for number in range(1500)]
    while clock.now < 3.0:
        await until_idle()
        clock.now += step_s
    learned, seconds = handshake_queue.MEASURED * 8, clock.now
    assert len(begun) * cost_s <= 0.25 * seconds + learned * cost_s
    assert len(begun) >= min(0.8 * 0.25 * seconds / cost_s, 0.8 * 500 * seconds, learned)
    later = [count for moment, count in in_turn.items() if moment > seconds / 2]
    assert max(later) <= max(1, round(handshake_queue.BUDGET_SECONDS / cost_s))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_who_mixes_cheap_and_dear_handshakes_gets_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step_s = handshake_queue.TURN_SECONDS
    monkeypatch.setattr(handshake_queue, "TURN_SECONDS", 0)
    clock, spent = Seconds(), [0.0]
    turns = HandshakeQueue(TlsSection().handshakes_per_second_max, clock)

    async def shake(number: int) -> None:
        await turns.wait("10.0.0.1")
        cost_s = 0.0066 if number % 10 == 9 else 0.0
        spent[0] += cost_s + handshake_queue.BESIDES_SECONDS
        turns.took(cost_s)

    tasks = [asyncio.create_task(shake(number)) for number in range(2000)]
    while clock.now < 3.0:
        await until_idle()
        clock.now += step_s
    assert spent[0] <= 0.25 * clock.now + 10 * 0.0068
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_members_have_every_second_turn_whoever_else_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshake_queue, "TURN_SECONDS", 0)
    clock, begun = Seconds(), list[str]()
    turns = HandshakeQueue(1, clock)

    async def shake(address: str, *, member: bool) -> None:
        await turns.wait(address, member=member)
        begun.append(address)

    tasks = [asyncio.create_task(shake(f"10.0.0.{n}", member=False)) for n in range(50)]
    await until_idle()
    tasks += [asyncio.create_task(shake(f"member-{n}", member=True)) for n in range(3)]
    while len(begun) < 8:
        before = len(begun)
        clock.now += 1.0
        await eventually(lambda: len(begun) > before)  # noqa: B023  it is called here
    assert [one for one in begun if one.startswith("member")] == [
        "member-0",
        "member-1",
        "member-2",
    ]
    assert begun.index("member-2") <= 6
    assert "10.0.0.1" in begun[:4], "nor do they keep others out"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_network_of_ipv6_addresses_has_one_turn() -> None:
    turns = HandshakeQueue(1, Seconds())
    tasks = [
        asyncio.create_task(turns.wait(f"2001:db8:0:{network}::{host}"))
        for network, host in [(1, n) for n in range(1, 6)] + [(2, 1)]
    ]
    await until_idle()
    assert tasks[0].done()
    assert [len(each) for each in turns._others.values()] == [4, 1]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_zero_is_no_rate() -> None:
    turns = HandshakeQueue(0, Seconds())
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
        turns = broker.ports.handshakes
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


class TurnsOfTheLoop:
    """Counts the loop's turns, and the handshakes that are begun in each.

    From `go` on a second passes in each, so that nothing but what may be had at once holds any up.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Seconds()
        self.go = False
        self.number = 0
        self.handshakes = Counter[int]()
        self._loop = asyncio.get_running_loop()
        self._ends = False
        feed = handshake_steps.feed

        def counted(protocol: Any, data: bytes) -> None:
            self.handshakes[self.number] += data[:1] == b"\x16"
            feed(protocol, data)

        monkeypatch.setattr(handshake_steps, "feed", counted)
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.number += 1
        self.clock.now += self.go
        if not self._ends:
            self._loop.call_soon(self._turn)

    def end(self) -> None:
        self._ends = True


@pytest.mark.parametrize("ends", seldom([True, False]))
@pytest.mark.parametrize("addresses", [pytest.param(1, marks=pytest.mark.full), 50])
async def test_a_served_request_waits_for_few_handshakes_of_a_storm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, addresses: int, ends: bool
) -> None:
    """In turns of the loop: neither clients without TLS nor those with it get in its queue."""
    monkeypatch.setattr(handshake_queue, "TURN_SECONDS", 0)
    monkeypatch.setattr(tls_entry, "HANDSHAKE_SECONDS_MAX", 600)
    pair = Authority(tmp_path / "authority").issue("server")
    settings = (f"tls.certificate_file={pair.certificate}", f"tls.key_file={pair.key}")
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    async with running_broker(tmp_path / "data", *settings) as broker:
        port = broker.rocketmq_port
        served = [await RemotingPeer.connect(port)]
        served.append(RemotingPeer(*await asyncio.open_connection("127.0.0.1", port, ssl=trusting)))
        turns, waiting = TurnsOfTheLoop(monkeypatch), broker.ports.handshakes
        waiting._clock = turns.clock

        async def asked(peer: RemotingPeer) -> int:
            before = turns.number
            sent = await peer.call(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"body")
            assert sent.code == 0
            return turns.number - before

        calm = max([await asked(peer) for peer in served for _ in range(20)])
        storm = [
            asyncio.create_task(
                _storm_by(f"127.0.0.{2 + n % addresses}", port, trusting, ends=ends)
            )
            for n in range(300)
        ]
        await eventually(lambda: waiting.waiting >= 280)
        turns.go, seen = True, []
        while waiting.waiting:
            seen += [await asked(peer) for peer in served]
        assert len(seen) >= 4
        assert max(seen) <= 3 * calm
        await asyncio.gather(*storm)
        assert max(turns.handshakes.values()) <= 10
        assert turns.handshakes.total() >= 300
        turns.end()
        for peer in served:
            await peer.close()


async def _storm_by(address: str, port: int, trusting: ssl.SSLContext, *, ends: bool) -> None:
    """Go through with a handshake, or begin one and leave once it has been answered."""
    local = (address, 0)
    if ends:
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trusting, local_addr=local, ssl_handshake_timeout=600
        )
    else:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=local)
        writer.write(client()[2].read())
        await reader.read(1)
    writer.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_who_comes_again_with_a_ticket_needs_no_signature(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """An honest client that reconnects costs a fraction of what a new one does."""
    pair = Authority(tmp_path / "authority").issue("server")
    settings = (f"tls.certificate_file={pair.certificate}", f"tls.key_file={pair.key}")
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    trusting.maximum_version = version
    async with running_broker(tmp_path / "data", *settings, "tls.metaq_port=0") as broker:
        address = ("127.0.0.1", broker.ports.metaq_tls.port)

        def ask(known: ssl.SSLSession | None) -> ssl.SSLSocket:
            plain = socket.create_connection(address, timeout=50)
            found = trusting.wrap_socket(plain, session=known)
            found.sendall(b"version 1\r\n")
            assert found.recv(100).startswith(b"result 200")
            return found

        with await asyncio.to_thread(ask, None) as first:
            assert not first.session_reused
            known = first.session
        with await asyncio.to_thread(ask, known) as second:
            assert second.session_reused
