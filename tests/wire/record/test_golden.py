"""The bytes of the first format version: what is in logs out there stays readable and the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from imago_testing.frames.text import GOLDEN
from imago_wire.records.record import decode_record, host_bytes, metaq_shape

if TYPE_CHECKING:
    from imago_testing.frames.twins import Twin

HOST = host_bytes("10.0.0.5", 10911)
NOW = 1_800_000_000_000
OFFSET = 1 << 32
DEFLATED = bytes.fromhex("7801010500faff68656c6c6f062c0215")  # "hello", stored


def golden() -> dict[str, bytes]:
    text = (GOLDEN / "records" / "version-1.json").read_text()
    return {name: bytes.fromhex(value) for name, value in json.loads(text).items()}


def built(twin: Twin) -> dict[str, bytes]:
    tail = twin.QueueTail("topic-主题".encode(), 7, dual=True, next_offset=41, next_position=4100)
    tagged = b"\x00\x00\x00\x05colorhello"

    def rocketmq(body: bytes, properties: bytes, **fields: Any) -> Any:
        fields = {"born_ms": NOW - 5, "born_host": HOST, **fields}
        return twin.make_entry(tail, body, properties, **fields)

    entries = [
        twin.metaq_entry(tail, b"hello", 0, 907060870, NOW - 3, HOST),
        twin.metaq_entry(tail, tagged, 1, 1434734634, NOW - 2, host_bytes("::1", 9)),
        rocketmq(b"hello", b"KEYS\x01k1 k2\x02TAGS\x01TagA", flag=9, reconsume_times=2),
        rocketmq(b"half", b"", sys_flag=0x4),
        rocketmq(b"whole", b"", sys_flag=0x8, prepared_offset=OFFSET + 7),
        rocketmq(
            DEFLATED,
            b"TAGS\x01z\x02",
            sys_flag=0x1,
            unit_tag=NOW + 1000,
            metaq_shape=metaq_shape(b"hello", b"TAGS\x01z\x02"),
        ),
    ]
    log, placed = twin.RecordBuilder(HOST, 5, 0).build(entries, 0, OFFSET, NOW, 1 << 20)
    records = [log[at - OFFSET : at - OFFSET + size] for _, at, size, *_ in placed]
    in_queue = [record for record, place in zip(records, placed, strict=True) if place[4] >= 0]
    return {
        "log": log,
        "units": bytes(tail.units),
        "positions": bytes(tail.positions),
        "metaq": twin.metaq_block(in_queue),
        "keys": twin.key_entries(log, OFFSET),
    }


def test_builder_writes_the_same_bytes_as_ever(twin: Twin) -> None:
    assert built(twin) == golden()


def test_records_of_the_first_version_are_read(twin: Twin) -> None:
    log = golden()["log"]
    scan = twin.scan_records(log, OFFSET)
    assert (len(scan.views), scan.end) == (6, len(log))
    bodies = [decode_record(log, view.at, inflate=True).body for view in scan.views]
    assert bodies == [b"hello", b"hello", b"hello", b"half", b"whole", b"hello"]
    assert [view.metaq_position for view in scan.views] == [4100, 4125, 4159, -1, 4192, 4217]
    assert scan.views[-1].tag_code == NOW + 1000
