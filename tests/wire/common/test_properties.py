from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_wire.errors import ProtocolError
from imago_wire.record_format.properties import (
    RESERVED,
    RESERVED_NAMES,
    decode,
    encode,
    find,
    strip_reserved,
    without,
)

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=8)
names = texts.filter(bool)
maps = st.dictionaries(names | st.sampled_from(sorted(RESERVED)), texts, max_size=6)
# Property strings as a hostile client might send them.
pieces = st.sampled_from(
    [
        b"\x01", b"\x02", b"\x02", b"TAGS", b"TAGS\x01a\x02", b"KEYS\x01k1 k2\x02", b"x", b"",
        b"__CRC32#", b"__METAQ_ID\x01", b"__METAQ_POS\x010\x02", b"__RMQ.TRANSIENT.x\x01y\x02",
        b"__SHARDINGKEY\x01s\x02", b"\xff", b"__", b"_", b"__UNIT_TAG\x01",
    ]
)  # fmt: skip
strings = st.lists(pieces, max_size=10).map(b"".join) | st.binary(max_size=40)


@given(properties=maps)
def test_properties_survive_the_way(properties: dict[str, str]) -> None:
    assert decode(encode(properties)) == properties


def test_order_is_kept_and_the_last_separator_written() -> None:
    assert encode({"b": "2", "a": "1"}) == b"b\x012\x02a\x011\x02"
    assert list(decode(b"b\x012\x02a\x011")) == ["b", "a"]


@pytest.mark.parametrize(
    "properties", [{"": "x"}, {"a\x01": "x"}, {"a\x02b": "x"}, {"a": "\x01"}, {"a": "x\x02"}]
)
def test_property_that_would_not_be_read_back_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ProtocolError):
        encode(properties)


def test_parts_that_are_no_properties_are_dropped() -> None:
    assert decode(b"\x02\x02abc\x02\x01v\x02k\x01\x02n\x01a\x01b\x02\xff\x01\xfe") == {
        "k": "",
        "n": "a\x01b",
        "\ufffd": "\ufffd",
    }


@given(data=strings, name=st.sampled_from([b"TAGS", b"KEYS", b"x", b"__METAQ_ID"]))
def test_find_agrees_with_decode(data: bytes, name: bytes) -> None:
    found = find(data, name)
    expected = decode(data).get(name.decode())
    assert (found if found is None else found.decode("utf-8", "replace")) == expected


def test_last_of_a_repeated_name_counts() -> None:
    data = b"TAGS\x01a\x02TAGS\x01b\x02XTAGS\x01c"
    assert find(data, b"TAGS") == b"b"
    assert decode(data)["TAGS"] == "b"


@given(data=strings)
def test_without_removes_the_names_and_nothing_else(data: bytes) -> None:
    rest = without(data, {b"TAGS", b"KEYS"})
    expected = {k: v for k, v in decode(data).items() if k not in ("TAGS", "KEYS")}
    assert decode(rest) == expected


@given(data=strings)
def test_nothing_reserved_is_left(data: bytes) -> None:
    rest = strip_reserved(data)
    parts = [part.partition(b"\x01")[0] for part in rest.split(b"\x02")]
    assert not RESERVED_NAMES & set(parts)
    assert not any(name.startswith(b"__RMQ.TRANSIENT.") for name in parts)
    assert strip_reserved(rest) == rest
    kept = [name for name in decode(data) if name in decode(rest)]
    assert kept == list(decode(rest))
