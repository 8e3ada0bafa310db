"""A log with records of every form, for tests and fuzz targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from imago_testing.frames.twins import Twin
from imago_wire.compression import compress
from imago_wire.records.record import host_bytes, metaq_shape

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW_MS: Final = 1_800_000_000_000
HOST: Final = host_bytes("10.0.0.5", 10911)
HOST_V6: Final = host_bytes("fe80::1", 5)


def sample_log(*, compressed: bool) -> bytes:
    """Return records of three topics, built by the reference, from log offset 0 on."""
    twin = Twin("python")
    kinds = [(b"t", True), ("主题".encode(), True), (b"T" * 128, False)]
    tails = [twin.QueueTail(topic, 0, dual=dual) for topic, dual in kinds]
    forms: list[tuple[bytes, bytes, Mapping[str, Any]]] = [
        (b"body", b"", {"flag": 7}),
        (b"body", b"TAGS\x01tag\x02KEYS\x01a b\x02UNIQ_KEY\x01U", {}),
        (b"", "TAGS\x01标".encode(), {}),
        (b"x", b"", {"sys_flag": 0xC, "born_host": HOST_V6, "unit_tag": 9}),
        (b"x", b"KEYS\x01k", {"born_host": HOST_V6, "unit_tag": -9}),
    ]
    if compressed:
        shape = metaq_shape(b"to compress", b"TAGS\x01c")
        packed = compress(b"to compress")
        forms.append((packed, b"TAGS\x01c", {"sys_flag": 1, "metaq_shape": shape}))
    entries = [
        twin.make_entry(tail, body, properties, **{"born_ms": 1, "born_host": HOST, **fields})
        for tail in tails
        for body, properties, fields in forms
    ]
    data: bytes = twin.RecordBuilder(HOST, 3, 0).build(entries, 0, 0, NOW_MS, 1 << 30)[0]
    return data
