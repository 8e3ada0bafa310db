"""JSON that is a little more than JSON."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_wire.errors import ProtocolError
from imago_wire.remoting.fastjson import DEPTH_MAX, BareKey, Json, _Reader, dump, parse

plain_texts = st.text(st.characters(codec="utf-8"), max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | plain_texts
)
object_keys: st.SearchStrategy[dict[str, Json]] = st.dictionaries(plain_texts, scalars, max_size=2)
bare_keys = st.integers(-(1 << 31), 1 << 31).map(BareKey) | object_keys.map(
    lambda value: BareKey(dump(value).decode())
)


def values(keys: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=12,
    )


@given(values(plain_texts))
def test_plain_json_is_written_as_others_write_it(value: Json) -> None:
    assert dump(value) == orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    assert parse(dump(value)) == value


@given(values(plain_texts | bare_keys))
def test_bare_keys_survive(value: Json) -> None:
    assert parse(dump(value)) == value


@given(values(plain_texts | bare_keys))
def test_standard_form_is_ascii_that_every_parser_reads(value: Json) -> None:
    text = dump(value, standard=True)
    assert text.isascii()
    assert json.loads(text) == value


@given(values(plain_texts))
def test_own_reader_agrees_with_the_fast_one(value: Json) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=1)
    assert _Reader(text).read() == orjson.loads(text)
    assert _Reader(json.dumps(value)).read() == orjson.loads(json.dumps(value))


almost_json = st.text(st.sampled_from('{}[]",:\\u0017truefalsn -.+e\x01é'), max_size=60)


@given(st.binary(max_size=60) | almost_json.map(str.encode))
def test_garbage_raises_nothing_but_protocol_errors(data: bytes) -> None:
    try:
        value = parse(data)
    except ProtocolError:
        return
    assert parse(dump(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            b'{"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"TopicTest"}:1}}',
            {"offsetTable": {'{"brokerName":"broker-a","queueId":3,"topic":"TopicTest"}': 1}},
        ),
        (b'{"a":{"TopicTest@CG":{0:2,1:4}}}', {"a": {"TopicTest@CG": {"0": 2, "1": 4}}}),
        (b'{"offsetTable":{1:2,3:3}}', {"offsetTable": {"1": 2, "3": 3}}),
        (b'{"correctionOffsets":{0:0,1:0}}', {"correctionOffsets": {"0": 0, "1": 0}}),
        (b'{ -1 : [ 1.5 , "a\x02b" ] , {} : null }', {"-1": [1.5, "a\x02b"], "{}": None}),
        (b'{0:"\\ud83d\\ude00\\ud800"}', {"0": "\U0001f600?"}),
        (b'{0:123456789012345678901234567890}', {"0": 1.2345678901234568e29}),
        (b'{0:"\xff"}', {"0": "\ufffd"}),
    ],
)  # fmt: skip
def test_more_than_json_is_read(text: bytes, value: Json) -> None:
    assert parse(text) == value


@pytest.mark.parametrize("text", ["{0:1}", '{{"a":1}:{2:3}}'])
def test_what_was_bare_is_written_bare_again(text: str) -> None:
    assert dump(parse(text)) == text.encode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{0:1", "neither a comma nor }"),
        ("{0 1}", "no colon after a key"),
        ("{0:1,}", "no key"),
        ("{0:[1 2]}", "neither a comma nor ]"),
        ("{0:1}x", "more text after the value"),
        ('{0:"a', "a string without an end"),
        ('{0:"\\x"}', "unknown escape"),
        ("{0:1e999}", "a number without bounds"),
        ("{0:", "no value"),
        ("{" * 10, "no key"),
        ("{0:" * DEPTH_MAX + "1" + "}" * DEPTH_MAX, "nested too deep"),
        ("[" * DEPTH_MAX + "{0:1}" + "]" * DEPTH_MAX, "nested too deep"),
        ("{" * 100 + "}:1" * 100, "nested too deep"),
    ],
)
def test_broken_text_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        parse(text)


def test_text_as_deep_as_allowed_is_read() -> None:
    depth = DEPTH_MAX - 1
    value: Any = parse("{0:" * depth + "1" + "}" * depth)
    for _ in range(depth):
        value = value["0"]
    assert value == 1
