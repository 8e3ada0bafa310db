"""What the builder gives out, in which order, and what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_wire.crc import crc31
from imago_wire.errors import ChecksumError, LimitExceededError, ProtocolError
from imago_wire.record_format.layout import DEAD_OFFSET
from imago_wire.records.record import decode_record, host_bytes, metaq_shape, record_size

if TYPE_CHECKING:
    from imago_testing.frames.twins import Twin

HOST = host_bytes("10.0.0.5", 10911)
NOW = 1_800_000_000_000
EPOCH = 1_577_836_800_000
ROOM = 1 << 30


def entry(
    twin: Twin, tail: Any, body: bytes = b"body", properties: bytes = b"", **more: Any
) -> Any:
    return twin.make_entry(tail, body, properties, born_ms=1, born_host=HOST, **more)


def test_queues_count_on_their_own_and_the_log_in_order(twin: Twin) -> None:
    first = twin.QueueTail(b"a", 0, dual=True, next_offset=5, next_position=700)
    second = twin.QueueTail(b"a", 1, dual=False)
    entries = [
        entry(twin, first, b"12345"),
        entry(twin, second),
        entry(twin, first, b"x", b"TAGS\x01abc"),
        entry(twin, first, b""),
    ]
    builder = twin.RecordBuilder(HOST, 3, 0)
    data, placed = builder.build(entries, 0, 1000, NOW, ROOM)
    assert [p[0] for p in placed] == [5, 0, 6, 7]
    ends = [p[1] + p[2] for p in placed]
    assert [p[1] for p in placed] == [1000, *ends[:-1]]
    assert ends[-1] == 1000 + len(data)
    assert [p[3] for p in placed] == [700, -1, 725, 725 + 20 + 4 + 3 + 1]
    assert (first.next_offset, first.next_position) == (8, 773)
    assert first.positions == b"".join(
        position.to_bytes(8, "big") + size.to_bytes(4, "big")
        for position, size in [(700, 25), (725, 28), (753, 20)]
    )
    assert (len(first.units), len(second.units), len(second.positions)) == (60, 20, 0)


def test_start_leaves_earlier_entries_out(twin: Twin) -> None:
    tail = twin.QueueTail(b"a", 0, dual=False)
    entries = [entry(twin, tail, bytes([65 + n])) for n in range(4)]
    data, placed = twin.RecordBuilder(HOST, 0, 0).build(entries, 2, 0, NOW, ROOM)
    assert [decode_record(data, p[1]).body for p in placed] == [b"C", b"D"]
    assert twin.RecordBuilder(HOST, 0, 0).build(entries, 4, 0, NOW, ROOM) == (b"", [])


def test_records_leave_eight_bytes_of_room(twin: Twin) -> None:
    builder = twin.RecordBuilder(HOST, 0, 0)
    tail = twin.QueueTail(b"a", 0, dual=True)
    entries = [entry(twin, tail) for _ in range(3)]
    one = builder.build(entries, 2, 0, NOW, ROOM)[1][0][2]
    before = (tail.next_offset, tail.next_position, bytes(tail.units), builder.last_metaq_id)
    assert builder.build(entries, 0, 0, NOW, one + 7) == (b"", [])
    assert builder.build(entries, 0, 0, NOW, 0) == (b"", [])
    assert builder.build(entries, 0, 0, NOW, -5) == (b"", [])
    assert (tail.next_offset, tail.next_position, tail.units, builder.last_metaq_id) == before
    data, placed = builder.build(entries, 0, 0, NOW, 2 * one + 8)
    assert (len(data), len(placed)) == (2 * one, 2)
    data, placed = builder.build(entries, len(placed), 2 * one, NOW, one + 8)
    assert (len(data), len(placed)) == (one, 1)


@given(
    topic_size=st.integers(1, 255),
    properties=st.sampled_from([b"", b"a\x01b", b"TAGS\x01x\x02", b"__CRC32#\x01x\x02a\x01b\x02"]),
    body=st.binary(max_size=50),
    wide=st.booleans(),
    unit_tag=st.none() | st.just(7),
    dual=st.booleans(),
)
def test_bound_of_admission_holds(
    twin: Twin,
    topic_size: int,
    properties: bytes,
    body: bytes,
    wide: bool,
    unit_tag: int | None,
    dual: bool,
) -> None:
    host = host_bytes("::1", 5) if wide else HOST
    tail = twin.QueueTail(b"t" * topic_size, 0, dual=dual)
    made = twin.make_entry(
        tail, body, properties, born_ms=1, born_host=host, unit_tag=unit_tag, sys_flag=1,
        metaq_shape=metaq_shape(b"inflated", properties),
    )  # fmt: skip
    data, _ = twin.RecordBuilder(host, 0, 0).build([made], 0, 0, NOW, ROOM)
    bound = record_size(
        topic_size, len(properties), len(body), born_host_size=len(host), store_host_size=len(host)
    )
    assert len(data) <= bound <= len(data) + 28 + 42 + 57 + 20
    assert len(twin.scan_records(data, 0).views) == 1


@given(
    sizes=st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 40)), max_size=6),
    topic=st.sampled_from([b"t", b"T" * 130, b"T" * 255]),
)
def test_bound_of_a_whole_turn_holds_and_is_close(
    twin: Twin, sizes: list[tuple[int, int]], topic: bytes
) -> None:
    tail = twin.QueueTail(topic, 0, dual=True)
    entries = [entry(twin, tail, bytes(body), b"k" * tags) for body, tags in sizes]
    bound = twin.entries_size_max(entries)
    data, _ = twin.RecordBuilder(HOST, 0, 0).build(entries, 0, 0, NOW, ROOM)
    assert len(data) <= bound <= len(data) + 256 * len(entries)
    tail.next_offset = DEAD_OFFSET
    assert twin.entries_size_max(entries) == (-1 if entries else 0)


def test_metaq_ids_only_grow(twin: Twin) -> None:
    tail = twin.QueueTail(b"a", 0, dual=True)
    builder = twin.RecordBuilder(HOST, 5, 0)

    def ids(store_ms: int, count: int) -> list[int]:
        entries = [entry(twin, tail) for _ in range(count)]
        return [p[4] for p in builder.build(entries, 0, 0, store_ms, ROOM)[1]]

    assert ids(EPOCH + 1000, 2) == [1000 << 22 | 5 << 12, 1000 << 22 | 5 << 12 | 1]
    assert ids(EPOCH + 999, 1) == [1000 << 22 | 5 << 12 | 2]  # the clock went back
    assert ids(EPOCH + 1001, 1) == [1001 << 22 | 5 << 12]
    full = ids(EPOCH + 1002, 4097)
    assert full[-2:] == [1002 << 22 | 5 << 12 | 4095, 1003 << 22 | 5 << 12]
    assert builder.last_metaq_id == full[-1]
    assert ids(0, 1) == [1003 << 22 | 5 << 12 | 1]


def test_metaq_ids_start_above_those_in_the_log(twin: Twin) -> None:
    last = 50_000 << 22 | 1023 << 12 | 7  # of another broker id
    tail = twin.QueueTail(b"a", 0, dual=True)
    builder = twin.RecordBuilder(HOST, 1, last)
    _, placed = builder.build([entry(twin, tail)], 0, 0, EPOCH, ROOM)
    assert placed[0][4] == 50_001 << 22 | 1 << 12


@pytest.mark.parametrize("kind", [0x4, 0xC])
def test_prepared_and_rolled_back_messages_are_in_no_queue(twin: Twin, kind: int) -> None:
    tail = twin.QueueTail(b"half", 0, dual=True, next_offset=9)
    made = entry(twin, tail, b"x", b"TAGS\x01a", sys_flag=kind | 1, unit_tag=5)
    data, placed = twin.RecordBuilder(HOST, 0, 0).build([made], 0, 64, NOW, ROOM)
    assert placed == [(0, 64, len(data), -1, -1)]
    assert (tail.next_offset, tail.next_position) == (9, 0)
    assert tail.units == tail.positions == b""
    (view,) = twin.scan_records(data, 64).views
    assert not view.has_unit
    assert (view.queue_offset, view.metaq_position, view.metaq_id, view.metaq_size) == (
        0,
        -1,
        -1,
        0,
    )


def test_committed_message_points_to_its_half(twin: Twin) -> None:
    tail = twin.QueueTail(b"t", 0, dual=True)
    made = entry(twin, tail, b"x", sys_flag=0x8, prepared_offset=12345)
    data, placed = twin.RecordBuilder(HOST, 0, 0).build([made], 0, 0, NOW, ROOM)
    assert placed[0][3] == 0
    assert decode_record(data).prepared_offset == 12345


def test_reserved_properties_of_clients_are_not_stored(twin: Twin) -> None:
    tail = twin.QueueTail(b"t", 0, dual=True, next_position=77)
    echoed = (
        b"KEYS\x01k\x02__METAQ_POS\x010000000000000001\x02__METAQ_ID\x010000000000000002\x02"
        b"__RMQ.TRANSIENT.x\x01y\x02TAGS\x01a\x02__SHARDINGKEY\x01s\x02__CRC32#\x010123456789\x02"
    )
    made = entry(twin, tail, b"x", echoed)
    data, placed = twin.RecordBuilder(HOST, 0, 0).build([made], 0, 0, NOW, ROOM)
    properties = decode_record(data).properties
    assert list(properties) == [
        "KEYS", "TAGS", "__SHARDINGKEY", "__METAQ_POS", "__METAQ_ID", "__CRC32#",
    ]  # fmt: skip
    assert properties["__METAQ_POS"] == f"{77:016x}"
    assert properties["__METAQ_ID"] == f"{placed[0][4]:016x}"


def test_last_of_several_tags_counts(twin: Twin) -> None:
    tail = twin.QueueTail(b"t", 0, dual=True)
    made = entry(twin, tail, b"x", b"TAGS\x01a\x02XTAGS\x01c\x02TAGS\x01bb")
    data, _ = twin.RecordBuilder(HOST, 0, 0).build([made], 0, 0, NOW, ROOM)
    assert tail.units[12:] == (ord("b") * 32).to_bytes(8, "big")
    assert tail.next_position == 20 + 4 + 2 + 1
    assert twin.metaq_form(data)[0][20:] == b"\x00\x00\x00\x02bb"
    assert twin.view_record(data).tag_code == ord("b") * 32
    assert decode_record(data).tags == "bb"


def test_reserved_name_inside_a_value_stays(twin: Twin) -> None:
    tail = twin.QueueTail(b"t", 0, dual=False)
    kept = b"k\x01__CRC32#\x02a__METAQ_ID\x01x\x02"
    data, _ = twin.RecordBuilder(HOST, 0, 0).build([entry(twin, tail, b"x", kept)], 0, 0, NOW, ROOM)
    (view,) = twin.scan_records(data, 0).views
    assert data[view.properties_at : view.properties_at + view.properties_size] == kept


def test_host_bits_follow_the_hosts_not_the_client(twin: Twin) -> None:
    tail = twin.QueueTail(b"t", 0, dual=False)
    made = entry(twin, tail, b"x", sys_flag=0x30)
    data, _ = twin.RecordBuilder(HOST, 0, 0).build([made], 0, 0, NOW, ROOM)
    assert decode_record(data).sys_flag == 0


I32_OUT = [1 << 31, -(1 << 31) - 1, 1 << 70]
I64_OUT = [1 << 63, -(1 << 63) - 1, 1 << 70]


@pytest.mark.parametrize(
    ("field", "value"),
    [(f, v) for f in ("flag", "sys_flag", "reconsume_times") for v in I32_OUT]
    + [(f, v) for f in ("born_ms", "prepared_offset", "unit_tag") for v in I64_OUT]
    + [("metaq_shape", shape) for shape in [(-1, 0), (0, -1), (1 << 40, 0), (0, 1 << 31)]]
    + [("born_host", host) for host in (b"", bytes(7), bytes(9), bytes(21))],
)
def test_field_that_does_not_fit_is_refused_before_building(
    twin: Twin, field: str, value: object
) -> None:
    tail = twin.QueueTail(b"t", 0, dual=True)
    fields: dict[str, object] = {"born_ms": 1, "born_host": HOST, field: value}
    if field == "metaq_shape":
        fields["sys_flag"] = 1
    with pytest.raises(ProtocolError):
        twin.make_entry(tail, b"x", **fields)


def test_sizes_over_their_limits_are_refused_before_building(twin: Twin) -> None:
    tail = twin.QueueTail(b"t", 0, dual=True)
    most = 32767 - 148
    made = entry(twin, tail, b"x", b"x" * most, sys_flag=1, metaq_shape=(1, 1), unit_tag=1)
    data, _ = twin.RecordBuilder(HOST, 0, 0).build([made], 0, 0, NOW, ROOM)
    assert len(twin.scan_records(data, 0).views) == 1
    with pytest.raises(LimitExceededError, match="properties"):
        entry(twin, tail, b"x", b"x" * (most + 1))
    for topic in (b"", b"t" * 256):
        with pytest.raises(LimitExceededError, match="topic"):
            twin.QueueTail(topic, 0, dual=False)
    for queue_id in (-1, 1 << 31):
        with pytest.raises(ProtocolError):
            twin.QueueTail(b"t", queue_id, dual=False)


def test_compressed_body_of_a_dual_queue_needs_its_shape(twin: Twin) -> None:
    dual, plain = (twin.QueueTail(b"t", 0, dual=dual) for dual in (True, False))
    with pytest.raises(ProtocolError, match="inflated shape"):
        entry(twin, dual, b"x", sys_flag=1)
    assert entry(twin, plain, b"x", sys_flag=1)[10] is None
    assert entry(twin, dual, b"x", metaq_shape=(5, 5))[10] is None  # not compressed


@pytest.mark.parametrize(
    ("host", "broker_id", "last"),
    [
        (b"", 0, 0),
        (bytes(9), 0, 0),
        (HOST, -1, 0),
        (HOST, 1024, 0),
        (HOST, 0, -1),
        (HOST, 0, 1 << 63),
    ],
)
def test_builder_refuses_wrong_identity(twin: Twin, host: bytes, broker_id: int, last: int) -> None:
    with pytest.raises(ProtocolError):
        twin.RecordBuilder(host, broker_id, last)


@pytest.mark.parametrize(
    ("start", "offset", "store_ms"),
    [(-1, 0, NOW), (0, -1, NOW), (0, 0, -1), (0, 0, EPOCH + (1 << 41))],
)
def test_builder_refuses_impossible_numbers(
    twin: Twin, start: int, offset: int, store_ms: int
) -> None:
    with pytest.raises(ProtocolError):
        twin.RecordBuilder(HOST, 0, 0).build([], start, offset, store_ms, ROOM)


def test_metaq_put_is_checked_against_its_checksum(twin: Twin) -> None:
    tail = twin.QueueTail(b"t", 0, dual=True)
    with pytest.raises(ChecksumError) as caught:
        twin.metaq_entry(tail, b"hello", 0, 5, 1, HOST)
    assert (caught.value.expected, caught.value.actual) == (5, 907060870)
    with pytest.raises(ChecksumError):
        twin.metaq_entry(tail, b"hello", 0, -2, 1, HOST)
    assert twin.metaq_entry(tail, b"hello", 0, -1, 1, HOST)[11] == -1
    assert twin.metaq_entry(tail, b"hello", 0, 907060870, 1, HOST)[11] == 907060870


@pytest.mark.parametrize("attribute", [b"a\x01b", b"\x02"])
def test_metaq_attribute_that_cannot_be_a_property_is_refused(twin: Twin, attribute: bytes) -> None:
    tail = twin.QueueTail(b"t", 0, dual=True)
    body = len(attribute).to_bytes(4, "big") + attribute + b"payload"
    with pytest.raises(ProtocolError, match="0x01"):
        twin.metaq_entry(tail, body, 1, crc31(body), 1, HOST)


def test_metaq_attribute_longer_than_a_property_list_is_refused(twin: Twin) -> None:
    tail = twin.QueueTail(b"t", 0, dual=True)
    body = (40_000).to_bytes(4, "big") + b"a" * 40_000
    with pytest.raises(LimitExceededError, match="properties"):
        twin.metaq_entry(tail, body, 1, -1, 1, HOST)


@pytest.mark.parametrize(
    "body", [b"", b"abc", b"\x00\x00\x00\x05abcd", b"\xff\xff\xff\xffabc", b"\x00\x00\x00\x01\xff"]
)
def test_metaq_attribute_that_cannot_be_parsed_stays_in_the_body(twin: Twin, body: bytes) -> None:
    tail = twin.QueueTail(b"t", 0, dual=True)
    made = twin.metaq_entry(tail, body, 3, crc31(body), 1, HOST)
    data, _ = twin.RecordBuilder(HOST, 0, 0).build([made], 0, 0, NOW, ROOM)
    message = decode_record(data)
    assert (message.body, message.flag, message.tags) == (body, 3, None)
    head, payload = twin.metaq_form(data)
    assert head[16:] == b"\x00\x00\x00\x02"
    assert payload == body
