"""Records in MetaQ's stored form: the plain Python reference of the compiled ``_metaq_c``.

Reached through :mod:`imago_wire.hot` and :mod:`imago_wire.records.record`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from isal.isal_zlib import crc32

from imago_wire.compression import inflate
from imago_wire.crc import CRC31_MASK, Buffer, crc31
from imago_wire.errors import RecordError
from imago_wire.record_format.layout import METAQ_HEADER, METAQ_HEADER_SIZE, SYS_COMPRESSED, UNIT
from imago_wire.record_format.properties import find
from imago_wire.record_format.record_fields import read_layout, read_reserved
from imago_wire.records._scan_py import queue_records

if TYPE_CHECKING:
    from collections.abc import Iterable


def metaq_form(record: Buffer, at: int = 0) -> tuple[bytes, memoryview]:
    """Return one record in MetaQ's stored form: header with attribute prefix, and payload.

    The payload is a slice of ``record``, or of the inflated body of a compressed one. RecordError:
    no whole record, or one without a MetaQ position.
    """
    layout = read_layout(record, at)
    reserved = read_reserved(record, layout.properties_at, at + layout.size)
    if reserved.metaq_position < 0:
        raise RecordError("record without a MetaQ position")
    tags = find(bytes(record[layout.properties_at : reserved.client_end]), b"TAGS")
    prefix = b"" if tags is None else len(tags).to_bytes(4, "big") + tags
    payload = memoryview(record)[layout.body_at : layout.body_at + layout.body_size]
    checksum = layout.body_crc
    if reserved.metaq_length >= 0:
        payload = _inflated(payload, layout.sys_flag, reserved.metaq_length - len(prefix))
        checksum = reserved.metaq_crc
    elif prefix:
        # Made of the stored checksum of the body, so that readers see damage: where the body is
        # as it was stored, the last two cancel each other out.
        checksum = crc31(payload, crc32(prefix)) ^ crc31(payload) ^ layout.body_crc & CRC31_MASK
    flag = layout.flag & ~1 | (tags is not None)
    length = len(prefix) + len(payload)
    return METAQ_HEADER.pack(length, checksum, reserved.metaq_id, flag) + prefix, payload


def _inflated(payload: memoryview, sys_flag: int, size: int) -> memoryview:
    if not sys_flag & SYS_COMPRESSED or size < 0:
        raise RecordError("an inflated length where the body is not compressed")
    inflated = inflate(bytes(payload), sys_flag, size)
    if len(inflated) != size:
        raise RecordError(f"body of {len(inflated)} bytes, inflated, where {size} were promised")
    return memoryview(inflated)


def metaq_block(records: Iterable[Buffer]) -> bytes:
    """Return whole records, one in each element, in MetaQ's stored form, one after the other."""
    parts: list[Buffer] = []
    for record in records:
        parts.extend(metaq_form(record))
    return b"".join(parts)


def metaq_records(
    window: Buffer,
    window_at: int,
    units: bytes,
    first: int,
    topic: bytes,
    queue_id: int,
    offset: int,
    position: int,
    bytes_max: int,
    *,
    verify: bool = True,
) -> tuple[bytes, int, int]:
    """Return records of a queue in MetaQ's form, one after the other, cut at ``bytes_max``.

    Those of its 20-byte units from number ``first`` on, as long as they lie in ``window``, log
    bytes from ``window_at`` on. Then the number of the first one left out, and the position behind
    the last one, be it cut. ``offset`` is the queue offset of unit 0, ``position`` MetaQ's of unit
    ``first``. Left out, with all that follow, is a record that is not whole or not this queue's,
    or that has another position. ``verify`` checks checksums. RecordError: the first one cannot be
    inflated.
    """
    view, at, left = memoryview(window), first, bytes_max
    parts: list[Buffer] = []
    for place, size, _ in UNIT.iter_unpack(memoryview(units)[first * UNIT.size :]):
        start = place - window_at
        own = view[start : start + size] if start >= 0 else view[:0]
        good = queue_records(own, place, topic, queue_id, offset + at, verify=verify)
        if left <= 0 or not 0 < size == good or not _stands_at(own, position):
            break
        try:
            message = b"".join(metaq_form(own))
        except RecordError:
            if at == first:
                raise
            break
        parts.append(message[:left])
        position, left, at = position + len(message), left - len(message), at + 1
    return b"".join(parts), at, position


def _stands_at(record: Buffer, position: int) -> bool:
    try:
        properties_at = read_layout(record, 0).properties_at
        reserved = read_reserved(record, properties_at, len(record))
    except RecordError:
        return False
    return position >= 0 and reserved.metaq_position == position


_METAQ_HEAD = Struct(">iiq")


def metaq_whole(data: Buffer) -> int:
    """Return the size of the whole messages in MetaQ's form at the start of data.

    Checksums are verified. Zeros are no message, though an empty body has the checksum 0: no
    message has the id 0.
    """
    at = 0
    while at + METAQ_HEADER_SIZE <= len(data):
        length, checksum, message_id = _METAQ_HEAD.unpack_from(data, at)
        body_at = at + METAQ_HEADER_SIZE
        end = body_at + length
        if not message_id or length < 0 or end > len(data):
            break
        if crc31(memoryview(data)[body_at:end]) != checksum:
            break
        at = end
    return at
