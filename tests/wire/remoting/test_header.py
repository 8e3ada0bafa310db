"""Command headers: round trips, what odd clients write, and what is refused."""

from __future__ import annotations

import json
import struct
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_testing.frames.remoting import commands
from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.remoting.command import RemotingCommand, SerializeType, request
from imago_wire.remoting.header import (
    HEADER_SIZE_MAX,
    decode_header,
    decode_raw_header,
    encode_header,
)
from imago_wire.remoting.headers.pull import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader
from imago_wire.remoting.peer import Language, Version, version_name

FIXED = struct.Struct(">hBhiii")


def from_json(text: bytes) -> RemotingCommand:
    return decode_header(SerializeType.JSON, text)


@given(commands())
def test_command_survives_its_header(command: RemotingCommand) -> None:
    header = encode_header(command)
    assert decode_header(command.serialize, header, command.body) == command
    word = bytes([command.serialize]) + len(header).to_bytes(3, "big")
    assert decode_raw_header(word + header, command.body) == command


@given(st.integers(0, 255), st.binary(max_size=80))
def test_garbage_raises_nothing_but_protocol_errors(serialize: int, header: bytes) -> None:
    try:
        decode_header(serialize & 3, header)
    except ProtocolError:
        return
    assert serialize & 3 in set(SerializeType)


keys = st.sampled_from(
    ["code", "flag", "opaque", "version", "language", "remark", "extFields", "x"]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=6),
)


@given(json_values)
def test_any_json_is_a_command_or_a_protocol_error(value: Any) -> None:
    try:
        command = from_json(json.dumps(value).encode())
    except ProtocolError:
        return
    assert all(isinstance(text, str) for text in [*command.ext, *command.ext.values()])


def test_missing_keys_have_their_defaults() -> None:
    command = from_json(b"{}")
    assert command == RemotingCommand(0, version=0, language=Language.UNKNOWN)


def test_values_of_ext_that_are_no_text_become_text() -> None:
    command = from_json(b'{"code":310,"extFields":{"d":4,"k":false,"m":true,"g":1.5,"x":null}}\n')
    assert command.ext == {"d": "4", "k": "false", "m": "true", "g": "1.5"}


def test_raw_control_characters_are_taken() -> None:
    assert from_json(b'{"extFields":{"i":"A\x01b\x02"}}').ext == {"i": "A\x01b\x02"}


def test_order_and_spaces_do_not_matter() -> None:
    text = b' { "version" : 317 , "language":"GO", "opaque":1,"flag":0,"remark":"","code":10 } '
    assert from_json(text) == RemotingCommand(
        10, opaque=1, version=317, language=Language.GO, remark=""
    )


@pytest.mark.parametrize(
    ("told", "language"),
    [
        (b'"CPP"', Language.CPP),
        (b'"cpp"', Language.CPP),
        (b"9", Language.GO),
        (b'"KLINGON"', Language.UNKNOWN),
        (b"99", Language.UNKNOWN),
        (b"null", Language.UNKNOWN),
        (b"[]", Language.UNKNOWN),
    ],
)
def test_language_never_fails(told: bytes, language: Language) -> None:
    assert from_json(b'{"language":' + told + b"}").language is language


def test_unknown_language_is_left_out_of_json_and_is_other_in_binary() -> None:
    command = RemotingCommand(1, language=Language.UNKNOWN)
    assert b"language" not in encode_header(command)
    command.serialize = SerializeType.ROCKETMQ
    assert decode_header(1, encode_header(command)).language is Language.OTHER


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"7", b"nonsense", b'{"code":', b'{"code":"x"}', b'{"code":1.0}', b'{"code":true}',
     b'{"code":2147483648}', b'{"opaque":-2147483649}', b'{"extFields":[]}', b'{"extFields":"x"}',
     b'{"extFields":{"a":"\\q"}}', b'{"code":1}}', b'{"a":"\\u12"}', b"[" * 100000],
)  # fmt: skip
def test_json_that_is_no_command_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        from_json(text)


def binary(ext: bytes, *, remark: bytes = b"", ext_size: int | None = None) -> bytes:
    size = len(ext) if ext_size is None else ext_size
    head = FIXED.pack(11, 0, 479, 7, 0, len(remark))
    return head + remark + struct.pack(">i", size) + ext


def entry(key: bytes, value: bytes) -> bytes:
    return struct.pack(">h", len(key)) + key + struct.pack(">i", len(value)) + value


def test_binary_header_keeps_empty_values_and_the_last_of_two() -> None:
    header = binary(entry(b"a", b"1") + entry(b"b", b"") + entry(b"", b"x") + entry(b"a", b"2"))
    assert decode_header(1, header).ext == {"a": "2", "b": "", "": "x"}


def test_binary_remark_of_no_bytes_is_none() -> None:
    assert decode_header(1, binary(b"")).remark is None
    assert decode_header(1, binary(b"", remark="Grüße".encode())).remark == "Grüße"


@pytest.mark.parametrize(
    "header",
    [
        binary(b"")[:20],
        binary(b"", ext_size=1),
        binary(b"", ext_size=-1),
        binary(entry(b"a", b"1"))[:-1],
        binary(entry(b"a", b"1")[:-1]),
        binary(entry(b"a", b"1") + b"\x00"),
        binary(b"\xff\xff" + b"a" * 10),
        binary(b"\x00\x01a\xff\xff\xff\xff"),
        FIXED.pack(1, 0, 1, 1, 0, -1) + b"\0\0\0\0",
        FIXED.pack(1, 0, 1, 1, 0, 99) + b"\0\0\0\0",
    ],
)
def test_binary_header_whose_sizes_do_not_fit_is_refused(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_header(1, header)


def test_code_above_16_bits_fits_json_only() -> None:
    command = RemotingCommand(200050)
    assert from_json(encode_header(command)).code == 200050
    command.serialize = SerializeType.ROCKETMQ
    with pytest.raises(ProtocolError, match="200050"):
        encode_header(command)


def test_header_too_long_for_its_word_is_not_written() -> None:
    with pytest.raises(LimitExceededError):
        encode_header(RemotingCommand(1, remark="x" * (HEADER_SIZE_MAX + 1)))


def test_answer_repeats_opaque_and_form_of_the_request() -> None:
    asked = request(
        30,
        GetMaxOffsetRequestHeader(topic="t", queue_id=1),
        opaque=-5,
        serialize=SerializeType.ROCKETMQ,
    )
    assert asked.ext == {"topic": "t", "queueId": "1", "committed": "true"}
    answer = asked.answer(0, header=GetMaxOffsetResponseHeader(offset=9))
    assert (answer.opaque, answer.serialize) == (-5, SerializeType.ROCKETMQ)
    assert answer.ext == {"offset": "9"}
    assert answer.is_response
    assert not answer.is_oneway
    assert not asked.is_response
    assert request(15, opaque=1, oneway=True).is_oneway


def test_json_header_has_javas_order_and_no_nulls() -> None:
    text = encode_header(RemotingCommand(17, 1, 3, remark='a"b\n\x01', ext={"b": "1", "a": "é"}))
    assert (
        text
        == (
            '{"code":17,"extFields":{"b":"1","a":"é"},"flag":1,"language":"JAVA","opaque":3,'
            '"remark":"a\\"b\\n\\u0001","serializeTypeCurrentRPC":"JSON","version":479}'
        ).encode()
    )
    assert orjson.loads(text)["remark"] == 'a"b\n\x01'


def test_version_names() -> None:
    assert version_name(409) == "V4_9_8"
    assert version_name(Version.V5_3_3) == "V5_3_3"
    assert version_name(9999) == "HIGHER_VERSION"
    assert version_name(410) == "V_410"
