"""MetaQ's stored form of messages and its ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_testing.frames.text import bodies, i32, i64
from imago_wire.errors import ChecksumError, LimitExceededError, ProtocolError
from imago_wire.text.message import (
    ORIGINAL_EPOCH_MS,
    MessageId,
    encode_body,
    encode_message,
    parse_block,
    split_body,
)

STORED = {
    "S1": (1, None, b"hello", "000000053610a68600000000000000010000000068656c6c6f"),
    "S2": (2, None, b"world", "000000053a771143000000000000000200000000776f726c64"),
    "S3": (
        10000, "color", b"hello",
        "0000000e5584502a00000000000027100000000100000005636f6c6f7268656c6c6f",
    ),
    "S4": (3, "", b"hello", "00000009163b45350000000000000003000000010000000068656c6c6f"),
    "S5": (-1, None, b"", "0000000000000000ffffffffffffffff00000000"),
    "S6": (
        -5468572396564754429, None, b"hello",
        "000000053610a686b41bba610a4050030000000068656c6c6f",
    ),
    "S7": (
        7, "颜色=红", "价格".encode(),
        "00000014555dbd150000000000000007000000010000000ae9a29ce889b23de7baa2e4bbb7e6a0bc",
    ),
    "attr": (
        2, "attr", b"hello",
        "0000000d4b62e51c0000000000000002000000010000000461747472" "68656c6c6f",
    ),
    "captured": (
        -5468925074394316800, None, b"hello",
        "000000053610a686b41a799ed58000000000000068656c6c6f",
    ),
}  # fmt: skip

IDS = {
    "I1": (1700000000000, 0, 0, 1661382015569625088),
    "I2": (1700000000000, 5, 3, 1661382015569645571),
    "I3": (1303895660503, 0, 0, 0),
    "I4": (1303895660504, 1023, 4095, 8388607),
    "I5": (86400000, 0, 0, -5468572396564774912),
    "I6": (86400000, 5, 3, -5468572396564754429),
}


@pytest.mark.parametrize("name", STORED)
def test_stored_form_has_known_bytes_both_ways(name: str) -> None:
    message_id, attribute, payload, hexadecimal = STORED[name]
    flag, body = encode_body(payload, attribute)
    data = bytes.fromhex(hexadecimal)
    assert encode_message(message_id, flag, body) == data
    (message,) = parse_block(data)
    assert (message.id, message.attribute, message.payload) == (message_id, attribute, payload)
    assert (message.at, message.size, message.body) == (0, len(data), body)


@pytest.mark.parametrize("name", IDS)
def test_id_of_an_original_broker_has_known_parts(name: str) -> None:
    timestamp_ms, broker_id, sequence, value = IDS[name]
    parts = MessageId(timestamp_ms, broker_id, sequence)
    assert parts.value(epoch_ms=ORIGINAL_EPOCH_MS) == value
    assert MessageId.of(value, epoch_ms=ORIGINAL_EPOCH_MS) == parts


def test_our_ids_count_from_2020() -> None:
    assert MessageId(1577836800001, 5, 3).value() == 1 << 22 | 5 << 12 | 3


@given(value=i64)
def test_id_gives_its_value_again(value: int) -> None:
    assert MessageId.of(value).value() == value


stored_messages = st.tuples(i64, st.none() | st.text(max_size=8), bodies)


@given(messages=st.lists(stored_messages, max_size=5), cut=st.integers(0, 400))
def test_block_gives_whole_messages_up_to_any_cut(
    messages: list[tuple[int, str | None, bytes]], cut: int
) -> None:
    stored = [encode_message(number, *encode_body(body, text)) for number, text, body in messages]
    found = list(parse_block(b"".join(stored)[:cut]))
    for message, (number, text, body) in zip(found, messages, strict=False):
        assert (message.id, message.attribute, message.payload) == (number, text, body)
    sizes = [len(data) for data in stored]
    assert len(found) == sum(sum(sizes[: n + 1]) <= cut for n in range(len(sizes)))


def test_damaged_message_is_refused_after_those_before_it() -> None:
    block = parse_block(encode_message(1, 0, b"good") + encode_message(2, 0, b"bad")[:-1] + b"?")
    assert next(block).payload == b"good"
    with pytest.raises(ChecksumError):
        next(block)


def test_negative_length_is_refused() -> None:
    with pytest.raises(ProtocolError, match="-1 bytes"):
        list(parse_block(b"\xff" * 20))


def test_body_over_the_limit_is_refused_before_it_arrives() -> None:
    with pytest.raises(LimitExceededError):
        list(parse_block(encode_message(1, 0, bytes(11))[:20], body_bytes_max=10))


@given(flag=i32.map(lambda flag: flag | 1), body=bodies)
def test_attribute_that_cannot_be_is_refused(flag: int, body: bytes) -> None:
    try:
        attribute, payload = split_body(flag, body)
    except ProtocolError:
        size = int.from_bytes(body[:4], "big")
        assert len(body) < 4 or size > len(body) - 4
    else:
        assert attribute is not None
        assert body.endswith(payload)


def test_body_without_the_flag_is_all_payload() -> None:
    assert split_body(2, b"\x00\x00\x00\x01ab") == (None, b"\x00\x00\x00\x01ab")
