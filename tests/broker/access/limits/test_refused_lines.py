"""Large MetaQ commands that their line alone refuses: nobody keeps their bodies, and the answer is
that of a command that was read whole."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.server.relay.relay_ledgers import TextLedger
from imago_broker.server.text import line_refusals
from imago_broker.server.text.text_session import TextSession
from imago_broker.service.access.access_edits import Actor
from imago_testing.clusters.shard_pair import eventually
from imago_wire.text.commands import Put, Result, Sync, Value
from imago_wire.text.encoder import encode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from imago_broker.app import Broker
    from imago_wire.text.commands import Command

BY = Actor("the tests", "nowhere")
SMALL = 32
LARGE = b"x" * (4 << 20)
WAIT_SECONDS = 50
FORBIDDEN = 403
NO_RIGHT = b"anonymous may not publish topic other"


class Line:
    """One connection that says commands, in pieces, and reads the answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def say(self, data: bytes, size: int = 1 << 20) -> None:
        for at in range(0, len(data), size):
            self._writer.write(data[at : at + size])
            await asyncio.sleep(0)

    async def answer(self) -> tuple[int, int, bytes]:
        """Return code, number and text of the next answer."""
        async with asyncio.timeout(WAIT_SECONDS):
            _, code, size, opaque = (await self._reader.readline()).split()
            return int(code), int(opaque), await self._reader.readexactly(int(size))

    async def answers(self, count: int) -> dict[int, int]:
        found = [await self.answer() for _ in range(count)]
        return {opaque: code for code, opaque, _ in found}

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@pytest.fixture
async def line(broker: Broker) -> AsyncIterator[Line]:
    for topic in ("orders", "other"):
        broker.topics.create_or_update(TopicConfig(name=topic, read_queues=1, write_queues=1))
    grant(broker, "orders")
    said = Line(*await asyncio.open_connection("127.0.0.1", broker.ports.metaq_port))
    yield said
    await said.close()


def grant(broker: Broker, *topics: str) -> None:
    publish = frozenset({Operation.PUBLISH})
    rules = [AccessRule(Resource(AccessKind.TOPIC, topic), publish) for topic in topics]
    broker.core.access.set_rules("anonymous", rules, BY)


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> list[TextSession]:
    """The connections of which a line has refused a command, one for each."""
    found: list[TextSession] = []
    real = TextSession._look

    def look(session: TextSession) -> None:
        before = session._refusals.left
        real(session)
        if session._refusals.left and not before:
            found.append(session)

    monkeypatch.setattr(TextSession, "_look", look)
    return found


def left_of(refusing: Sequence[TextSession]) -> int:
    return refusing[0]._refusals.left if refusing else -1


def put(body: bytes, opaque: int, topic: str = "other") -> bytes:
    return encode(Put(topic, 0, 0, body, opaque, checksum=-1))


async def test_the_body_of_a_refused_command_is_not_kept(
    broker: Broker, line: Line, refusing: list[TextSession]
) -> None:
    data, input_budget = put(LARGE, 77), broker.ports.input_budget
    await line.say(data[: 3 << 20])
    await eventually(lambda: left_of(refusing) == len(data) - (3 << 20))
    assert len(refusing[0]._buffer) < 100
    assert input_budget.held < 4096
    await line.say(data[3 << 20 :])
    code, opaque, text = await line.answer()
    assert (code, opaque) == (FORBIDDEN, 77)
    assert NO_RIGHT in text
    await line.say(put(b"small", 78, "orders"))
    assert await line.answers(1) == {78: 200}, "the connection stays"
    assert len(refusing) == 1


@pytest.mark.parametrize("size", [1, 7, 64, 5000])
async def test_pieces_of_any_size_and_what_stands_between(
    broker: Broker,
    line: Line,
    refusing: list[TextSession],
    monkeypatch: pytest.MonkeyPatch,
    size: int,
) -> None:
    monkeypatch.setattr(line_refusals, "EARLY_LOOK_BYTES", SMALL)
    data = put(b"a" * 400, 1) + put(b"b", 2, "orders") + put(b"c" * 900, 3)
    data += put(b"d" * 700, 4, "orders") + encode(Value(b"v" * 500, 5)) + put(b"", 6)
    data += encode(Sync("orders", 0, 0, 7, b"s" * 300, 7)) + encode(Result(200, b"r" * 100, 8))
    data += b"version 9\r\n"
    await line.say(data, size)
    expected = {1: FORBIDDEN, 2: 200, 3: FORBIDDEN, 4: 200, 6: FORBIDDEN, 7: FORBIDDEN, 9: 200}
    assert await line.answers(7) == expected
    assert len(refusing) >= (4 if size < 100 else 0)
    assert all(not session._refusals.left and not session._buffer for session in refusing)
    assert broker.store.queue_range("orders", 0) == (0, 2)
    assert broker.store.queue_range("other", 0) == (0, 0)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (Put("other", 0, 0, b"p" * 100_000, 77), NO_RIGHT),
        (Put("other", 0, 0, b"p" * 100_000, 77, checksum=5), NO_RIGHT),
        (Put("orders", 0, 0, b"p" * 100_000, 77, -1, "TX:a:1"), b"publish transaction TX:a:1"),
        (Sync("orders", 0, 0, 9, b"p" * 100_000, 77), b"administer cluster"),
    ],
)
async def test_the_answer_is_that_of_a_command_that_was_read_whole(
    line: Line,
    refusing: list[TextSession],
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
    said: bytes,
) -> None:
    monkeypatch.setattr(line_refusals, "EARLY_LOOK_BYTES", 1 << 30)
    await line.say(encode(command))
    whole = await line.answer()
    assert not refusing
    monkeypatch.setattr(line_refusals, "EARLY_LOOK_BYTES", SMALL)
    await line.say(encode(command), 30_000)
    assert await line.answer() == whole
    assert len(refusing) == 1
    assert whole[:2] == (FORBIDDEN, 77)
    assert said in whole[2]


async def test_what_is_allowed_is_read_whole(
    broker: Broker, line: Line, refusing: list[TextSession]
) -> None:
    await line.say(put(LARGE[: 1 << 20], 1, "orders"), 100_000)
    assert await line.answers(1) == {1: 200}
    assert not refusing
    assert broker.store.queue_range("orders", 0) == (0, 1)


async def test_answers_to_nothing_are_not_kept(line: Line, refusing: list[TextSession]) -> None:
    data = encode(Value(LARGE, 1))
    await line.say(data[: 3 << 20])
    await eventually(lambda: left_of(refusing) == len(data) - (3 << 20))
    assert len(refusing[0]._buffer) < 100
    await line.say(data[3 << 20 :] + b"version 2\r\n")
    assert await line.answers(1) == {2: 200}


async def test_a_body_above_the_limit_ends_the_connection(
    line: Line, refusing: list[TextSession]
) -> None:
    await line.say(b"put other 0 %d 0 -1 1\r\n" % (len(LARGE) + 1) + b"x" * 100_000)
    async with asyncio.timeout(WAIT_SECONDS):
        assert await line._reader.read() == b""
    assert not refusing


async def test_who_takes_the_connection_over_passes_the_rest_over(
    broker: Broker, line: Line, refusing: list[TextSession]
) -> None:
    data = put(LARGE, 77)
    await line.say(data[: 1 << 20])
    await eventually(lambda: left_of(refusing) == len(data) - (1 << 20))
    (session,) = refusing
    unread = session.unserved()
    assert len(unread) < 100
    code, opaque, _ = await line.answer()
    assert (code, opaque) == (FORBIDDEN, 77), "it is answered here"
    grant(broker, "orders", "other")  # the rest of a message is no message, whatever was allowed
    ledger = TextLedger(4096, 4 << 20)
    passed = ledger.requests(unread + data[1 << 20 :] + put(b"next", 78))
    assert ledger._owed == {78: 1}
    other = Line(*await asyncio.open_connection("127.0.0.1", broker.ports.metaq_port))
    await other.say(passed)
    assert await other.answers(1) == {78: 200}
    await other.close()
    assert broker.store.queue_range("other", 0) == (0, 1)


async def test_a_connection_that_ends_in_a_refused_body(
    broker: Broker, line: Line, refusing: list[TextSession]
) -> None:
    await line.say(put(LARGE, 77)[: 1 << 20])
    await eventually(lambda: left_of(refusing) > 0)
    await line.close()
    await eventually(lambda: refusing[0].state.closed)
    assert broker.ports.input_budget.held == 0
