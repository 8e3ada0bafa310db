"""Producers' numbers as properties: what is read, what is taken off, what the hot path lets by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_wire import hot
from imago_wire.errors import ProtocolError
from imago_wire.record_format.sequences import (
    NUMBER_MAX,
    Sequence,
    producer_text,
    read_stored,
    read_wire,
    sent_id,
    split_wire,
    stored_property,
    tag_of,
    user_tag,
    wire_numbers,
    wire_properties,
    without,
)
from imago_wire.remoting.messages import BatchEntry, encode_batch
from imago_wire.remoting.scanning import _remoting_py

sequences = st.builds(
    Sequence,
    st.integers(0, (1 << 64) - 1).map(producer_text),
    st.integers(0, NUMBER_MAX),
    st.integers(0, NUMBER_MAX),
)
OTHERS = b"TAGS\x01a\x02UNIQ_KEY\x01k\x02"


@given(sequences)
def test_both_forms_round_trip(sequence: Sequence) -> None:
    wire = OTHERS + wire_properties(sequence).encode()
    assert read_wire(wire) == read_wire(wire.removesuffix(b"\x02")) == sequence
    assert read_stored(OTHERS + stored_property(sequence)) == sequence
    owned = sequence._replace(producer=sequence.producer + user_tag("ann"))
    assert read_stored(OTHERS + stored_property(owned)) == owned
    assert sent_id(owned.producer) == sequence.producer
    assert tag_of(owned.producer) == user_tag("ann") != user_tag("eve")
    assert without(wire + stored_property(sequence)) == OTHERS
    assert read_stored(wire) is None
    assert read_wire(stored_property(sequence)) is None
    short = split_wire(wire)
    assert short is None or short == (OTHERS, sequence)
    assert (short is None) == (max(sequence.epoch, sequence.number) >= 10**18)
    assert split_wire(wire + OTHERS) is None


def test_ids_are_one_number_however_written() -> None:
    text = "__IMAGO_PID\x01{}\x02__IMAGO_EPOCH\x010\x02__IMAGO_SEQ\x010\x02"
    read = {read_wire(text.format(pid).encode()) for pid in ("AB", "ab", "00ab")}
    assert read == {Sequence("00000000000000ab", 0, 0)}


@pytest.mark.parametrize("missing", ["__IMAGO_PID", "__IMAGO_EPOCH", "__IMAGO_SEQ"])
def test_two_of_three_are_no_claim(missing: str) -> None:
    wire = wire_properties(Sequence("0" * 16, 0, 0)).replace(missing, "other")
    assert read_wire(wire.encode()) is None


@pytest.mark.parametrize(
    ("pid", "epoch", "number"),
    [
        ("", "0", "0"),
        ("g", "0", "0"),
        ("0" * 17, "0", "0"),
        ("a", "", "0"),
        ("a", "-1", "0"),
        ("a", "0", "1e3"),
        ("a", "0", str(NUMBER_MAX + 1)),
        ("a", "0", "٣"),
    ],
)
def test_values_that_cannot_be(pid: str, epoch: str, number: str) -> None:
    text = f"__IMAGO_PID\x01{pid}\x02__IMAGO_EPOCH\x01{epoch}\x02__IMAGO_SEQ\x01{number}\x02"
    with pytest.raises(ProtocolError, match="__IMAGO_"):
        read_wire(text.encode())


@pytest.mark.parametrize("damaged", [b"x.0.0", b"0.0", b"0000000000000000.0", b""])
def test_damaged_stored_property_is_none(damaged: bytes) -> None:
    assert read_stored(b"__IMAGO_SENT\x01" + damaged + b"\x02") is None


@pytest.mark.parametrize("twin", [_remoting_py, hot], ids=["plain", "active"])
@pytest.mark.parametrize("name", [b"__IMAGO_", b"__IMAGO_PID", b"__IMAGO_SENT", b"__IMAGO_X"])
def test_short_way_leaves_numbered_messages_alone(twin: object, name: bytes) -> None:
    plain_send, scan = twin.plain_send, twin.scan_plain_batch  # type: ignore[attr-defined]  # two modules of one shape
    for properties in (OTHERS + name + b"\x01v\x02", name + b"\x01v\x02" + OTHERS):
        assert plain_send(properties, b"CLUSTER\x01c\x02") is None
        batch = encode_batch([BatchEntry(b"", OTHERS), BatchEntry(b"", properties)])
        assert scan(batch, 10) is None
    near = OTHERS + b"_IMAGO_PID\x01v\x02__IMAGO\x01v\x02X\x01__IMAGO_PID\x02"
    assert plain_send(near, b"")[1] == near
    assert len(scan(encode_batch([BatchEntry(b"__IMAGO_PID\x01", near)]), 10)) == 1


@given(sequences, st.integers(0, 12))
def test_numbers_of_a_batch_are_those_of_its_messages(first: Sequence, count: int) -> None:
    each = [first._replace(number=first.number + index) for index in range(count)]
    assert wire_numbers(first, count) == [wire_properties(one).encode() for one in each]
