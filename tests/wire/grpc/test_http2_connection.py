"""HTTP/2 of the gRPC port without a socket: calls in, answers out, and what a peer may not do."""

from __future__ import annotations

from typing import Any

import pytest
from hpack import Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.peers.sdk_peer import SdkFrames, framed
from imago_testing.searching import examples
from imago_wire.grpc import answers, frames
from imago_wire.grpc.connection import Http2Connection
from imago_wire.grpc.events import CallOpened, Came, Ended, Gone
from imago_wire.grpc.frames import ACK, END_HEADERS, END_STREAM, H2Error, Http2Frame, Setting
from imago_wire.grpc.limits import Http2Limits


def greeted(limits: Http2Limits | None = None) -> tuple[Http2Connection, SdkFrames]:
    connection, peer = Http2Connection(limits), SdkFrames()
    assert connection.feed(peer.greeting()) == []
    peer.read(connection.take_output())
    return connection, peer


def ended_with(connection: Http2Connection, peer: SdkFrames) -> H2Error:
    """Return why the server says that the connection ends."""
    told = [payload for kind, _, _, payload in peer.read(connection.take_output()) if kind == 7]
    assert connection.closing
    return H2Error(int.from_bytes(told[-1][4:8], "big"))


def test_a_call_and_its_answer() -> None:
    connection, peer = greeted()
    number, head = peer.begin("Heartbeat", {"x-mq-client-id": "größe"})
    data = peer.data(number, b"asked")
    opened, came, ended = [*connection.feed(head), *connection.feed(data)]
    assert isinstance(opened, CallOpened)
    assert opened.headers[":path"] == "/apache.rocketmq.v2.MessagingService/Heartbeat"
    assert opened.headers["x-mq-client-id"] == "größe"
    assert (came, ended) == (Came(number, b"asked"), Ended(number))
    connection.send(number, framed(b"answer"), last=True)
    head_, body, trailers = peer.read(connection.take_output())
    assert head_[3] == {":status": "200", "content-type": "application/grpc"}
    assert body[3] == framed(b"answer")
    assert trailers[1] == END_HEADERS | END_STREAM
    assert trailers[3] == {"grpc-status": "0"}
    assert not connection.has(number)


def test_bytes_may_come_one_by_one() -> None:
    connection, peer = Http2Connection(), SdkFrames()
    number, data = peer.begin("Heartbeat")
    whole = peer.greeting() + data + peer.data(number, b"x" * 40_000)
    events = [event for at in range(len(whole)) for event in connection.feed(whole[at : at + 1])]
    assert [type(event) for event in events] == [CallOpened, Came, Ended]


def test_a_failed_call_says_why_in_its_trailers() -> None:
    connection, peer = greeted()
    number, head = peer.begin("Nothing", end=True)
    connection.feed(head)
    connection.fail(number, 12, "no method 100% größe")
    ((_, _, _, told),) = peer.read(connection.take_output())
    assert told[":status"] == "200"
    assert told["grpc-status"] == "12"
    assert told["grpc-message"] == "no method 100%25 gr%C3%B6%C3%9Fe"


def test_texts_of_failures_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_TEXT_MAX", 3)
    connection, peer = greeted()
    number, head = peer.begin("Nothing", end=True)
    connection.feed(head)
    connection.fail(number, 13, "abcdef")
    assert peer.read(connection.take_output())[0][3]["grpc-message"] == "abc"


def test_pings_and_settings_are_answered() -> None:
    connection, peer = greeted()
    connection.feed(frames.frame(Http2Frame.PING, 0, 0, b"12345678"))
    connection.feed(frames.settings({Setting.ENABLE_PUSH: 0}))
    ping, settings = peer.read(connection.take_output())
    assert ping == (Http2Frame.PING, ACK, 0, b"12345678")
    assert settings == (Http2Frame.SETTINGS, ACK, 0, b"")


def test_an_answer_waits_for_both_windows() -> None:
    connection, peer = greeted()
    number, data = peer.begin("ReceiveMessage", end=True)
    connection.feed(frames.settings({Setting.INITIAL_WINDOW_SIZE: 10}) + data)
    connection.take_output()
    connection.send(number, framed(b"a" * 70_000), last=True)
    sent = [each for each in peer.read(connection.take_output()) if each[0] == 0]
    assert sum(len(each[3]) for each in sent) == 10
    assert connection.unsent == 70_005 - 10
    connection.feed(frames.window_update(number, 80_000))
    sent += [each for each in peer.read(connection.take_output()) if each[0] == 0]
    assert sum(len(each[3]) for each in sent) == frames.WINDOW_DEFAULT
    assert connection.has(number)
    connection.feed(frames.window_update(0, 10_000))
    rest = peer.read(connection.take_output())
    assert sum(len(each[3]) for each in [*sent, *rest] if each[0] == 0) == 70_005
    assert rest[-1][3] == {"grpc-status": "0"}
    assert connection.unsent == 0


def test_a_window_of_later_streams_moves_those_that_are_there() -> None:
    connection, peer = greeted()
    number, data = peer.begin("ReceiveMessage", end=True)
    connection.feed(data)
    connection.feed(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    connection.send(number, framed(b"abc"), last=True)
    assert all(kind != 0 for kind, *_ in peer.read(connection.take_output()))
    connection.feed(frames.settings({Setting.INITIAL_WINDOW_SIZE: 100}))
    assert peer.read(connection.take_output())[-1][3] == {"grpc-status": "0"}


def test_the_settings_of_one_frame_have_a_largest_number() -> None:
    one = frames.settings({Setting.ENABLE_PUSH: 0})[frames.HEAD_BYTES :]
    connection, peer = greeted(Http2Limits(settings_max=2))
    connection.feed(frames.frame(Http2Frame.SETTINGS, 0, 0, one * 2))
    assert not connection.closing
    connection.feed(frames.frame(Http2Frame.SETTINGS, 0, 0, one * 3))
    assert ended_with(connection, peer) is H2Error.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("calls", [0, 32])
def test_windows_changed_anew_count_for_as_many_calls_as_they_are_work_for(calls: int) -> None:
    connection, peer = greeted(Http2Limits(control_frames_max=6))
    connection.feed(b"".join(peer.begin("ReceiveMessage")[1] for _ in range(calls)))
    connection.tick()
    for size in (1, 2, 3):
        connection.feed(frames.settings({Setting.INITIAL_WINDOW_SIZE: size}))
    assert bool(connection.closing) == (calls > 0)


def test_room_of_the_connection_goes_to_those_who_wait_for_nothing_else() -> None:
    connection, peer = greeted()
    connection.feed(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    calls = [peer.begin("ReceiveMessage", end=True) for _ in range(3)]
    connection.feed(b"".join(data for _, data in calls))
    numbers = [number for number, _ in calls]
    connection.take_output()
    for number in numbers:
        connection.send(number, framed(b"a" * 40_000), last=True)
    connection.feed(frames.window_update(numbers[0], 60_000))
    connection.feed(frames.window_update(numbers[2], 60_000))
    connection.feed(frames.window_update(0, 30_000))
    found = peer.read(connection.take_output())
    ended = [number for kind, flags, number, _ in found if kind == 1 and flags & END_STREAM]
    assert ended == [numbers[0], numbers[2]]
    connection.feed(frames.window_update(numbers[1], 60_000))
    assert connection.unsent, "the connection has no room now"
    connection.feed(frames.window_update(0, 60_000))
    assert not connection.unsent


def test_a_call_that_its_peer_takes_back_is_gone() -> None:
    connection, peer = greeted()
    number, data = peer.begin("ReceiveMessage", end=True)
    connection.feed(data)
    assert connection.feed(frames.reset(number, H2Error.CANCEL)) == [Gone(number)]
    connection.take_output()
    connection.send(number, framed(b"late"), last=True)
    assert connection.take_output() == b""


def test_a_peer_gets_its_window_back() -> None:
    connection, peer = greeted(Http2Limits(window_bytes=70_000, stream_window_bytes=20_000))
    number, head = peer.begin("SendMessage")
    connection.feed(head)
    connection.feed(peer.data(number, b"x" * 15_000, end=False))
    told = [each for each in peer.read(connection.take_output()) if each[0] == 8]
    assert [(each[2], int.from_bytes(each[3], "big")) for each in told] == [(number, 15_005)]


def test_more_calls_than_allowed_are_refused_each_by_itself() -> None:
    connection, peer = greeted(Http2Limits(streams_max=1))
    _, first = peer.begin("Telemetry")
    number, second = peer.begin("Heartbeat")
    events = connection.feed(first + second)
    assert len(events) == 1
    told = peer.read(connection.take_output())
    assert told == [(3, 0, number, H2Error.REFUSED_STREAM.to_bytes(4, "big"))]
    assert not connection.closing


def test_who_was_told_to_leave_begins_nothing() -> None:
    connection, peer = greeted()
    _, first = peer.begin("Telemetry")
    connection.feed(first)
    connection.leave()
    number, second = peer.begin("Heartbeat")
    assert connection.feed(second) == []
    goaway, reset = peer.read(connection.take_output())
    assert goaway[0] == 7
    assert reset == (3, 0, number, H2Error.REFUSED_STREAM.to_bytes(4, "big"))


@pytest.mark.parametrize(
    ("limits", "size", "status"),
    [
        (Http2Limits(message_bytes_max=10), 10, None),
        (Http2Limits(message_bytes_max=10), 11, "8"),
    ],
)
def test_messages_have_a_largest_size(limits: Http2Limits, size: int, status: str | None) -> None:
    connection, peer = greeted(limits)
    number, head = peer.begin("SendMessage")
    events = connection.feed(head + peer.data(number, b"x" * size))
    told = [each[3] for each in peer.read(connection.take_output()) if each[0] == 1]
    if status is None:
        assert events[1] == Came(number, b"x" * size)
        assert told == []
    else:
        assert events[-1] == Gone(number)
        assert told[0]["grpc-status"] == status
    assert connection.buffered == 0


def test_compressed_messages_are_refused() -> None:
    connection, peer = greeted()
    number, head = peer.begin("SendMessage")
    events = connection.feed(head + frames.frame(Http2Frame.DATA, 0, number, b"\x01\0\0\0\x01x"))
    assert events[-1] == Gone(number)
    assert peer.read(connection.take_output())[0][3]["grpc-status"] == "12"


def test_unfinished_messages_of_all_calls_have_a_limit() -> None:
    connection, peer = greeted(Http2Limits(buffered_bytes_max=1000))
    events, number = [], 0
    for _ in range(3):
        number, head = peer.begin("SendMessage")
        part = framed(b"x" * 900)[:500]
        events += connection.feed(head + frames.frame(Http2Frame.DATA, 0, number, part))
    assert [event for event in events if isinstance(event, Gone)] == [Gone(number)]
    assert connection.buffered == 1000


def test_headers_have_a_largest_size() -> None:
    connection, peer = greeted(Http2Limits(header_bytes_max=600))
    connection.feed(peer.begin("Heartbeat", {"x-mq-request-id": "x" * 100})[1])
    assert not connection.closing
    connection.feed(peer.begin("Heartbeat", {"x-mq-request-id": "y" * 700})[1])
    assert ended_with(connection, peer) in (H2Error.ENHANCE_YOUR_CALM, H2Error.COMPRESSION_ERROR)


def test_headers_that_grow_when_they_are_written_out_end_the_connection() -> None:
    """An HPACK bomb: one long value in the table, named a thousand times in few bytes."""
    connection, peer = greeted(Http2Limits(header_bytes_max=16 << 10))
    encoder = Encoder()
    block = encoder.encode([("x-long", "v" * 3000)])
    bomb = block + b"\xbe" * 1000
    connection.feed(frames.frame(Http2Frame.HEADERS, END_HEADERS, 1, bomb))
    assert ended_with(connection, peer) is H2Error.COMPRESSION_ERROR


def test_headers_come_in_few_frames() -> None:
    connection, peer = greeted(Http2Limits(continuations_max=2))
    block = Encoder().encode([(":path", "/x")])
    connection.feed(frames.frame(Http2Frame.HEADERS, 0, 1, block))
    connection.feed(frames.frame(Http2Frame.CONTINUATION, 0, 1, b""))
    assert not connection.closing
    connection.feed(frames.frame(Http2Frame.CONTINUATION, 0, 1, b""))
    assert ended_with(connection, peer) is H2Error.ENHANCE_YOUR_CALM


def test_calls_begun_and_taken_back_again_and_again_end_the_connection() -> None:
    """Rapid reset. The count begins again each second."""
    connection, peer = greeted(Http2Limits(resets_max=3))
    for _ in range(3):
        for _ in range(3):
            number, data = peer.begin("ReceiveMessage", end=True)
            connection.feed(data + frames.reset(number, H2Error.CANCEL))
        assert not connection.closing
        connection.tick()
    for _ in range(4):
        number, data = peer.begin("ReceiveMessage", end=True)
        connection.feed(data + frames.reset(number, H2Error.CANCEL))
    assert ended_with(connection, peer) is H2Error.ENHANCE_YOUR_CALM


@pytest.mark.parametrize(
    "one",
    [
        frames.settings({Setting.ENABLE_PUSH: 0}),
        frames.frame(Http2Frame.PING, 0, 0, bytes(8)),
        frames.window_update(0, 1),
        frames.frame(Http2Frame.PRIORITY, 0, 1, bytes(5)),
        b"\0\0\0\xc8\0\0\0\0\0",  # of a later version
    ],
)
def test_floods_of_what_asks_for_nothing_end_the_connection(one: bytes) -> None:
    connection, peer = greeted(Http2Limits(control_frames_max=5))
    connection.tick()
    connection.feed(one * 5)
    assert not connection.closing
    connection.feed(one)
    assert ended_with(connection, peer) is H2Error.ENHANCE_YOUR_CALM


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (frames.frame(Http2Frame.PING, 0, 0, b"short"), H2Error.FRAME_SIZE_ERROR),
        (frames.frame(Http2Frame.SETTINGS, 0, 0, b"short"), H2Error.FRAME_SIZE_ERROR),
        (frames.frame(Http2Frame.DATA, 0, 1, b"x"), H2Error.PROTOCOL_ERROR),
        (frames.frame(Http2Frame.DATA, 0, 0, b"x"), H2Error.PROTOCOL_ERROR),
        (frames.frame(Http2Frame.HEADERS, END_HEADERS, 2, b""), H2Error.PROTOCOL_ERROR),
        (frames.frame(Http2Frame.HEADERS, 8 | END_HEADERS, 1, b"\x05"), H2Error.PROTOCOL_ERROR),
        (frames.frame(Http2Frame.CONTINUATION, END_HEADERS, 1), H2Error.PROTOCOL_ERROR),
        (frames.frame(Http2Frame.PUSH_PROMISE, 0, 1), H2Error.PROTOCOL_ERROR),
        (frames.frame(Http2Frame.RST_STREAM, 0, 1, bytes(4)), H2Error.PROTOCOL_ERROR),
        (frames.frame(Http2Frame.HEADERS, END_HEADERS, 1, b"\xff"), H2Error.COMPRESSION_ERROR),
        (frames.window_update(0, 0), H2Error.FLOW_CONTROL_ERROR),
        (frames.window_update(0, frames.WINDOW_MAX), H2Error.FLOW_CONTROL_ERROR),
        (b"\x00\x40\x01\x00\x00\x00\x00\x00\x01", H2Error.FRAME_SIZE_ERROR),
        (
            frames.frame(Http2Frame.HEADERS, 0, 1) + frames.frame(Http2Frame.PING, 0, 0, bytes(8)),
            H2Error.PROTOCOL_ERROR,
        ),
    ],
)
def test_what_the_protocol_forbids_ends_the_connection(data: bytes, why: H2Error) -> None:
    connection, peer = greeted()
    connection.feed(data)
    assert ended_with(connection, peer) is why
    assert connection.feed(b"anything") == []


def test_who_does_not_speak_http2_is_told_so() -> None:
    connection = Http2Connection()
    connection.feed(b"GET / HTTP/1.1\r\n")
    assert connection.closing == "this is no HTTP/2"


_PIECES: Any = st.one_of(
    st.binary(max_size=40),
    st.builds(
        frames.frame,
        st.sampled_from(list(Http2Frame)),
        st.integers(0, 255),
        st.integers(0, 9),
        st.binary(max_size=60),
    ),
)


@given(pieces=st.lists(_PIECES, max_size=30), cut=st.integers(1, 64))
@settings(max_examples=examples(200))
def test_nothing_that_may_come_raises(pieces: list[bytes], cut: int) -> None:
    """And cut in pieces it means the same."""
    data = frames.PREFACE + b"".join(pieces)
    whole, piecewise = Http2Connection(), Http2Connection()
    expected = whole.feed(data)
    found = [
        event for at in range(0, len(data), cut) for event in piecewise.feed(data[at : at + cut])
    ]
    assert found == expected
    assert piecewise.closing == whole.closing
    assert piecewise.take_output() == whole.take_output()
    assert whole.buffered >= 0
