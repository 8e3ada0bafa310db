"""The protocol's known values: bytes that original classes read, against this codec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from imago_testing.frames.remoting import load_known
from imago_wire.record_format import properties
from imago_wire.record_format.layout import UNIT
from imago_wire.record_format.tags import java_hash
from imago_wire.remoting.bodies.client import (
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
)
from imago_wire.remoting.bodies.register import (
    RegisterBrokerBody,
    decode_register_body,
    encode_register_body,
)
from imago_wire.remoting.bodies.route import TopicRouteData
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import RemotingCommand, SerializeType
from imago_wire.remoting.frame import FrameDecoder, encode_frame
from imago_wire.remoting.headers.pull import PullMessageResponseHeader
from imago_wire.remoting.headers.send import (
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    read_send_header,
)
from imago_wire.remoting.headers.table import REQUEST_HEADERS
from imago_wire.remoting.messages import (
    BatchEntry,
    decode_batch,
    decode_messages,
    encode_batch,
    encode_message,
)
from imago_wire.remoting.peer import Language, Version

KNOWN = load_known(Path(__file__).parent / "golden" / "known.hex")
UNIQ_KEY = "7F000001000118B4AAC212CC9AB20000"

FRAMES = [
    "route-request-json", "send-v2-json", "send-v2-binary", "send-response-json",
    "send-response-binary", "route-response-bare-keys", "route-response-standard",
    "error-unsupported", "error-overload", "error-no-route", "error-go-away", "heartbeat",
    "heartbeat-response", "pull-request", "pull-found", "pull-not-found", "update-offset",
    "query-offset-not-found", "end-transaction", "check-transaction", "send-back",
    "lock-request", "consumer-list", "signed-send", "pop-request", "ack-request",
    "register-json",
]  # fmt: skip


def command(name: str) -> RemotingCommand:
    decoder = FrameDecoder()
    decoder.feed(KNOWN[name])
    found = decoder.next_frame()
    assert found is not None
    assert decoder.next_frame() is None
    return found


@pytest.mark.parametrize("name", FRAMES)
def test_known_frame_is_written_again_byte_for_byte(name: str) -> None:
    written = encode_frame(command(name))
    # An ext map that is there but empty is left out: no client tells the difference.
    original = KNOWN[name]
    if b'"extFields":{},' in original:
        shorter = original.replace(b'"extFields":{},', b"")
        assert written[8:] == shorter[8:]
    else:
        assert written == original


REQUESTS = [
    "route-request-json", "send-v2-json", "send-v2-binary", "pull-request", "update-offset",
    "end-transaction", "check-transaction", "send-back", "signed-send", "pop-request",
    "ack-request", "register-json",
]  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
def test_known_request_reads_into_its_header_class_and_back(name: str) -> None:
    found = command(name)
    written = REQUEST_HEADERS[RequestCode(found.code)].from_ext(found.ext).to_ext()
    signature = {"AccessKey", "SecurityToken", "Signature"}
    told = {key: value for key, value in found.ext.items() if key not in signature}
    assert {key: written[key] for key in told} == told


def test_send_request_has_the_same_header_in_both_forms() -> None:
    as_json, as_binary = command("send-v2-json"), command("send-v2-binary")
    assert as_json.serialize is SerializeType.JSON
    assert as_binary.serialize is SerializeType.ROCKETMQ
    assert as_json.ext == as_binary.ext
    assert as_json.body == as_binary.body == b"hello"
    header = read_send_header(as_json.ext)
    assert header == SendMessageRequestHeaderV2(
        producer_group="PG",
        topic="TopicTest",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=2,
        sys_flag=0,
        born_timestamp=1700000000000,
        flag=0,
        properties=f"UNIQ_KEY\x01{UNIQ_KEY}\x02WAIT\x01true\x02TAGS\x01TagA\x02KEYS\x01k1\x02",
        broker_name="broker-a",
    )


def test_send_response_carries_what_java_producers_need() -> None:
    for name in ("send-response-json", "send-response-binary"):
        header = SendMessageResponseHeader.from_ext(command(name).ext)
        assert header == SendMessageResponseHeader(
            msg_id="7F00000100002A9F0000000000000000",
            queue_id=2,
            queue_offset=0,
            transaction_id=UNIQ_KEY,
            msg_region="DefaultRegion",
            trace_on=True,
        )


def test_route_is_read_from_both_forms_and_written_in_both() -> None:
    bare, standard = command("route-response-bare-keys"), command("route-response-standard")
    route = TopicRouteData.decode(bare.body)
    assert TopicRouteData.decode(standard.body) == route
    assert route.encode() == bare.body
    assert route.encode(standard=True) == standard.body
    assert route.broker_datas[0].broker_addrs == {
        0: "192.168.1.10:10911",
        1: "192.168.1.11:10911",
    }


@pytest.mark.parametrize(
    ("name", "code", "remark"),
    [
        ("error-unsupported", 3, " request type 9999 not supported"),
        ("error-overload", 2, "[OVERLOAD]system busy, start flow control for a while"),
        ("error-go-away", 1500, "please go away"),
        (
            "query-offset-not-found",
            22,
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        ),
    ],
)
def test_error_has_code_and_remark(name: str, code: int, remark: str) -> None:
    found = command(name)
    assert (found.code, found.remark, found.is_response) == (ResponseCode(code), remark, True)


def test_heartbeat_body_is_read_and_written_again() -> None:
    found = command("heartbeat")
    data = HeartbeatData.decode(found.body)
    assert data.client_id == "192.168.1.20@4711#123456789"
    (consumer,) = data.consumer_data_set
    assert [one.topic for one in consumer.subscription_data_set] == ["TopicTest", "%RETRY%CG"]
    assert consumer.subscription_data_set[0].code_set == {2598919}
    assert data.encode() == found.body


def test_lock_bodies_are_read_and_written_again() -> None:
    found = command("lock-request")
    asked = LockBatchRequestBody.decode(found.body)
    assert asked.mq_set == (
        MessageQueue("TopicTest", "broker-a", 0),
        MessageQueue("TopicTest", "broker-a", 1),
    )
    assert asked.encode() == found.body
    held = LockBatchResponseBody(lock_ok_mq_set=asked.mq_set[:1])
    text = b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":0,"topic":"TopicTest"}]}'
    assert held.encode() == text
    assert LockBatchResponseBody.decode(text) == held


def test_one_way_request_is_told_by_its_flag() -> None:
    assert command("update-offset").is_oneway
    assert command("end-transaction").is_oneway
    assert not command("pull-request").is_oneway


def test_pull_response_has_its_four_fields_and_its_message() -> None:
    found = command("pull-found")
    assert PullMessageResponseHeader.from_ext(found.ext) == PullMessageResponseHeader(
        suggest_which_broker_id=0, next_begin_offset=1, min_offset=0, max_offset=1
    )
    (message,) = decode_messages(found.body)
    assert (message.body, message.topic, message.tags) == (b"hello", "TopicTest", "TagA")
    assert found.body == KNOWN["message-v1"]


EXPECTED_MESSAGES: dict[str, dict[str, Any]] = {
    "message-v1": {"queue_id": 2, "keys": ["k1"], "unique_key": UNIQ_KEY, "body": b"hello"},
    "message-v2": {"topic": "T" * 130, "body": b"x", "queue_id": 1, "physical_offset": 4096},
    "message-ipv6": {"sys_flag": 0x30, "body": b"v6", "tags": "T", "queue_offset": 1},
    "message-zlib": {"sys_flag": 0x301, "body": b"a" * 5000, "topic": "TopicTest"},
}


@pytest.mark.parametrize("name", EXPECTED_MESSAGES)
def test_stored_message_is_decoded(name: str) -> None:
    (message,) = decode_messages(KNOWN[name])
    for field, value in EXPECTED_MESSAGES[name].items():
        assert getattr(message, field) == value


@pytest.mark.parametrize("name", EXPECTED_MESSAGES)
def test_stored_message_is_encoded_again(name: str) -> None:
    (message,) = decode_messages(KNOWN[name], inflate=False)
    written = encode_message(message)
    if not KNOWN[name].endswith(b"\x02"):
        written = written[:-1]  # 4.9 leaves out the last separator, so its sizes are one less
        assert written[4:103] == KNOWN[name][4:103]
        assert written[105:] == KNOWN[name][105:]
    else:
        assert written == KNOWN[name]


def test_offset_message_id_of_an_ipv6_host() -> None:
    (message,) = decode_messages(KNOWN["message-ipv6"])
    assert message.offset_message_id == "0000000000000000000000000000000100002A9F0000000000002000"


def test_batch_body_is_read_and_written_again() -> None:
    prefix = UNIQ_KEY[:-1].encode()
    entries = decode_batch(KNOWN["batch-body"])
    assert entries == [
        BatchEntry(b"m0", b"UNIQ_KEY\x01%b1\x02WAIT\x01true\x02" % prefix),
        BatchEntry(b"m1", b"UNIQ_KEY\x01%b2\x02WAIT\x01true\x02TAGS\x01B\x02" % prefix),
    ]
    assert encode_batch(entries) == KNOWN["batch-body"]


def test_batch_request_of_known_size() -> None:
    header = SendMessageRequestHeaderV2(
        producer_group="PG", topic="TopicTest", queue_id=2, sys_flag=0, flag=0,
        born_timestamp=1700000000000, batch=True, broker_name="broker-a",
        properties=f"UNIQ_KEY\x01{UNIQ_KEY}\x02WAIT\x01true\x02",
    )  # fmt: skip
    frame = encode_frame(
        RemotingCommand(320, opaque=10, ext=header.to_ext(), body=KNOWN["batch-body"])
    )
    assert frame[:8].hex() == "000001ea00000147"
    fields = json.loads(frame[8 : 8 + 0x147])
    assert fields["extFields"] == {
        "a": "PG", "b": "TopicTest", "c": "TBW102", "d": "4", "e": "2", "f": "0",
        "g": "1700000000000", "h": "0", "i": f"UNIQ_KEY\x01{UNIQ_KEY}\x02WAIT\x01true\x02",
        "j": "0", "k": "false", "m": "true", "n": "broker-a",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["properties-5", "properties-4"])
def test_property_string_with_and_without_its_last_separator(name: str) -> None:
    expected = {"KEYS": "a b", "TAGS": "TagA", "WAIT": "true"}
    assert properties.decode(KNOWN[name]) == expected
    assert properties.encode(expected) == KNOWN["properties-5"]


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("a", 97),
        ("", 0),
        ("tag-0123456789", 1531514392),
        ("中文标签", 622041809),
    ],
)
def test_tag_hash_is_javas(tag: str, code: int) -> None:
    assert java_hash(tag) == code


def test_consume_queue_unit_of_a_tag() -> None:
    assert UNIT.pack(647, 236, java_hash("TagA")) == KNOWN["consume-queue-unit"]


def test_registration_as_json() -> None:
    found = command("register-json")
    body = decode_register_body(found.body, version=found.version, body_crc32=567853781)
    assert body.topic_config_serialize_wrapper.topic_config_table["TopicTest"].perm == 6
    assert body.topic_config_serialize_wrapper.data_version.counter == 2
    assert body.encode() == found.body


def test_registration_compressed() -> None:
    data = KNOWN["register-deflated"]
    body = decode_register_body(data, version=Version.V5_3_3, body_crc32=2110677865)
    assert isinstance(body, RegisterBrokerBody)
    topic = body.topic_config_serialize_wrapper.topic_config_table["TopicTest"]
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (4, 4, 6)
    assert encode_register_body(body, version=Version.V5_3_3) == data


def test_pop_request_reads_and_does_not_fit_a_binary_header() -> None:
    found = command("pop-request")
    assert found.code == RequestCode.POP_MESSAGE
    assert found.language is Language.JAVA
