"""Records whose bytes are known, most of them from RocketMQ's own encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_wire.crc import crc31
from imago_wire.errors import ChecksumError, RecordError
from imago_wire.record_format.layout import crc_digits
from imago_wire.records.record import (
    blank_record,
    decode_record,
    host_bytes,
    host_text,
    offset_message_id,
)

if TYPE_CHECKING:
    from imago_testing.frames.twins import Twin

BORN_MS = 1700000000000
T = 1700000000123
BORN_HOST = host_bytes("192.168.1.10", 54321)
STORE_HOST = host_bytes("10.0.0.5", 10911)


def hexadecimal(text: str) -> bytes:
    return bytes.fromhex("".join(text.split()))


V1 = hexadecimal("""
000000b3 daa320a7 69c865ed 00000003 00000000 0000000000000007 0000000000000000 00000000
0000018bcfe56800 c0a8010a0000d431 0000018bcfe5687b 0a00000500002a9f 00000000 0000000000000000
0000000e 48656c6c6f20526f636b65744d51 09 546f70696354657374 0041
4b455953016f726465722d3102 544147530154616741 02
554e49515f4b455901 4143314530413031303030303241394634443545364637303831393230303030 02
""")
V2 = hexadecimal("""
00000077 daa320a7 77065916 00000000 00000001 0000000000000000 00000000000000b3 00000030
0000018bcfe56800 fe8000000000000000000000000000010000d431 0000018bcfe5687c
20010db800000000000000000000000500002a9f 00000002 0000000000000000 00000002 7636 02 5436 0000
""")
V3 = hexadecimal(f"""
000000e7 daa320ab 706b9d0f 00000001 00000000 000000000000002a 0000000040000000 00000000
0000018bcfe56800 c0a8010a0000d431 0000018bcfe5687d 0a00000500002a9f 00000000 0000000000000000
00000002 7632 0082 {"4c" * 130} 0007 54414753 01 78 02
""")
V4 = hexadecimal("""
00000090 daa320a7 69c865ed 00000003 00000000 0000000000000008 000000000000012a 00000000
0000018bcfe56800 c0a8010a0000d431 0000018bcfe5687e 0a00000500002a9f 00000000 0000000000000000
0000000e 48656c6c6f20526f636b65744d51 09 546f70696354657374 001e
5441475301 54616741 02 5f5f435243333223 01 33313336363037313330 02
""")
PULLED = hexadecimal("""
000000bbdaa320a73610a6860000000200000000000000000000000000000000
00000000000000000000018bcfe56800c0a801140000c3500000018bcfe56803
c0a8010a00002a9f0000000000000000000000000000000568656c6c6f09546f
706963546573740052554e49515f4b4559013746303030303031303030313138
42344141433231324343394142323030303002434c5553544552014465666175
6c74436c757374657202544147530154616741024b455953016b31
""")


def with_checksum(record: bytes, properties_size: int) -> bytes:
    """A vector without ``__CRC32#`` as we store it: 20 bytes longer, with the property."""
    size_at = len(record) - properties_size - 2
    covered = (
        (len(record) + 20).to_bytes(4, "big")
        + record[4:size_at]
        + (properties_size + 20).to_bytes(2, "big")
        + record[size_at + 2 :]
    )
    return covered + b"__CRC32#\x01" + crc_digits(crc31(covered)) + b"\x02"


def test_record_of_magic_v1_is_built_and_decoded(twin: Twin) -> None:
    tail = twin.QueueTail(b"TopicTest", 3, dual=False, next_offset=7)
    properties = (
        b"KEYS\x01order-1\x02TAGS\x01TagA\x02UNIQ_KEY\x01AC1E0A0100002A9F4D5E6F7081920000\x02"
    )
    entry = twin.make_entry(
        tail, b"Hello RocketMQ", properties, born_ms=BORN_MS, born_host=BORN_HOST
    )
    builder = twin.RecordBuilder(STORE_HOST, 0, 0)
    data, placed = builder.build([entry], 0, 0, T, 1 << 20)
    assert data == with_checksum(V1, 65)
    assert placed == [(7, 0, 199, -1, -1)]
    assert (tail.next_offset, tail.next_position) == (8, 0)

    message = decode_record(V1)
    assert (message.size, message.topic, message.queue_id) == (179, "TopicTest", 3)
    assert (message.queue_offset, message.physical_offset) == (7, 0)
    assert (message.born_ms, host_text(message.born_host)) == (BORN_MS, "192.168.1.10:54321")
    assert (message.store_ms, host_text(message.store_host)) == (T, "10.0.0.5:10911")
    assert (message.body, message.body_crc) == (b"Hello RocketMQ", 0x69C865ED)
    assert (message.tags, message.keys) == ("TagA", ["order-1"])
    assert message.unique_key == "AC1E0A0100002A9F4D5E6F7081920000"
    assert message.offset_message_id == "0A00000500002A9F0000000000000000"


def test_record_with_ipv6_hosts_is_built_and_decoded(twin: Twin) -> None:
    tail = twin.QueueTail(b"T6", 0, dual=False)
    entry = twin.make_entry(
        tail,
        b"v6",
        flag=1,
        sys_flag=0,
        born_ms=BORN_MS,
        born_host=host_bytes("fe80::1", 54321),
        reconsume_times=2,
    )
    builder = twin.RecordBuilder(host_bytes("2001:db8::5", 10911), 0, 0)
    data, placed = builder.build([entry], 0, 179, T + 1, 1 << 20)
    assert data == with_checksum(V2, 0)
    assert placed == [(0, 179, 139, -1, -1)]

    message = decode_record(V2)
    assert (host_text(message.born_host), host_text(message.store_host)) == (
        "[fe80::1]:54321",
        "[2001:db8::5]:10911",
    )
    assert (message.flag, message.sys_flag, message.reconsume_times) == (1, 0x30, 2)
    assert message.offset_message_id == "20010DB800000000000000000000000500002A9F00000000000000B3"


def test_record_of_magic_v2_is_built_and_decoded(twin: Twin) -> None:
    tail = twin.QueueTail(b"L" * 130, 1, dual=False, next_offset=42)
    entry = twin.make_entry(tail, b"v2", b"TAGS\x01x\x02", born_ms=BORN_MS, born_host=BORN_HOST)
    data, _ = twin.RecordBuilder(STORE_HOST, 0, 0).build([entry], 0, 1 << 30, T + 2, 1 << 20)
    assert data == with_checksum(V3, 7)
    assert decode_record(V3).topic == "L" * 130
    assert decode_record(V3).size == 231


def test_record_with_its_checksum_is_built_to_the_byte(twin: Twin) -> None:
    tail = twin.QueueTail(b"TopicTest", 3, dual=False, next_offset=8)
    entry = twin.make_entry(
        tail, b"Hello RocketMQ", b"TAGS\x01TagA", born_ms=BORN_MS, born_host=BORN_HOST
    )
    data, placed = twin.RecordBuilder(STORE_HOST, 0, 0).build([entry], 0, 298, T + 3, 1 << 20)
    assert data == V4
    assert placed == [(8, 298, 144, -1, -1)]
    (view,) = twin.scan_records(V4, 298).views
    assert (view.topic, view.queue_offset, view.tag_code) == (b"TopicTest", 8, 2598919)


def test_pulled_record_without_last_separator_is_decoded() -> None:
    message = decode_record(PULLED)
    assert message.body == b"hello"
    assert message.properties == {
        "UNIQ_KEY": "7F000001000118B4AAC212CC9AB20000",
        "CLUSTER": "DefaultCluster",
        "TAGS": "TagA",
        "KEYS": "k1",
    }


def test_blank_record_closes_a_segment(twin: Twin) -> None:
    blank = blank_record(100)
    assert blank.hex() == "00000064cbd43194"
    scan = twin.scan_records(V4 + blank + bytes(92), 298)
    assert (len(scan.views), scan.end, scan.stop.name) == (1, 144, "BLANK")


@pytest.mark.parametrize(
    ("properties", "unit_tag", "physical_offset", "expected"),
    [
        (b"TAGS\x01TagA\x02", None, 0, "0000000000000000 {:08x} 000000000027a807"),
        (b"TAGS\x01TagC-neg-zzzzzz", None, 123456789, "00000000075bcd15 {:08x} ffffffff9d3130e1"),
        (b"", None, 5, "0000000000000005 {:08x} 0000000000000000"),
        (b"TAGS\x01TagA", T + 10_000, 4096, "0000000000001000 {:08x} 0000018bcfe58f8b"),
    ],
)
def test_consume_queue_unit_has_known_bytes(
    twin: Twin, properties: bytes, unit_tag: int | None, physical_offset: int, expected: str
) -> None:
    tail = twin.QueueTail(b"TopicTest", 3, dual=False)
    entry = twin.make_entry(
        tail, b"x", properties, born_ms=BORN_MS, born_host=BORN_HOST, unit_tag=unit_tag
    )
    builder = twin.RecordBuilder(STORE_HOST, 0, 0)
    data, placed = builder.build([entry], 0, physical_offset, T, 1 << 20)
    assert tail.units == hexadecimal(expected.format(placed[0][2]))
    assert tail.positions == b""
    (view,) = twin.scan_records(data, physical_offset).views
    assert view.tag_code == int.from_bytes(tail.units[12:], "big", signed=True)


@pytest.mark.parametrize(
    ("body", "flag", "expected"),
    [
        (b"hello", 0, "00000005 3610a686 {:016x} 00000000 68656c6c6f"),
        (
            b"\x00\x00\x00\x04attrhello",
            1,
            "0000000d 4b62e51c {:016x} 00000001 00000004 61747472 68656c6c6f",
        ),
    ],
)
def test_metaq_form_has_known_bytes(twin: Twin, body: bytes, flag: int, expected: str) -> None:
    tail = twin.QueueTail(b"t", 0, dual=True)
    entry = twin.metaq_entry(tail, body, flag, crc31(body), BORN_MS, BORN_HOST)
    data, placed = twin.RecordBuilder(STORE_HOST, 0, 0).build([entry], 0, 0, T, 1 << 20)
    assert twin.metaq_block([data]) == hexadecimal(expected.format(placed[0][4]))


def test_offset_message_id_is_host_and_offset() -> None:
    assert offset_message_id(STORE_HOST, 0) == "0A00000500002A9F0000000000000000"


def test_decoding_refuses_a_body_that_does_not_match_its_checksum() -> None:
    damaged = V1.replace(b"Hello", b"hello")
    with pytest.raises(ChecksumError):
        decode_record(damaged)
    assert decode_record(damaged, verify=False).body == b"hello RocketMQ"


@pytest.mark.parametrize("record", [V1, V2, V3, V4])
def test_decoding_refuses_any_cut(record: bytes) -> None:
    for cut in range(len(record)):
        with pytest.raises(RecordError):
            decode_record(record[:cut])
