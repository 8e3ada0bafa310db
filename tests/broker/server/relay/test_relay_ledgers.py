"""A relay passes on whole requests and answers, however they are cut, and knows what is owed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_broker.server.relay.relay_ledgers import FrameLedger, Ledger, TextLedger
from imago_testing.peers.metaq import put_frame
from imago_testing.peers.remoting import heartbeat
from imago_wire.errors import ProtocolError
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand, SerializeType
from imago_wire.remoting.frame import FrameDecoder, encode_frame
from imago_wire.text.encoder import result, value_head

CUTS = st.lists(st.integers(1, 60), min_size=1, max_size=8)
NUMBERS = st.lists(st.integers(1, 1 << 30), unique=True, max_size=5)


def framed(heartbeat: RemotingCommand | None = None) -> FrameLedger:
    return FrameLedger(heartbeat)


def text() -> TextLedger:
    return TextLedger(4096, 1 << 20)


def frame(opaque: int, code: int = 310, flag: int = 0, body: bytes = b"body") -> bytes:
    return encode_frame(RemotingCommand(code=code, opaque=opaque, flag=flag, body=body))


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    found = []
    for size in cuts * len(stream):
        if not stream:
            break
        found.append(stream[:size])
        stream = stream[size:]
    return found


def passed(take: object, stream: bytes, cuts: list[int], borders: set[int]) -> bytes:
    assert callable(take)
    found = b""
    for piece in pieces(stream, cuts):
        found += take(piece)
        assert len(found) in borders, "nothing but whole ones"
    return found


def borders_of(parts: list[bytes]) -> set[int]:
    return {len(b"".join(parts[:count])) for count in range(len(parts) + 1)}


@pytest.mark.parametrize("protocol", ["framed", "text"])
@settings(deadline=None)
@given(numbers=NUMBERS, cuts=CUTS)
def test_whole_ones_pass_and_every_request_is_owed_until_it_is_answered(
    protocol: str, numbers: list[int], cuts: list[int]
) -> None:
    ledger: Ledger = framed() if protocol == "framed" else text()
    if protocol == "framed":
        requests = [frame(number) for number in numbers]
        answers = [frame(number, 0, FLAG_RESPONSE) for number in numbers]
    else:
        requests = [put_frame("T", 0, b"body", opaque=number) for number in numbers]
        answers = [result(200, b"1 2 3", number) for number in numbers]
    stream = b"".join(requests)
    assert passed(ledger.requests, stream, cuts, borders_of(requests)) == stream
    assert ledger.owing == bool(numbers)
    assert ledger.unread() == b""
    stream = b"".join(answers)
    assert passed(ledger.answers, stream, cuts, borders_of(answers)) == stream
    assert not ledger.owing
    assert ledger.refusals() == b""


def test_the_start_of_a_request_is_given_back() -> None:
    for ledger, request in ((framed(), frame(1)), (text(), put_frame("T", 0, b"body"))):
        assert ledger.requests(request + request[:15]) == request
        assert ledger.unread() == request[:15]
        assert ledger.unread() == b""


def test_what_is_owed_is_refused_in_the_form_of_its_request() -> None:
    ledger = framed()
    binary = RemotingCommand(code=310, opaque=3, serialize=SerializeType.ROCKETMQ)
    ledger.requests(frame(1) + frame(2, flag=FLAG_ONEWAY) + encode_frame(binary))
    decoder = FrameDecoder()
    decoder.feed(ledger.refusals())
    found = [decoder.next_frame(), decoder.next_frame()]
    assert [(each.code, each.opaque, each.serialize) for each in found if each] == [
        (ResponseCode.SERVICE_NOT_AVAILABLE, 1, SerializeType.JSON),
        (ResponseCode.SERVICE_NOT_AVAILABLE, 3, SerializeType.ROCKETMQ),
    ]
    assert not ledger.owing

    lines = text()
    lines.requests(b"version\r\nget T g 0 0 100 7\r\n" + put_frame("T", 0, b"x", opaque=7))
    assert lines.answers(value_head(2, 7) + b"\r\n") == value_head(2, 7) + b"\r\n"
    refused = lines.refusals()
    assert refused.count(b"result 500 ") == 2
    assert b" 7\r\n" in refused
    assert not lines.owing


def test_polls_do_not_press() -> None:
    ledger, seen = framed(), []
    for said in (frame(1, RequestCode.PULL_MESSAGE), frame(2)):
        ledger.requests(said)
        seen.append((ledger.owing, ledger.pressing))
    ledger.answers(frame(2, 0, FLAG_RESPONSE))
    seen.append((ledger.owing, ledger.pressing))
    assert seen == [(True, False), (True, True), (True, False)]


def test_the_greeting_is_the_last_heartbeat_and_its_answer_is_kept_back() -> None:
    first = RemotingCommand(code=RequestCode.HEART_BEAT, opaque=5, body=heartbeat("one"))
    ledger = framed(first)
    assert ledger.greeting() == encode_frame(first)
    waits = not ledger.greeted
    news = frame(9, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    assert ledger.answers(news + frame(5, 0, FLAG_RESPONSE)) == news
    assert waits
    assert ledger.greeted
    later = frame(6, RequestCode.HEART_BEAT, body=heartbeat("two"))
    assert ledger.requests(later) == later
    assert ledger.heartbeat is not None
    assert ledger.heartbeat.body == heartbeat("two")
    assert ledger.greeting() == later


@pytest.mark.parametrize("last", [b"quit\r\n", b"nonsense\r\n"])
def test_a_client_that_has_said_its_last_is_not_listened_to(last: bytes) -> None:
    ledger = text()
    put = put_frame("T", 0, b"body", opaque=3)
    ledger.requests(put + last + put)
    assert ledger.last
    assert ledger.requests(put) == b""
    ledger.answers(result(200, b"1 2 3", 3))
    assert not ledger.owing


def test_a_stream_without_borders_ends() -> None:
    ledger = framed()
    assert ledger.requests(frame(1) + b"\xff\xff\xff\xff") == frame(1)
    assert ledger.last
    with pytest.raises(ProtocolError):
        framed().answers(b"\xff\xff\xff\xff")
    with pytest.raises(ProtocolError):
        text().answers(b"no answer\r\n")
