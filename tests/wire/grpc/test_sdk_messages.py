"""Messages, headers and hashes of RocketMQ 5's gRPC protocol, as its own clients have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from imago_wire.errors import ProtocolError
from imago_wire.grpc.codes import SdkCode, of_remoting
from imago_wire.grpc.hashing import java_hash, queue_of_group
from imago_wire.grpc.headers import credentials, timeout_ms
from imago_wire.grpc.messages import (
    duration,
    encoded,
    make,
    milliseconds,
    parse,
    timestamp,
)
from imago_wire.remoting.codes import ResponseCode


def test_a_send_has_the_bytes_of_the_published_protocol() -> None:
    request = make("SendMessageRequest")
    message = request.messages.add()
    message.topic.name = "dump-n"
    message.user_properties["a"] = "b"
    told = message.system_properties
    told.tag, told.message_id, told.message_type = "t", "01", 1
    told.keys.append("k")
    told.born_timestamp.CopyFrom(timestamp(1_700_000_000_123))
    message.body = b"n0"
    data = encoded(request)
    assert parse("SendMessageRequest", data) == request
    assert b"\n\x08\x12\x06dump-n" in data  # field 1, a resource's name
    assert b"\x30\x01" in data  # field 6, message_type
    assert data.endswith(b"\x22\x02n0")  # field 4, body


def test_optional_fields_are_there_or_not() -> None:
    told = make("SystemProperties", queue_offset=0, tag="")
    read = parse("SystemProperties", encoded(told))
    assert read.HasField("queue_offset")
    assert read.HasField("tag")
    assert not read.HasField("receipt_handle")
    assert encoded(told) == bytes.fromhex("0a007000")


def test_alternatives_exclude_each_other() -> None:
    command = make("TelemetryCommand")
    command.settings.client_type = 1
    assert command.WhichOneof("content") == "settings"
    command.thread_stack_trace.nonce = "n"
    assert command.WhichOneof("content") == "thread_stack_trace"


def test_what_is_no_message_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="no SendMessageRequest"):
        parse("SendMessageRequest", b"\xff\xff\xff")


@pytest.mark.parametrize("ms", [0, 1, 999, 1000, 1_700_000_000_123])
def test_times_keep_their_milliseconds(ms: int) -> None:
    assert milliseconds(duration(ms)) == milliseconds(timestamp(ms)) == ms


@pytest.mark.parametrize(
    ("group", "queue"), [("g0", 0), ("g1", 0), ("g2", 4), ("组0", 2), ("order-user-7919", 3)]
)
def test_message_groups_have_the_queues_that_the_original_chooses(group: str, queue: int) -> None:
    assert queue_of_group(group, 5) == queue


def test_texts_hash_as_in_java() -> None:
    assert java_hash("") == 0
    assert java_hash("hello") == 99162322
    assert java_hash("order-user-7919-long-enough") < (1 << 31)
    assert java_hash("\U0001f600") == 1772899  # two units


def test_credentials_of_each_language() -> None:
    date = "20261130T010203Z"
    made = "5c6ae8b7ff0b1ef1a4a8b1a0c0a8f2b1f0d2a3c4"
    java = {
        "authorization": f"MQv2-HMAC-SHA1 Credential=ann, SignedHeaders=x-mq-date-time, "
        f"Signature={made.upper()}",
        "x-mq-date-time": date,
    }
    found = credentials(java)
    assert found is not None
    assert (found.user, found.signed) == ("ann", date)
    go = java | {"authorization": java["authorization"].replace("ann", "ann//Rocketmq")}
    told = credentials(go)
    assert told is not None
    assert told.user == "ann"
    python = java | {"authorization": java["authorization"].replace("ann", "")}
    assert credentials(python) is None
    assert credentials({}) is None


def test_a_signature_counts_in_either_case() -> None:
    # RFC 2202, test case 2
    told = "EFFCDF6AE5EB2FA2D27416D5F184DF9C259A7C79"
    for signature in (told, told.lower()):
        found = credentials(
            {
                "authorization": f"MQv2-HMAC-SHA1 Credential=a, Signature={signature}",
                "x-mq-date-time": "what do ya want for nothing?",
            }
        )
        assert found is not None
        assert found.signed_by(["other", "Jefe"])
        assert not found.signed_by(["other"])


@pytest.mark.parametrize(
    ("told", "ms"),
    [("3S", 3000), ("20000m", 20000), ("1H", 3_600_000), ("5u", 0), ("", None), ("x", None)],
)
def test_deadlines(told: str, ms: int | None) -> None:
    assert timeout_ms({"grpc-timeout": told} if told else {}) == ms


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ResponseCode.SUCCESS, SdkCode.OK),
        (ResponseCode.SYSTEM_BUSY, SdkCode.TOO_MANY_REQUESTS),
        (ResponseCode.TOPIC_NOT_EXIST, SdkCode.TOPIC_NOT_FOUND),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, SdkCode.CONSUMER_GROUP_NOT_FOUND),
        (ResponseCode.FLUSH_DISK_TIMEOUT, SdkCode.MASTER_PERSISTENCE_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SdkCode.SLAVE_PERSISTENCE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SdkCode.HA_NOT_AVAILABLE),
        (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, SdkCode.NOT_IMPLEMENTED),
        (ResponseCode.NO_PERMISSION, SdkCode.UNAUTHORIZED),
        (ResponseCode.POLLING_FULL, SdkCode.TOO_MANY_REQUESTS),
        (ResponseCode.LMQ_QUOTA_EXCEEDED, SdkCode.LITE_TOPIC_QUOTA_EXCEEDED),
        (ResponseCode.SYSTEM_ERROR, SdkCode.INTERNAL_SERVER_ERROR),
        (99999, SdkCode.INTERNAL_SERVER_ERROR),
    ],
)
def test_codes_of_the_remoting_protocol(code: int, expected: SdkCode) -> None:
    assert of_remoting(code) is expected


def test_each_code_that_a_client_may_be_answered_has_a_test() -> None:
    tests = Path(__file__).parents[2]
    texts = "".join(
        file.read_text()
        for part in ("broker", "wire")
        for file in (tests / part / "grpc").glob("*.py")
    )
    assert [code.name for code in SdkCode if f"SdkCode.{code.name}" not in texts] == []
