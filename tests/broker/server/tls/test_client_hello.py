"""A handshake is measured whole, however its first message is cut and whichever step is costly."""

from __future__ import annotations

import asyncio
import ssl
import time
from itertools import count, pairwise
from typing import TYPE_CHECKING

import pytest

from imago_broker.core import client_hello
from imago_broker.core.client_hello import FIRST_BYTES_MAX, ClientHello, SecondHello
from imago_broker.server.tls import tls_entry
from imago_broker.server.tls.handshake_queue import (
    BESIDES_SECONDS,
    BUDGET_SECONDS,
    HandshakeCost,
    HandshakeQueue,
)
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_pair import eventually
from imago_testing.peers.tls_hellos import (
    ASKS_AGAIN,
    RECORD_HEAD,
    client,
    first_and_second,
    in_records,
    of_version,
    padded,
)
from imago_testing.processes.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker


@pytest.mark.parametrize("sizes", [(), (1,), (3, 1), (4,), (1,) * 50])
@pytest.mark.parametrize("step", [1, 7, 100, 1 << 20])
def test_it_is_whole_with_its_last_byte(sizes: tuple[int, ...], step: int) -> None:
    hello = in_records(client()[2].read(), *sizes)
    found = ClientHello()
    for begin in range(0, len(hello), step):
        assert found.add(hello[begin : begin + step]) == (begin + step >= len(hello))
    assert bytes(found.data) == hello


def test_other_records_between_do_not_make_it_whole() -> None:
    hello = in_records(client()[2].read(), 40)
    warning = b"\x15\x03\x03\x00\x02\x01\x00"
    found = ClientHello()
    assert not found.add(hello[: RECORD_HEAD + 40] + warning)
    assert found.add(hello[RECORD_HEAD + 40 :])


def test_what_begins_no_handshake_is_left_to_tls() -> None:
    assert ClientHello().add(b"\x16\x03\x01\x00\x01\x02"), "another message than the first"
    assert not ClientHello().add(b"\x16\x03\x01\xff\xff" + bytes(100))


def test_what_later_steps_usually_take_was_counted_with_the_first() -> None:
    turns = HandshakeQueue(500, lambda: 0.0)
    cost = HandshakeCost(turns)
    turns._begin()
    for seconds, spent_s in [
        (0.003, 0.003 + BESIDES_SECONDS),
        (BESIDES_SECONDS / 2, 0.003 + BESIDES_SECONDS),
        (BESIDES_SECONDS, 0.003 + 1.5 * BESIDES_SECONDS),
        (0.002, 0.005 + 1.5 * BESIDES_SECONDS),
    ]:
        cost.took(seconds)
        assert BUDGET_SECONDS - turns._budget_s == pytest.approx(spent_s)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    pair = Authority(tmp_path / "authority").issue("server")
    settings = (f"tls.certificate_file={pair.certificate}", f"tls.key_file={pair.key}")
    async with running_broker(tmp_path / "data", *settings) as started:
        yield started


class Spent:
    """A broker whose turns' clock stands, and a processor's on which an answer to a first message
    takes a second and nothing else takes any."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        door = broker.ports.rocketmq.door
        assert door is not None
        self.answers = 0
        self.turns, self.context = broker.ports.handshakes, door.context
        stands_s = self.turns._counted_s
        self.turns._clock = lambda: stands_s
        self.context.sni_callback = self._answer
        monkeypatch.setattr(time, "thread_time", lambda: float(self.answers))

    def _answer(self, *_: object) -> None:
        self.answers += 1

    @property
    def seconds(self) -> float:
        """What was taken of the budget."""
        return BUDGET_SECONDS - self.turns._budget_s


@pytest.mark.parametrize("cut", ["first byte", "last byte", "many parts", "records", "not"])
async def test_a_message_in_parts_costs_no_less(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    spent = Spent(broker, monkeypatch)
    side, incoming, outgoing = client()
    hello = outgoing.read()
    if cut == "records":
        hello = in_records(hello, 1, 100)
    ends = {
        "first byte": [1],
        "last byte": [len(hello) - 1],
        "many parts": range(1, len(hello), 60),
        "records": [RECORD_HEAD + 1, 2 * RECORD_HEAD + 101],
        "not": [],
    }[cut]
    listener = broker.ports.rocketmq
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    await eventually(lambda: listener.sessions)
    (entry,) = listener.sessions
    assert isinstance(entry, tls_entry.TlsEntry)
    for begin, end in pairwise([0, *ends]):
        writer.write(hello[begin:end])
        await writer.drain()
        await eventually(lambda: entry._hello and len(entry._hello.data) == end)  # noqa: B023
        assert spent.seconds == 0.0, "nobody has a turn for less than a whole message"
    writer.write(hello[ends[-1] if ends else 0 :])
    await _finish(side, incoming, outgoing, reader, writer)
    assert spent.answers == 1
    assert spent.seconds == pytest.approx(1.0 + BESIDES_SECONDS)
    await eventually(lambda: listener.door is not None and listener.door.handshakes == 1)
    writer.close()


@pytest.mark.parametrize("step", [1, 13, 1 << 20])
async def test_a_second_message_has_a_turn_of_its_own(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """The client has offered no key of a curve that is allowed, and is asked for another."""
    spent = Spent(broker, monkeypatch)
    spent.context.set_ecdh_curve(ASKS_AGAIN)
    side, incoming, outgoing = client()
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.rocketmq_port)
    writer.write(outgoing.read())
    incoming.write(await reader.read(1 << 16))
    with pytest.raises(ssl.SSLWantReadError):
        side.do_handshake()
    second = outgoing.read()
    for begin in range(0, len(second), step):
        writer.write(second[begin : begin + step])
        await writer.drain()
    await eventually(lambda: spent.turns.waiting == 1)
    assert spent.answers == 1
    assert spent.seconds == pytest.approx(1.0 + BESIDES_SECONDS)
    later_s = spent.turns._counted_s + 60
    spent.turns._clock = lambda: later_s
    await _finish(side, incoming, outgoing, reader, writer)
    assert spent.answers == 2
    assert spent.seconds == pytest.approx(1.0, rel=0.01)
    await eventually(
        lambda: (
            broker.ports.rocketmq.door is not None and broker.ports.rocketmq.door.handshakes == 1
        )
    )
    writer.close()


async def test_who_leaves_before_its_second_turn_takes_none(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_entry, "HANDSHAKE_SECONDS_MAX", 1)
    spent = Spent(broker, monkeypatch)
    spent.context.set_ecdh_curve(ASKS_AGAIN)
    side, incoming, outgoing = client()
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.rocketmq_port)
    writer.write(outgoing.read())
    incoming.write(await reader.read(1 << 16))
    with pytest.raises(ssl.SSLWantReadError):
        side.do_handshake()
    writer.write(outgoing.read())
    await eventually(lambda: broker.ports.rocketmq.connections == 0)
    later_s = spent.turns._counted_s + 60
    spent.turns._clock = lambda: later_s
    await eventually(lambda: spent.turns.waiting == 0)
    assert spent.answers == 1
    writer.close()


@pytest.mark.parametrize(
    ("how", "answers"),
    [
        ("as usual", 2),
        ("of TLS 1.1", 2),
        ("of TLS 1.3", 2),
        ("long", 2),
        ("in a long record", 1),
        ("in two records", 2),
        ("in its bytes", 1),
        ("with the first", 2),
        ("in the first's record", 0),
    ],
)
async def test_no_second_message_is_answered_without_a_turn(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, how: str, answers: int
) -> None:
    """Whatever it says that OpenSSL takes, however it is cut, and whenever it comes."""
    spent = Spent(broker, monkeypatch)
    spent.context.set_ecdh_curve(ASKS_AGAIN)
    first, second = first_and_second(spent.context)
    spent.answers = 0
    second = {
        "of TLS 1.1": lambda: of_version(second, 0x0302),
        "of TLS 1.3": lambda: of_version(second, 0x0304),
        "long": lambda: in_records(padded(second, 20_000), 9000, 9000),
        "in a long record": lambda: in_records(padded(second, 20_000), 16_384),
        "in two records": lambda: in_records(second, 1),
        "in its bytes": lambda: in_records(second, *(1,) * 50),
    }.get(how, lambda: second)()
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.rocketmq_port)
    if how == "with the first":
        writer.write(first + second)
    elif how == "in the first's record":
        message = first[RECORD_HEAD:] + second[RECORD_HEAD:]
        writer.write(first[:3] + len(message).to_bytes(2) + message)
    else:
        writer.write(first)
        await reader.read(1 << 16)
        writer.write(second)
    if answers == 2 or how == "in its bytes":
        await eventually(lambda: spent.turns.waiting == 1)
        assert spent.answers == 1
        clock = count(spent.turns._counted_s, 60.0)
        spent.turns._clock = lambda: next(clock)
    if answers < 2:
        await eventually(lambda: broker.ports.rocketmq.connections == 0)
    await eventually(lambda: spent.answers == answers)
    writer.close()


@pytest.mark.parametrize("step", [1, 3, 7, 1 << 20])
def test_a_second_message_is_found_behind_what_tls_leaves_out(step: int) -> None:
    before = b"\x14\x03\x03\x00\x01\x01" + b"\x17\x03\x03\x01\x00" + bytes(range(256))
    one = in_records(client()[2].read(), 1, 50)
    cut, behind = (RECORD_HEAD + 1, 2 * RECORD_HEAD + 51), b"\x17\x03\x03\x00\x01!"
    said, found, given = before + one + behind, SecondHello(), b""
    for begin in range(0, len(said), step):
        given += found.add(said[begin : begin + step])
    assert given == before
    assert found.is_due
    parts = [found.after_turn() for _ in range(4)]
    assert parts == [one[: cut[0]], one[cut[0] : cut[1]], one[cut[1] :] + behind, b""]
    assert not found.problem


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_nothing_waits_behind_another_message(step: int) -> None:
    """That of a client of TLS 1.2, which has been answered."""
    key = b"\x16\x03\x03\x00\x21\x10" + bytes(32)
    said = key + b"\x16\x03\x03\x00\x02\x01\x00" + bytes(9)
    found, given = SecondHello(), b""
    for begin in range(0, len(said), step):
        given += found.add(said[begin : begin + step])
        assert not found.is_due
    assert given == said


def test_what_is_encrypted_waits_for_one_turn_at_most() -> None:
    """The end of a resumed handshake of TLS 1.2, one in 256 of which begins so."""
    said = b"\x14\x03\x03\x00\x01\x01" + b"\x16\x03\x03\x00\x20\x01\xff" + bytes(30)
    found = SecondHello()
    assert found.add(said) == said[:6]
    assert found.is_due
    served = b"\x17\x03\x03\x00\x03abc"
    assert found.after_turn() == said[6:]
    assert found.add(served) == served


def test_what_is_kept_is_limited() -> None:
    found = SecondHello()
    found.add(b"\x16\x03\x03\xff\xff\x01" + bytes(FIRST_BYTES_MAX - 6))
    assert not found.problem
    found.add(b"!")
    assert "too long" in found.problem


@pytest.mark.full
def test_so_many_records_have_turns_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_hello, "SECOND_RECORDS_MAX", 2)
    one, found = b"\x16\x03\x03\x00\x01\x01", SecondHello()
    found.add(one * 2)
    assert found.after_turn() + found.after_turn() == one * 2
    assert not found.problem
    found.add(one)
    assert "too long" in found.problem


async def _finish(
    side: ssl.SSLObject,
    incoming: ssl.MemoryBIO,
    outgoing: ssl.MemoryBIO,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Go on with a handshake to its end."""
    async with asyncio.timeout(50):
        while True:
            incoming.write(await reader.read(1 << 16))
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            break
    writer.write(outgoing.read())
