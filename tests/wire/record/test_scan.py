"""What is found in the bytes of a log, whole, cut and damaged."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_wire.errors import RecordError
from imago_wire.records.record import (
    RecordView,
    ScanStop,
    blank_record,
    decode_record,
    host_bytes,
    key_hash,
    metaq_shape,
)

if TYPE_CHECKING:
    from imago_testing.frames.twins import Twin

HOST = host_bytes("10.0.0.5", 10911)
NOW = 1_800_000_000_000


def log(twin: Twin, *, physical_offset: int = 0) -> tuple[bytes, Any]:
    """Five records of one dual queue, of every form; returns their bytes and the tail."""
    tail = twin.QueueTail("主题".encode(), 4, dual=True, next_offset=3, next_position=100)
    shape = metaq_shape(b"inflated", b"TAGS\x01tag")
    forms: list[dict[str, Any]] = [
        {},
        {"properties": b"TAGS\x01tag\x02KEYS\x01k1 k2\x02", "flag": 6},
        {"properties": b"TAGS\x01tag", "sys_flag": 0x301, "metaq_shape": shape},
        {"sys_flag": 0x4},
        {"properties": b"k\x01v", "unit_tag": -5, "born_host": host_bytes("::1", 1)},
    ]
    entries = []
    for n, form in enumerate(forms):
        fields = {"born_ms": 1, "born_host": HOST, "properties": b"", **form}
        entries.append(twin.make_entry(tail, b"body %d" % n, **fields))
    data, _ = twin.RecordBuilder(HOST, 1, 0).build(entries, 0, physical_offset, NOW, 1 << 30)
    return data, tail


def test_views_are_rebuilt_from_the_log_alone(twin: Twin) -> None:
    data, tail = log(twin, physical_offset=1 << 40)
    scan = twin.scan_records(data, 1 << 40)
    assert (scan.end, scan.stop, scan.reason) == (len(data), ScanStop.END, "")
    assert all(isinstance(view, RecordView) for view in scan.views)
    in_queue = [view for view in scan.views if view.has_unit]
    units = b"".join(
        view.physical_offset.to_bytes(8, "big")
        + view.size.to_bytes(4, "big")
        + view.tag_code.to_bytes(8, "big", signed=True)
        for view in in_queue
    )
    assert units == tail.units
    positions = b"".join(
        view.metaq_position.to_bytes(8, "big") + view.metaq_size.to_bytes(4, "big")
        for view in in_queue
    )
    assert positions == tail.positions
    assert [view.queue_offset for view in in_queue] == [3, 4, 5, 6]
    assert [view.metaq_id for view in in_queue] == sorted(view.metaq_id for view in in_queue)


def test_view_shows_where_the_parts_are(twin: Twin) -> None:
    data, _ = log(twin)
    for n, view in enumerate(twin.scan_records(data, 0).views):
        assert data[view.body_at : view.body_at + view.body_size] == b"body %d" % n
        message = decode_record(data, view.at)
        assert view.topic.decode() == message.topic
        assert (view.queue_id, view.store_ms, view.flag, view.sys_flag) == (
            4, NOW, message.flag, message.sys_flag,
        )  # fmt: skip
        properties = data[view.properties_at : view.properties_at + view.properties_size]
        assert b"__" not in properties
        assert view == twin.view_record(data, view.at, verify=True)


def test_every_cut_gives_the_whole_records_before_it(twin: Twin) -> None:
    data, _ = log(twin)
    views = twin.scan_records(data, 0).views
    ends = [view.at + view.size for view in views]
    for cut in range(len(data)):
        scan = twin.scan_records(data[:cut], 0)
        assert scan.views == views[: sum(end <= cut for end in ends)]
        assert scan.end == max([0, *[end for end in ends if end <= cut]])
        assert scan.stop is (ScanStop.END if scan.end == cut else ScanStop.SHORT), cut


def test_every_flipped_byte_is_found(twin: Twin) -> None:
    data, _ = log(twin)
    first = twin.scan_records(data, 0).views[0]
    for at in range(first.size):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        scan = twin.scan_records(bytes(damaged), 0)
        assert scan.views == []
        assert scan.stop in (ScanStop.DAMAGED, ScanStop.SHORT), at


def test_unwritten_and_foreign_bytes_end_the_scan(twin: Twin) -> None:
    data, _ = log(twin)
    for rest, stop in [
        (bytes(4096), ScanStop.UNWRITTEN),
        (bytes(7), ScanStop.SHORT),  # may be the start of anything
        (blank_record(92) + bytes(84), ScanStop.BLANK),
        (b"garbage of some length", ScanStop.DAMAGED),
        (data, ScanStop.DAMAGED),  # old records: they say that they belong elsewhere
    ]:
        scan = twin.scan_records(data + rest, 0)
        assert (len(scan.views), scan.end, scan.stop) == (5, len(data), stop)
        assert bool(scan.reason) == (stop is ScanStop.DAMAGED)


def test_record_without_a_checksum_is_damaged(twin: Twin) -> None:
    data, _ = log(twin)
    size = twin.scan_records(data, 0).views[0].size
    cut = bytearray(data[: size - 20])
    cut[:4] = (size - 20).to_bytes(4, "big")
    at = len(cut) - 57 - 2
    cut[at : at + 2] = (57).to_bytes(2, "big")
    assert decode_record(bytes(cut)).body == b"body 0"
    scan = twin.scan_records(bytes(cut), 0)
    assert (scan.stop, scan.reason) == (ScanStop.DAMAGED, "record without a checksum")


def test_damage_of_the_body_is_only_found_when_asked(twin: Twin) -> None:
    data, _ = log(twin)
    damaged = data.replace(b"body 0", b"BODY 0")
    assert len(twin.scan_records(damaged, 0, verify=False).views) == 5
    assert len(twin.scan_records(damaged, 0).views) == 0


def test_forged_place_is_not_taken_for_ours(twin: Twin) -> None:
    tail = twin.QueueTail(b"t", 0, dual=False)
    forged = b"x\x01__METAQ_POS\x01" + b"0" * 16 + b"\x02y__METAQ_ID\x01" + b"1" * 16 + b"\x02"
    made = twin.make_entry(tail, b"b", forged, born_ms=1, born_host=HOST)
    data, _ = twin.RecordBuilder(HOST, 0, 0).build([made], 0, 0, NOW, 1 << 20)
    (view,) = twin.scan_records(data, 0).views
    assert (view.metaq_position, view.metaq_id) == (-1, -1)
    with pytest.raises(RecordError, match="without a MetaQ position"):
        twin.metaq_form(data)


@given(data=st.binary(max_size=300), at=st.integers(0, 20))
def test_garbage_gives_no_record(twin: Twin, data: bytes, at: int) -> None:
    scan = twin.scan_records(data, 0)
    assert scan.views == []
    assert scan.end == 0
    with pytest.raises(RecordError):
        twin.view_record(data, at)
    with pytest.raises(RecordError):
        twin.metaq_form(data, at)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_is_read(twin: Twin, kind: type[Any]) -> None:
    data, _ = log(twin)
    assert twin.scan_records(kind(data), 0) == twin.scan_records(data, 0)
    assert twin.key_entries(kind(data), 0) == twin.key_entries(data, 0)


def test_keys_are_hashed_with_their_topic(twin: Twin) -> None:
    tail = twin.QueueTail(b"TopicTest", 0, dual=True)

    def entry(properties: bytes, sys_flag: int = 0) -> Any:
        return twin.make_entry(tail, b"b", properties, born_ms=1, born_host=HOST, sys_flag=sys_flag)

    entries = [
        entry(b"UNIQ_KEY\x01U1\x02KEYS\x01order-1  order-2 \x02"),
        entry(b"TAGS\x01none"),
        entry(b"KEYS\x01half\x02", 0x4),
        entry(b"KEYS\x01rolled-back\x02", 0xC),
        entry("KEYS\x01键".encode()),
    ]
    data, placed = twin.RecordBuilder(HOST, 0, 0).build(entries, 0, 500, NOW, 1 << 20)
    expected = [
        (0, b"U1"), (0, b"order-1"), (0, b"order-2"), (2, b"half"), (4, "键".encode()),
    ]  # fmt: skip
    found = twin.key_entries(data + bytes(100), 500)
    assert found == b"".join(
        key_hash(b"TopicTest", key).to_bytes(4, "big") + placed[n][1].to_bytes(8, "big")
        for n, key in expected
    )
    assert twin.key_entries(data[:-1], 500) == found[:-12]
    assert key_hash(b"TopicTest", b"order-1") == zlib.crc32(b"TopicTest#order-1")
