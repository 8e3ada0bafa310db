"""Bodies are held to their checksums where they become columns, by both twins."""

from __future__ import annotations

import zlib

import pytest

from imago_client import MessageQueue
from imago_spark.columns import decode
from imago_spark.schema import CHECKED, CORE
from imago_testing.frames.twins import load
from imago_wire.record_format.layout import SYS_COMPRESSED
from imago_wire.records.record import QueueTail, RecordBuilder, host_bytes, make_entry

HOST = host_bytes("10.1.2.3", 5555)
PACKED = zlib.compress(b"packed" * 9)
CRC_BEFORE_BODY = 88 - 8


def records(bodies: list[bytes], packed: list[bytes]) -> bytearray:
    """Return records as a broker stores them."""
    tail = QueueTail(b"orders", 3, dual=False, next_offset=100)
    flags = [(body, 0) for body in bodies] + [(body, SYS_COMPRESSED) for body in packed]
    made = [
        make_entry(tail, body=body, sys_flag=flag, born_ms=1_700_000_000_123, born_host=HOST)
        for body, flag in flags
    ]
    data, _ = RecordBuilder(HOST, 1, 0).build(made, 0, 4096, 1_700_000_001_456, 1 << 30)
    return bytearray(data)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_body_that_was_changed_is_seen(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = load("imago_spark.columns._rows_c").read_rows if compiled else None
    monkeypatch.setattr(decode, "_read_rows", twin)
    bodies = [b"body %d" % n for n in range(20)]
    data = records(bodies, [PACKED])
    data[data.index(b"body 7")] ^= 1
    data[data.index(b"body 9") - CRC_BEFORE_BODY] ^= 1
    data[data.index(PACKED) - CRC_BEFORE_BODY] ^= 1  # of what, cannot be compared
    queue = MessageQueue("orders", "shard-0", 3)
    found = decode.decode_batches(bytes(data), queue, (*CORE, CHECKED), end_offset=1 << 62)
    checks = [good for batch in found for good in batch.column(CHECKED).to_pylist()]
    assert checks == [n not in (7, 9) for n in range(21)]
    plain = next(decode.decode_batches(bytes(data), queue, CORE, end_offset=1 << 62))
    assert CHECKED not in plain.schema.names
