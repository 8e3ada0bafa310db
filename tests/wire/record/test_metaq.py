"""One message, two forms: what one protocol put, the other reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_testing.frames.text import i32
from imago_wire.compression import compress
from imago_wire.crc import crc31
from imago_wire.errors import ChecksumError, ProtocolError, RecordError
from imago_wire.record_format.record_fields import read_layout
from imago_wire.records.record import decode_record, host_bytes, metaq_shape
from imago_wire.text.message import encode_body, parse_block

if TYPE_CHECKING:
    from imago_testing.frames.twins import Twin

HOST = host_bytes("10.0.0.5", 10911)
NOW = 1_800_000_000_000

attributes = st.none() | st.text(
    st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=10
)


def built(twin: Twin, entries: list[Any]) -> list[bytes]:
    data, placed = twin.RecordBuilder(HOST, 1, 0).build(entries, 0, 0, NOW, 1 << 30)
    return [data[offset : offset + size] for _, offset, size, _, _ in placed]


@given(payload=st.binary(max_size=60), attribute=attributes, high_bits=i32)
def test_metaq_reads_what_metaq_put(
    twin: Twin, payload: bytes, attribute: str | None, high_bits: int
) -> None:
    flag, body = encode_body(payload, attribute)
    flag |= high_bits & ~1
    tail = twin.QueueTail(b"t", 0, dual=True)
    (record,) = built(twin, [twin.metaq_entry(tail, body, flag, crc31(body), 1, HOST)])
    (message,) = parse_block(twin.metaq_block([record]))
    assert (message.flag, message.body, message.attribute) == (flag, body, attribute)
    assert tail.next_position == message.size
    view = twin.view_record(record)
    assert (view.metaq_id, view.metaq_size) == (message.id, message.size)


ID_END = 1 << 62
ids = st.integers(-(1 << 63), ID_END - 1).filter(bool) | st.sampled_from([-1, 1, ID_END - 1])


@given(payload=st.binary(max_size=60), attribute=attributes, message_id=ids)
def test_a_message_of_another_master_keeps_its_id(
    twin: Twin, payload: bytes, attribute: str | None, message_id: int
) -> None:
    flag, body = encode_body(payload, attribute)
    tail = twin.QueueTail(b"t", 0, dual=True, next_position=7)
    entry = twin.metaq_entry(tail, body, flag, crc31(body), 1, HOST, message_id)
    own = twin.metaq_entry(tail, body, flag, crc31(body), 1, HOST)
    records = built(twin, [entry, own])
    first, second = parse_block(twin.metaq_block(records))
    assert (first.id, first.flag, first.body) == (message_id, flag, body)
    assert second.id > max(0, message_id)
    view = twin.view_record(records[0])
    assert (view.metaq_id, view.metaq_position, view.metaq_size) == (message_id, 7, first.size)
    assert twin.metaq_whole(twin.metaq_block(records)) == first.size + second.size


@pytest.mark.parametrize("message_id", [0, ID_END, (1 << 63) - 1, 1 << 63, -(1 << 63) - 1])
def test_an_id_that_leaves_no_room_above_is_refused(twin: Twin, message_id: int) -> None:
    tail = twin.QueueTail(b"t", 0, dual=True)
    with pytest.raises(ProtocolError, match="MetaQ id"):
        twin.metaq_entry(tail, b"", 0, -1, 1, HOST, message_id)


@given(payload=st.binary(max_size=60), attribute=attributes, flag=i32)
def test_rocketmq_reads_what_metaq_put(
    twin: Twin, payload: bytes, attribute: str | None, flag: int
) -> None:
    bit, body = encode_body(payload, attribute)
    flag = flag & ~1 | bit
    tail = twin.QueueTail(b"t", 0, dual=True)
    (record,) = built(twin, [twin.metaq_entry(tail, body, flag, -1, 1, HOST)])
    message = decode_record(record)
    assert (message.body, message.tags, message.flag) == (payload, attribute, flag)


@given(payload=st.binary(min_size=1, max_size=60), tag=attributes, data=st.data())
def test_metaq_reader_sees_that_a_body_is_damaged(
    twin: Twin, payload: bytes, tag: str | None, data: st.DataObject
) -> None:
    properties = b"" if tag is None else f"TAGS\x01{tag}".encode()
    tail = twin.QueueTail(b"t", 0, dual=True)
    made = twin.make_entry(tail, payload, properties, born_ms=1, born_host=HOST)
    damaged = bytearray(built(twin, [made])[0])
    at = read_layout(damaged, 0).body_at
    bit = data.draw(st.integers(0, 8 * len(payload) - 1))
    damaged[at + bit // 8] ^= 1 << bit % 8
    for found in (twin.metaq_block([damaged]), b"".join(twin.metaq_form(damaged))):
        with pytest.raises(ChecksumError):
            list(parse_block(found))


@given(payload=st.binary(max_size=60), tag=attributes, flag=i32)
def test_metaq_reads_what_rocketmq_put(
    twin: Twin, payload: bytes, tag: str | None, flag: int
) -> None:
    properties = b"KEYS\x01k\x02" + (b"" if tag is None else f"TAGS\x01{tag}".encode())
    tail = twin.QueueTail(b"t", 0, dual=True)
    made = twin.make_entry(tail, payload, properties, flag=flag, born_ms=1, born_host=HOST)
    (record,) = built(twin, [made])
    head, rest = twin.metaq_form(record)
    (message,) = parse_block(head + rest)
    assert (message.payload, message.attribute) == (payload, tag)
    assert message.flag == flag & ~1 | (tag is not None)
    assert tail.next_position == message.size


@pytest.mark.parametrize("kind", [0, 0x100, 0x200, 0x300])
@pytest.mark.parametrize("properties", [b"", b"TAGS\x01tag\x02"])
def test_compressed_body_leaves_inflated(twin: Twin, kind: int, properties: bytes) -> None:
    payload = b"to be compressed " * 20
    tail = twin.QueueTail(b"t", 0, dual=True)
    made = twin.make_entry(
        tail, compress(payload, kind), properties, sys_flag=kind | 1, born_ms=1, born_host=HOST,
        metaq_shape=metaq_shape(payload, properties),
    )  # fmt: skip
    (record,) = built(twin, [made])
    block = twin.metaq_block([record])
    (message,) = parse_block(block)
    assert (message.payload, message.attribute) == (payload, "tag" if properties else None)
    assert (len(block), twin.view_record(record).metaq_size) == (message.size, message.size)
    assert decode_record(record, inflate=True).body == payload


@pytest.mark.parametrize("promised", [0, 339, 341, 5_000_000])
def test_inflated_body_must_be_as_long_as_promised(twin: Twin, promised: int) -> None:
    tail = twin.QueueTail(b"t", 0, dual=True)
    made = twin.make_entry(
        tail, compress(b"to be compressed " * 20), sys_flag=1, born_ms=1, born_host=HOST,
        metaq_shape=(promised, 0),
    )  # fmt: skip
    (record,) = built(twin, [made])
    with pytest.raises(ProtocolError):
        twin.metaq_block([record])


def test_block_joins_records_in_order(twin: Twin) -> None:
    tail = twin.QueueTail(b"t", 0, dual=True)
    bodies = [encode_body(b"m%d" % n, "a" if n % 2 else None) for n in range(5)]
    records = built(twin, [twin.metaq_entry(tail, b, f, -1, 1, HOST) for f, b in bodies])
    block = twin.metaq_block([records[0], memoryview(records[1]), *records[2:]])
    assert [message.body for message in parse_block(block)] == [body for _, body in bodies]
    assert len(block) == tail.next_position
    assert twin.metaq_block([]) == b""


def test_block_refuses_a_record_without_position(twin: Twin) -> None:
    tail = twin.QueueTail(b"t", 0, dual=False)
    (record,) = built(twin, [twin.make_entry(tail, b"x", born_ms=1, born_host=HOST)])
    with pytest.raises(RecordError, match="without a MetaQ position"):
        twin.metaq_block([record])


def test_record_is_read_where_it_stands(twin: Twin) -> None:
    tail = twin.QueueTail(b"t", 0, dual=True)
    records = built(twin, [twin.metaq_entry(tail, b"one", 0, -1, 1, HOST)] * 2)
    data = b"".join(records)
    head, payload = twin.metaq_form(data, len(records[0]))
    assert head + payload == twin.metaq_block([records[1]])
    assert payload.obj is data
