"""Read the fixed fields and the reserved properties of one record where they stand.

Nothing here copies a body or decodes a property. :mod:`imago_wire.record_format.layout` draws the
bytes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from imago_wire.crc import Buffer, crc31
from imago_wire.errors import RecordError
from imago_wire.record_format.layout import (
    AFTER_STORE_HOST,
    CRC32_PREFIX,
    CRC32_SIZE,
    FIXED_SIZE_V4,
    HEAD,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    METAQ_CRC_PREFIX,
    METAQ_ID_PREFIX,
    METAQ_LEN_PREFIX,
    METAQ_PLACE_SIZE,
    METAQ_POS_PREFIX,
    METAQ_SHAPE_SIZE,
    SYS_BORN_V6,
    SYS_STORE_V6,
    TOPIC_BYTES_MAX,
    TOPIC_BYTES_V1_MAX,
    UNIT_TAG_PREFIX,
    UNIT_TAG_SIZE,
    crc_digits,
)


class Layout(NamedTuple):
    """The fixed fields of a record, and where its parts are."""

    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_ms: int
    born_host_size: int
    store_ms: int
    store_host_at: int
    reconsume_times: int
    prepared_offset: int
    body_at: int
    body_size: int
    topic_at: int
    topic_size: int
    properties_at: int
    properties_size: int


def read_layout(data: Buffer, at: int) -> Layout:
    """Read the fields of the record at ``at``. RecordError: its lengths do not agree."""
    left = len(data) - at
    if left < FIXED_SIZE_V4:
        raise RecordError(f"{left} bytes are no record")
    head = HEAD.unpack_from(data, at)
    size, magic, sys_flag = head[0], head[1], head[7]
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise RecordError(f"magic {magic:08x}")
    if not FIXED_SIZE_V4 <= size <= left:
        raise RecordError(f"record of {size} bytes in {left}")
    born_host_size = HOST_V6_SIZE if sys_flag & SYS_BORN_V6 else HOST_V4_SIZE
    store_host_size = HOST_V6_SIZE if sys_flag & SYS_STORE_V6 else HOST_V4_SIZE
    store_host_at = at + HEAD.size + born_host_size + 8
    body_at = store_host_at + store_host_size + AFTER_STORE_HOST.size
    if body_at > at + size:
        raise RecordError(f"record of {size} bytes ends in its fixed part")
    store_ms = int.from_bytes(data[store_host_at - 8 : store_host_at], "big", signed=True)
    reconsume_times, prepared_offset, body_size = AFTER_STORE_HOST.unpack_from(
        data, body_at - AFTER_STORE_HOST.size
    )
    parts = _read_parts(data, body_at, body_size, magic, at + size)
    return Layout(
        size, head[2], head[3], head[4], head[5], head[6], sys_flag, head[8], born_host_size,
        store_ms, store_host_at, reconsume_times, prepared_offset, body_at, body_size,
        parts[0], parts[1], parts[2], parts[3],
    )  # fmt: skip


def _read_parts(
    data: Buffer, body_at: int, body_size: int, magic: int, end: int
) -> tuple[int, int, int, int]:
    """Return place and size of topic and properties, which fill the record up to ``end``."""
    length_size, topic_size_max = 1, TOPIC_BYTES_V1_MAX
    if magic == MAGIC_V2:
        length_size, topic_size_max = 2, TOPIC_BYTES_MAX
    topic_at = body_at + body_size + length_size
    if body_size < 0 or topic_at > end:
        raise RecordError(f"body of {body_size} bytes does not fit its record")
    topic_size = int.from_bytes(data[topic_at - length_size : topic_at], "big")
    properties_at = topic_at + topic_size + 2
    if not 0 < topic_size <= topic_size_max or properties_at > end:
        raise RecordError(f"topic of {topic_size} bytes does not fit its record")
    properties_size = int.from_bytes(data[properties_at - 2 : properties_at], "big", signed=True)
    if properties_at + properties_size != end:
        raise RecordError(f"properties of {properties_size} bytes do not end with their record")
    return topic_at, topic_size, properties_at, properties_size


class Reserved(NamedTuple):
    """What the builder added to a record's properties."""

    client_end: int
    """Where the client's properties end."""
    unit_tag: int | None
    metaq_position: int
    metaq_id: int
    metaq_length: int
    """Of a compressed body's MetaQ form, else -1."""
    metaq_crc: int


def read_reserved(data: Buffer, properties_at: int, end: int) -> Reserved:
    """Read the reserved properties backwards from the record's end."""
    at = end - CRC32_SIZE
    if not _is_property(data, properties_at, at, end, CRC32_PREFIX):
        raise RecordError("record without a checksum")
    unit_tag: int | None = None
    position = metaq_id = length = checksum = -1
    place = at - METAQ_PLACE_SIZE
    id_at = at - _ID_SIZE
    if _is_property(data, properties_at, id_at, at, METAQ_ID_PREFIX) and _is_property(
        data, properties_at, place, id_at, METAQ_POS_PREFIX
    ):
        metaq_id = _hexadecimal(data, at, 16)
        position = _hexadecimal(data, id_at, 16)
        at = place
        shape, crc_at = at - METAQ_SHAPE_SIZE, at - _SHAPE_CRC_SIZE
        if _is_property(data, properties_at, crc_at, at, METAQ_CRC_PREFIX) and _is_property(
            data, properties_at, shape, crc_at, METAQ_LEN_PREFIX
        ):
            checksum, length = _hexadecimal(data, at, 8), _hexadecimal(data, crc_at, 8)
            at = shape
    if _is_property(data, properties_at, at - UNIT_TAG_SIZE, at, UNIT_TAG_PREFIX):
        unit_tag = _hexadecimal(data, at, 16)
        at -= UNIT_TAG_SIZE
    return Reserved(at, unit_tag, position, metaq_id, length, checksum)


_ID_SIZE: Final = len(METAQ_ID_PREFIX) + 17
_SHAPE_CRC_SIZE: Final = len(METAQ_CRC_PREFIX) + 9


def _is_property(data: Buffer, properties_at: int, at: int, end: int, prefix: bytes) -> bool:
    """Whether the property with this prefix, name and 0x01, fills data[at:end]."""
    if at < properties_at or data[at : at + len(prefix)] != prefix or data[end - 1] != 2:
        return False
    return at == properties_at or data[at - 1] == 2


def _hexadecimal(data: Buffer, end: int, digits: int) -> int:
    """Return the signed number before the 0x02 that is the last byte before ``end``."""
    text = bytes(data[end - 1 - digits : end - 1])
    try:
        value = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        value = b""
    if len(value) * 2 != digits:
        raise RecordError(f"reserved property of the value {text!r}")
    return int.from_bytes(value, "big", signed=True)


def has_checksum(data: Buffer, properties_at: int, end: int) -> bool:
    """Whether the record that ends there ends with its checksum, right or wrong."""
    return _is_property(data, properties_at, end - CRC32_SIZE, end, CRC32_PREFIX)


def verify_record(data: Buffer, at: int, end: int) -> None:
    """Compare the record's checksum. RecordError: it does not match."""
    covered = end - CRC32_SIZE
    stored = bytes(data[end - 11 : end - 1])
    if crc_digits(crc31(memoryview(data)[at:covered])) != stored:
        raise RecordError(f"checksum {stored[::-1].decode('ascii', 'replace')} does not match")
