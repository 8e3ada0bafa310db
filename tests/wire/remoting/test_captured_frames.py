"""Every frame captured between original clients and servers, against this codec."""

from __future__ import annotations

from pathlib import Path

import pytest

from imago_testing.frames.remoting import Capture, load_captures
from imago_wire.remoting.bodies.client import ConsumeFromWhere, HeartbeatData, SubscriptionData
from imago_wire.remoting.bodies.route import TopicRouteData
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.command import RemotingCommand, SerializeType
from imago_wire.remoting.frame import FrameDecoder, encode_frame
from imago_wire.remoting.header import decode_header
from imago_wire.remoting.headers.table import REQUEST_HEADERS, RESPONSE_HEADERS
from imago_wire.remoting.messages import decode_batch, decode_messages, encode_message
from imago_wire.remoting.peer import Language, Version

CAPTURES = load_captures(Path(__file__).parent / "golden" / "captured.hex")
WHOLE = [one for one in CAPTURES if one.is_whole]
REQUESTS = [one for one in CAPTURES if "request" in one.name]
RESPONSES = [one for one in CAPTURES if "response" in one.name]
WITH_EXT = [one for one in REQUESTS if one.header.get("extFields")]


def named(captures: list[Capture]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("capture", captures, ids=[one.name for one in captures])


def command(capture: Capture) -> RemotingCommand:
    header = capture.data[8 : 8 + capture.header_size]
    return decode_header(capture.data[4], header, capture.data[8 + capture.header_size :])


def captured(part: str) -> RemotingCommand:
    return next(command(one) for one in CAPTURES if part in one.name)


def test_captures_are_the_known_number() -> None:
    assert len(CAPTURES) == 46
    assert len(WHOLE) == 44
    assert len(REQUESTS) + len(RESPONSES) == 46


@named(CAPTURES)
def test_header_is_read_as_captured(capture: Capture) -> None:
    found, expected = command(capture), capture.header
    assert found.code == expected["code"]
    assert found.flag == expected["flag"]
    assert found.opaque == expected["opaque"]
    assert found.version == expected["version"]
    assert found.language is Language.JAVA
    assert found.remark == expected.get("remark")
    assert found.ext == expected.get("extFields", {})
    assert found.serialize == capture.data[4]
    assert found.is_response == ("response" in capture.name)


@named(WHOLE)
def test_frame_is_cut_where_it_ends(capture: Capture) -> None:
    decoder = FrameDecoder()
    decoder.feed(capture.data + b"\x00")
    found = decoder.next_frame()
    assert found is not None
    assert len(found.body) == capture.body_size
    assert found == command(capture)
    assert decoder.next_frame() is None


@named(CAPTURES)
def test_header_is_written_again_byte_for_byte(capture: Capture) -> None:
    written = encode_frame(command(capture))[8:]
    original = capture.data[8:]
    # An ext map that is there but empty is left out: no client tells the difference.
    assert written == original.replace(b'"extFields":{},', b"")


@named(WITH_EXT)
def test_request_reads_into_its_header_class_and_back(capture: Capture) -> None:
    found = command(capture)
    header = REQUEST_HEADERS[RequestCode(found.code)].from_ext(found.ext)
    written = header.to_ext()
    assert {key: written[key] for key in found.ext} == found.ext


@named([one for one in RESPONSES if one.header["code"] == 0 and one.header.get("extFields")])
def test_response_reads_into_its_header_class_and_back(capture: Capture) -> None:
    found = command(capture)
    code = RequestCode(int(capture.name.split(" to ")[1].split()[0]))
    written = RESPONSE_HEADERS[code].from_ext(found.ext).to_ext()
    assert {key: written[key] for key in found.ext} == found.ext


@named([one for one in RESPONSES if "to 11 code 0" in one.name])
def test_pulled_messages_are_read_and_written_again(capture: Capture) -> None:
    body = command(capture).body
    (message,) = decode_messages(body)
    assert message.topic == "bench"
    assert message.size == len(body)
    written = encode_message(message)
    if not body.endswith(b"\x02"):  # 4.9 leaves out the last separator
        written = written[:-1]
    assert written[4:-200] == body[4:-200]
    assert written[-40:] == body[-40:]


@named([one for one in REQUESTS if one.header["code"] == 320])
def test_batches_hold_two_messages(capture: Capture) -> None:
    entries = decode_batch(command(capture).body)
    assert [entry.body for entry in entries] == [b"b1", b"b2"]
    assert all(entry.properties.startswith(b"UNIQ_KEY\x01FD0000") for entry in entries)


@named([one for one in RESPONSES if "to 105 code 0" in one.name])
def test_routes_are_read_and_written_again(capture: Capture) -> None:
    body = command(capture).body
    route = TopicRouteData.decode(body)
    assert route.broker_datas[0].broker_addrs == {0: "127.0.0.1:14911"}
    assert route.queue_datas[0].perm == 7
    assert route.encode(standard=True) == body


def test_heartbeat_of_a_5_client() -> None:
    body = captured("5.3.3, JSON headers: JSON request 34").body
    data = HeartbeatData.decode(body)
    assert [one.group_name for one in data.producer_data_set] == [
        "CLIENT_INNER_PRODUCER",
        "wire_producer",
    ]
    assert (data.heartbeat_fingerprint, data.without_sub) == (0, False)
    assert data.encode() == body


def test_heartbeat_of_a_4_9_consumer() -> None:
    found = captured("4.9.7, JSON headers: JSON request 34")
    assert found.version == Version.V4_9_7
    (consumer,) = HeartbeatData.decode(found.body).consumer_data_set
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert {one.topic for one in consumer.subscription_data_set} == {"%RETRY%wire_group", "bench"}
    assert consumer.subscription_data_set[1] == SubscriptionData(
        topic="bench", sub_version=1795258412182
    )
    assert HeartbeatData.decode(found.body).encode() == found.body


def test_binary_header_is_told_from_json_by_the_header_word() -> None:
    assert captured("ROCKETMQ request 310").serialize is SerializeType.ROCKETMQ
    assert captured("client with ROCKETMQ (binary) headers: JSON response to 310").serialize is (
        SerializeType.JSON
    )
