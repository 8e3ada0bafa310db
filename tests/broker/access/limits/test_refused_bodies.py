"""Large requests that their header alone refuses: nobody keeps their bodies, and the answer is that
of a request that was read whole."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.server import unfinished
from imago_broker.server.remoting import header_refusals
from imago_broker.server.remoting.header_refusals import HeaderRefusals
from imago_broker.service.access.access_edits import Actor
from imago_testing.clusters.shard_pair import eventually
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import FLAG_ONEWAY, RemotingCommand
from imago_wire.remoting.frame import FrameDecoder, encode_frame
from imago_wire.remoting.signing import signed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from imago_broker.app import Broker
    from imago_broker.server.remoting.remoting_session import RemotingSession

BY = Actor("the tests", "nowhere")
OK, DENIED = int(ResponseCode.SUCCESS), int(ResponseCode.NO_PERMISSION)
SMALL = 32
LARGE = b"x" * (13 << 20)
NO_RIGHT, WRONG = "has no permission to access Topic:other", "check signature failed"


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[RemotingPeer]:
    access = broker.core.access
    for topic in ("orders", "other"):
        broker.topics.create_or_update(TopicConfig(name=topic, read_queues=1, write_queues=1))
    for name in ("ann", "nobody", "shut"):
        access.put_user(User(name=name, secret=f"secret-of-{name}", enabled=name != "shut"), BY)
    rule = AccessRule(Resource(AccessKind.TOPIC, "orders"), frozenset({Operation.PUBLISH}))
    access.set_rules("ann", [rule], BY)
    connected = await RemotingPeer.connect(broker.rocketmq_port)
    yield connected
    await connected.close()


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[RemotingSession]:
    """The connections of which a header has refused a request, one for each."""
    found: list[RemotingSession] = []
    real = HeaderRefusals.look

    def look(refusals: HeaderRefusals, buffer: bytearray) -> None:
        before = refusals.refused
        real(refusals, buffer)
        if refusals.refused is not before:
            found.append(refusals.channel.transport.get_protocol())  # type: ignore[attr-defined]

    monkeypatch.setattr(HeaderRefusals, "look", look)
    return found


def frame(
    body: bytes, *, user: str = "ann", secret: str = "", topic: str = "other", code: int = 310,
    opaque: int = 77, flag: int = 0,
) -> bytes:  # fmt: skip
    fields = send_ext(topic, 0) if code == 310 else {}
    ext = {name: str(value) for name, value in fields.items()}
    if user:
        ext = signed(ext, body, access_key=user, secret=secret or f"secret-of-{user}")
    return encode_frame(RemotingCommand(code=code, opaque=opaque, ext=ext, body=body, flag=flag))


def left_of(sessions: list[RemotingSession]) -> int:
    """Return how much of the one refused body has not come; -1: none is refused."""
    found = [session._refusals.refused for session in sessions]
    return found[0].left if found and found[0] is not None else -1


async def refused(peer: RemotingPeer) -> str:
    answer = await peer.answer(77)
    assert answer.code == DENIED
    return answer.remark or ""


async def test_the_body_of_a_refused_request_is_not_kept(
    broker: Broker, peer: RemotingPeer, sessions: list[RemotingSession]
) -> None:
    data, input_budget = frame(LARGE), broker.ports.input_budget
    peer.write(data[: 4 << 20])
    await eventually(lambda: left_of(sessions) == len(data) - (4 << 20))
    assert len(sessions[0]._buffer) < 1000
    assert input_budget.held < 64 << 10
    peer.write(data[4 << 20 :])
    assert NO_RIGHT in await refused(peer)
    peer.write(frame(b"small", topic="orders"))
    assert (await peer.answer(77)).code == OK, "the connection stays"
    assert len(sessions) == 1


@pytest.mark.parametrize("size", [1, 7, 64, 5000])
async def test_pieces_of_any_size_and_what_stands_between(
    peer: RemotingPeer,
    sessions: list[RemotingSession],
    monkeypatch: pytest.MonkeyPatch,
    size: int,
) -> None:
    monkeypatch.setattr(header_refusals, "EARLY_LOOK_BYTES", SMALL)
    data = frame(b"a" * 400) + frame(b"b", topic="orders", opaque=5) + frame(b"c" * 900, opaque=6)
    data += frame(b"d" * 700, topic="orders", opaque=7)
    for piece in pieces(data, size):
        peer.write(piece)
        await asyncio.sleep(0)
    answers = [await peer.answer(opaque) for opaque in (77, 5, 6, 7)]
    assert [answer.code for answer in answers] == [DENIED, OK, DENIED, OK]
    assert all(NO_RIGHT in (answers[at].remark or "") for at in (0, 2))
    assert len(sessions) >= (2 if size < 400 else 0)
    assert all(session._refusals.refused is None and not session._buffer for session in sessions)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({}, NO_RIGHT),
        ({"secret": "another secret"}, WRONG),
        ({"user": "eve", "secret": "secret"}, "User:eve is not found"),
        ({"user": "shut"}, "User:shut is disabled"),
        ({"user": ""}, "username cannot be null"),
        ({"user": "nobody", "code": int(RequestCode.HEART_BEAT)}, "no permission at all"),
        ({"user": "nobody", "code": int(RequestCode.HEART_BEAT), "secret": "wrong one"}, WRONG),
    ],
)
async def test_the_answer_is_that_of_a_request_that_was_read_whole(
    peer: RemotingPeer,
    sessions: list[RemotingSession],
    monkeypatch: pytest.MonkeyPatch,
    told: dict[str, Any],
    said: str,
) -> None:
    data = frame(b"z" * 100_000, **told)
    if "no permission at all" not in said:
        monkeypatch.setattr(header_refusals, "EARLY_LOOK_BYTES", 1 << 30)
        peer.write(data)
        assert said in await refused(peer)
        assert not sessions
        monkeypatch.setattr(header_refusals, "EARLY_LOOK_BYTES", SMALL)
    for piece in pieces(data, 30_000):
        peer.write(piece)
        await asyncio.sleep(0.01)
    assert said in await refused(peer)
    assert len(sessions) == 1


async def test_what_is_allowed_and_what_only_its_body_tells_is_read_whole(
    broker: Broker,
    peer: RemotingPeer,
    sessions: list[RemotingSession],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(header_refusals, "EARLY_LOOK_BYTES", SMALL)
    beat = {"clientID": "c", "consumerDataSet": [], "producerDataSet": [{"groupName": "P"}]}
    body = json.dumps(beat).encode() + b" " * 900
    for data in (
        frame(b"z" * 100_000, topic="orders"),
        frame(body, code=int(RequestCode.HEART_BEAT)),
        frame(b"z" * 1000, code=999_999),
    ):
        for piece in pieces(data, 500 if len(data) < 5000 else 30_000):
            peer.write(piece)
            await asyncio.sleep(0)
        assert (await peer.answer(77)).code in (OK, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    assert not sessions
    assert broker.store.queue_range("orders", 0) == (0, 1)


async def test_a_one_way_request_is_refused_without_a_word(
    peer: RemotingPeer, sessions: list[RemotingSession]
) -> None:
    data = frame(b"z" * 200_000, flag=FLAG_ONEWAY)
    for piece in pieces(data, 50_000):
        peer.write(piece)
        await asyncio.sleep(0.01)
    peer.write(frame(b"small", topic="orders", opaque=5))
    assert (await peer.answer(5)).code == OK
    assert len(sessions) == 1
    assert peer.unread == []


async def test_who_takes_the_connection_over_gets_nothing_of_the_refused_request(
    peer: RemotingPeer, sessions: list[RemotingSession]
) -> None:
    data = frame(LARGE)
    peer.write(data[: 1 << 20])
    await eventually(lambda: left_of(sessions) == len(data) - (1 << 20))
    (session,) = sessions
    decoder = FrameDecoder()
    decoder.feed(session.unserved() + data[1 << 20 :])
    passed_on = decoder.next_frame()
    assert passed_on is not None
    assert passed_on.is_response, "nobody stores it, whatever the rights are by then"
    assert len(passed_on.body) == len(data) - (1 << 20)
    assert decoder.rest() == b""
    assert NO_RIGHT in await refused(peer)
    assert session._refusals.refused is None


async def test_a_header_has_to_be_whole_sooner_while_much_is_held(
    broker: Broker, peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(header_refusals, "CROWDED_LOOK_BYTES", 16)
    monkeypatch.setattr(header_refusals, "CROWDED_HEADER_BYTES_MAX", 600)
    begun = (1 << 16).to_bytes(4, "big") + (1 << 15).to_bytes(4, "big")
    peer.write(begun + bytes(2000))
    await asyncio.sleep(0.05)
    assert broker.ports.rocketmq.connections == 1, "nobody else has begun anything"
    monkeypatch.setattr(unfinished, "CROWDED_PART", 1 << 62)
    other = await RemotingPeer.connect(broker.rocketmq_port)
    other.write(frame(b"x" * 300, opaque=5)[:-1])
    other.write(frame(b"x" * 300, opaque=5)[-1:])
    assert (await other.answer(5)).code == DENIED
    peer.write(bytes(1))
    await eventually(lambda: broker.ports.rocketmq.connections == 1)
    await other.close()
