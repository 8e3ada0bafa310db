"""Headers, ordinary sends and their answers: the compiled twin does what the reference does."""

from __future__ import annotations

from typing import Any

import pytest
from hpack import Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.peers.sdk_calls import message, sends
from imago_testing.peers.sdk_peer import SdkFrames, request_headers
from imago_testing.searching import examples
from imago_wire.errors import ProtocolError
from imago_wire.grpc import answers
from imago_wire.grpc.connection import Http2Connection
from imago_wire.grpc.events import CallCame
from imago_wire.grpc.headers import WANTED
from imago_wire.grpc.messages import duration, encoded, make, timestamp
from imago_wire.grpc.scanning import _blocks_c, _blocks_py, _sends_c, _sends_py  # type: ignore[attr-defined]  # built, not typed
from imago_wire.record_format import properties as props

SUFFIX = b"CLUSTER\x01c\x02"
LIMITS = (40, 3, 60, 8)
NAMES = st.sampled_from(["x-mq-client-id", "authorization", ":path", "other", "x" * 90, "te"])
VALUES = st.sampled_from(["", "a", "größe", "v" * 200, "POST", "/", "trailers"]) | st.text(
    max_size=12
)


def read(decoder: Any, blocks: list[bytes]) -> list[Any]:
    found: list[Any] = []
    for block in blocks:
        try:
            found.append(decoder.decode(block))
        except ProtocolError as error:
            return [*found, str(error)]
    return found


def alike(blocks: list[bytes], header_bytes_max: int = 600) -> list[Any]:
    told = read(_blocks_py.HeaderDecoder(header_bytes_max, WANTED), blocks)
    assert read(_blocks_c.HeaderDecoder(header_bytes_max, WANTED), blocks) == told
    return told


@st.composite
def header_blocks(draw: st.DrawFn) -> list[bytes]:
    """Blocks of one connection, each with changes of some bytes sometimes."""
    encoder, blocks = Encoder(), []
    for _ in range(draw(st.integers(1, 5))):
        if draw(st.integers(0, 4)) == 0:
            encoder.header_table_size = draw(st.sampled_from([0, 64, 200, 4096, 5000]))
        fields = draw(st.lists(st.tuples(NAMES, VALUES), max_size=8))
        block = bytearray(encoder.encode(fields, huffman=draw(st.booleans())))
        for at, value in draw(
            st.lists(st.tuples(st.integers(0, 40), st.integers(0, 255)), max_size=1)
        ):
            if at < len(block) and draw(st.booleans()):
                block[at] = value
        blocks.append(bytes(block[: draw(st.none() | st.integers(0, 60))]))
    return blocks


@settings(max_examples=examples(400))
@given(header_blocks())
def test_headers_are_read_alike(blocks: list[bytes]) -> None:
    alike(blocks)


@settings(max_examples=examples(300))
@given(st.lists(st.binary(max_size=24), min_size=1, max_size=3))
def test_what_is_no_header_block_is_refused_alike(blocks: list[bytes]) -> None:
    alike(blocks)


def test_what_a_table_has_forgotten_is_not_found_again() -> None:
    encoder = Encoder()
    first = encoder.encode([("x-mq-client-id", "a" * 100), ("other", "b" * 100)])
    (told,) = alike([first])
    assert told == {"x-mq-client-id": "a" * 100}
    known = encoder.encode([("x-mq-client-id", "a" * 100)])
    assert alike([first, known])[1] == told
    assert alike([first, b"\x20" + known]) == [told, "headers cannot be read"]
    many = [encoder.encode([("x-mq-client-id", f"{n}" * 60)]) for n in range(100)]
    assert [each["x-mq-client-id"] for each in alike([first, known, *many], 4096)[2:]] == [
        f"{n}" * 60 for n in range(100)
    ]


def test_the_size_of_a_list_is_limited_with_what_nobody_wants() -> None:
    block = Encoder().encode([("other", "v" * 300), ("te", "trailers")])
    assert alike([block], 600) == [{}]
    assert alike([block], 300) == ["headers cannot be read"]


def calls() -> st.SearchStrategy[bytes]:
    """Two frames as clients send them, or nearly."""

    @st.composite
    def made(draw: st.DrawFn) -> bytes:
        client = SdkFrames()
        client.begin("Heartbeat")
        number, head = client.begin("Heartbeat", end=draw(st.integers(0, 9)) == 0)
        body = client.data(number, draw(st.binary(max_size=30)), end=draw(st.integers(0, 9)) != 0)
        whole = bytearray(head + body)
        for at, value in draw(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 9)))):
            if at < len(whole) and draw(st.booleans()):
                whole[at] = value
        return bytes(whole[: draw(st.none() | st.integers(0, len(whole)))])

    return made()


@settings(max_examples=examples(300))
@given(calls(), st.integers(0, 3), st.sampled_from([3, 1]), st.sampled_from([16_384, 20]))
def test_whole_calls_are_found_alike(data: bytes, at: int, last: int, data_max: int) -> None:
    found = []
    for twin in (_blocks_py, _blocks_c):
        decoder = twin.HeaderDecoder(600, WANTED)
        try:
            found.append(decoder.whole_call(bytearray(data), at, last, data_max))
        except ProtocolError as error:
            found.append(str(error))
    assert found[0] == found[1]


def test_a_call_in_two_frames_comes_as_one_event() -> None:
    connection, client = Http2Connection(), SdkFrames()
    connection.feed(client.greeting())
    number, data = client.call("Heartbeat", make("HeartbeatRequest", client_type=1))
    (came,) = connection.feed(data)
    assert isinstance(came, CallCame)
    assert (came.stream, came.message) == (number, b"\x10\x01")
    assert came.headers == {
        name: value for name, value in request_headers("Heartbeat") if name in WANTED
    }
    for twin in (_sends_py, _sends_c):
        assert answers.held(twin.whole_answer(number, [b"answer"])) == b"answer"
    connection.send_whole(number, _sends_c.whole_answer(number, [b"answer"]))
    told = client.read(connection.take_output())
    assert [each[3] for each in told[-2:]] == [b"\0\0\0\0\x06answer", {"grpc-status": "0"}]
    assert not connection.has(number)


def test_an_answer_that_was_made_with_its_frames_waits_for_windows() -> None:
    connection, client = Http2Connection(), SdkFrames()
    connection.feed(client.greeting())
    number, head = client.begin("Heartbeat")
    connection.feed(head + client.data(number, b"", end=False))
    connection.send_whole(number, _sends_c.whole_answer(number, [b"answer"]))
    kinds = [kind for kind, _, _, _ in client.read(connection.take_output())]
    assert kinds[-4:] == [1, 0, 1, 3]  # the peer, which has more to send, hears that it need not


texts = st.sampled_from(
    ["", "a", "colour", "blue", "größe", "标签", " ", "\u2003", "a|b", "a\x01", "\x7f", "a\x85b",
     "DELAY", "UNIQ_KEY", "__IMAGO_PID", "__SHARDINGKEY", "INNER_MULTI_DISPATCH", "TRACE_CONTEXT",
     "long" * 9]
)  # fmt: skip
told = st.fixed_dictionaries(
    {},
    optional={
        "tag": texts,
        "keys": st.lists(texts, max_size=3),
        "message_id": texts,
        "message_type": st.sampled_from([0, 1, 2, 3, 4, 200, -1]),
        "message_group": texts,
        "trace_context": texts,
        "born_host": texts,
        "store_host": texts,
        "lite_topic": texts,
        "born_timestamp": st.sampled_from([0, 1, -1, 1_795_258_220_883, 1 << 60]).map(timestamp),
        "delivery_timestamp": st.just(timestamp(1)),
        "orphaned_transaction_recovery_duration": st.just(duration(1)),
        "properties": st.dictionaries(texts, texts, max_size=4),
        "body": st.binary(max_size=50),
        "topic": texts,
    },
)


def plain(twin: Any, data: bytes) -> Any:
    """What a twin makes of a request, its properties without their order."""
    found = twin.plain_send(data, b"peer:1", SUFFIX, LIMITS)
    return found and (*found[:3], props.decode(found[3]), *found[4:])


@settings(max_examples=examples(600))
@given(
    st.lists(told, min_size=1, max_size=2),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=1),
    st.integers(0, 3),
)
def test_sends_are_taken_alike(
    messages: list[dict[str, Any]], changes: list[tuple[int, int]], extra: int
) -> None:
    made = []
    for each in messages if extra == 0 else messages[:1]:
        one = message(**{"message_type": 1, "message_id": "01AA", **each})
        made.append(one)
    data = bytearray(encoded(sends(*made)))
    for at, value in changes:
        if at < len(data) and extra == 1:
            data[at] = value
    assert plain(_sends_c, bytes(data)) == plain(_sends_py, bytes(data))


@given(st.binary(max_size=60))
def test_what_is_no_send_is_left_alike(data: bytes) -> None:
    assert plain(_sends_c, data) == plain(_sends_py, data)


@pytest.mark.parametrize("twin", [_sends_py, _sends_c])
def test_an_ordinary_send_is_taken(twin: Any) -> None:
    made = message(
        tag="t", keys=["k1", "k2"], message_group="g", properties={"a": "b"}, trace_context="c",
        born_timestamp=timestamp(1_795_258_220_883), born_host="h",
    )  # fmt: skip
    topic, group, message_id, properties, body, born_ms = twin.plain_send(
        encoded(sends(made)), b"peer:1", SUFFIX, LIMITS
    )
    assert (topic, group, message_id, body) == ("plain", "g", b"01AA", b"body")
    assert born_ms == 1_795_258_220_883
    assert properties == (
        b"a\x01b\x02TAGS\x01t\x02KEYS\x01k1 k2\x02UNIQ_KEY\x0101AA\x02RECONSUME_TIME\x010\x02"
        b"PGROUP\x01plain\x02__SHARDINGKEY\x01g\x02TRACE_CONTEXT\x01c\x02__BORNHOST\x01h\x02"
        b"BORN_TIMESTAMP\x011795258220883\x02WAIT\x01false\x02CLUSTER\x01c\x02"
    )


@given(
    st.integers(1, (1 << 31) - 1),
    st.text(min_size=1, max_size=200),
    st.sampled_from([0, 1, 127, 128, 1 << 40]),
)
def test_stored_sends_are_answered_alike(number: int, text: str, offset: int) -> None:
    made = _sends_c.stored_answer(number, text.encode(), offset)
    assert made == _sends_py.stored_answer(number, text.encode(), offset)


@given(st.integers(1, (1 << 31) - 1), st.lists(st.binary(max_size=300), max_size=4))
def test_answers_are_framed_alike(number: int, messages: list[bytes]) -> None:
    made = _sends_c.whole_answer(number, messages)
    assert made == _sends_py.whole_answer(number, messages)
