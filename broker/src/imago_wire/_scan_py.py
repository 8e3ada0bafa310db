"""Read records back: the plain Python reference of the compiled ``_scan_c``.

Reached through :mod:`imago_wire.hot` and :mod:`imago_wire.record`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from isal.isal_zlib import crc32

from imago_wire._record_py import crc_digits
from imago_wire.compression import inflate
from imago_wire.crc import Buffer, crc31
from imago_wire.errors import RecordError
from imago_wire.layout import (
    AFTER_STORE_HOST,
    BLANK_SIZE,
    BODY_BYTES_MAX,
    CRC32_PREFIX,
    CRC32_SIZE,
    FIXED_SIZE_V4,
    HEAD,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    KEY_ENTRY,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    METAQ_CRC_PREFIX,
    METAQ_HEADER,
    METAQ_HEADER_SIZE,
    METAQ_ID_PREFIX,
    METAQ_LEN_PREFIX,
    METAQ_PLACE_SIZE,
    METAQ_POS_PREFIX,
    METAQ_SHAPE_SIZE,
    SYS_BORN_V6,
    SYS_COMPRESSED,
    SYS_PREPARED,
    SYS_ROLLBACK,
    SYS_STORE_V6,
    SYS_TRANSACTION_MASK,
    TOPIC_BYTES_MAX,
    TOPIC_BYTES_V1_MAX,
    UNIT_TAG_PREFIX,
    UNIT_TAG_SIZE,
)
from imago_wire.properties import find
from imago_wire.tags import cached_tag_code

if TYPE_CHECKING:
    from collections.abc import Iterable


class ScanStop(Enum):
    """Why a scan ended."""

    END = "end"
    """All of the bytes were whole records."""
    BLANK = "blank"
    """The record that closes a segment."""
    UNWRITTEN = "unwritten"
    """Zeros, or fewer bytes than any record has, all of them zero."""
    SHORT = "short"
    """A record that starts well and is cut by the end of the bytes."""
    DAMAGED = "damaged"
    """Anything else."""


class RecordView(NamedTuple):
    """Where a record and its parts are in the scanned bytes, and what the views need of it."""

    at: int
    size: int
    topic: bytes
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    flag: int
    store_ms: int
    body_at: int
    body_size: int
    properties_at: int
    properties_size: int
    """The client's properties: without the reserved ones."""
    tag_code: int
    """What the consume-queue unit holds."""
    metaq_position: int
    """-1: none."""
    metaq_id: int
    metaq_size: int
    """In MetaQ's form with its header; 0 where the record has no position."""

    @property
    def has_unit(self) -> bool:
        """False for prepared and rolled-back half messages, which are in no queue."""
        return not self.sys_flag & SYS_PREPARED


class Scan(NamedTuple):
    """The whole records found, where they end in the bytes, and why the scan ended there."""

    views: list[RecordView]
    end: int
    stop: ScanStop
    reason: str
    """For people: empty unless damaged."""


def scan_records(data: Buffer, physical_offset: int, *, verify: bool = True) -> Scan:
    """Return the records at the start of data, whose first byte is at ``physical_offset``.

    A record counts when its lengths agree, it says that it belongs at its offset, and (with
    ``verify``) its checksum matches. A record without ``__CRC32#`` is damaged.
    """
    views: list[RecordView] = []
    at = 0
    while True:
        stop = _stop_at(data, at)
        if stop is not None:
            return Scan(views, at, stop, "")
        try:
            view = view_record(data, at, verify=verify)
        except RecordError as error:
            return Scan(views, at, ScanStop.DAMAGED, str(error))
        if view.physical_offset != physical_offset + at:
            return Scan(views, at, ScanStop.DAMAGED, f"is of offset {view.physical_offset}")
        views.append(view)
        at += view.size


def _stop_at(data: Buffer, at: int) -> ScanStop | None:
    """Return why no whole record can start here; None: one may."""
    left = len(data) - at
    if not left:
        return ScanStop.END
    if left < BLANK_SIZE:
        return ScanStop.SHORT if any(data[at:]) else ScanStop.UNWRITTEN
    size = int.from_bytes(data[at : at + 4], "big")
    magic = int.from_bytes(data[at + 4 : at + 8], "big")
    if magic == MAGIC_BLANK:
        return ScanStop.BLANK
    if not size and not magic:
        return ScanStop.UNWRITTEN
    if magic in (MAGIC_V1, MAGIC_V2) and left < size <= _RECORD_SIZE_MAX:
        return ScanStop.SHORT
    return None


_RECORD_SIZE_MAX = BODY_BYTES_MAX + (1 << 16)


def view_record(data: Buffer, at: int = 0, *, verify: bool = False) -> RecordView:
    """Return where the parts of the record at ``at`` are. RecordError: there is no whole one."""
    layout = read_layout(data, at)
    end = at + layout.size
    reserved = read_reserved(data, layout.properties_at, end)
    if verify:
        verify_record(data, at, end)
    properties = bytes(data[layout.properties_at : reserved.client_end])
    tags = find(properties, b"TAGS")
    metaq_size = 0
    if reserved.metaq_id >= 0:
        metaq_size = METAQ_HEADER_SIZE + layout.body_size + (0 if tags is None else 4 + len(tags))
        if reserved.metaq_length >= 0:
            metaq_size = METAQ_HEADER_SIZE + reserved.metaq_length
    return RecordView(
        at,
        layout.size,
        bytes(data[layout.topic_at : layout.topic_at + layout.topic_size]),
        layout.queue_id,
        layout.queue_offset,
        layout.physical_offset,
        layout.sys_flag,
        layout.flag,
        layout.store_ms,
        layout.body_at,
        layout.body_size,
        layout.properties_at,
        reserved.client_end - layout.properties_at,
        cached_tag_code(tags) if reserved.unit_tag is None else reserved.unit_tag,
        reserved.metaq_position,
        reserved.metaq_id,
        metaq_size,
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
    end = at + size
    born_host_size = HOST_V6_SIZE if sys_flag & SYS_BORN_V6 else HOST_V4_SIZE
    store_at = at + HEAD.size + born_host_size
    body_at = store_at + 24 + (HOST_V6_SIZE if sys_flag & SYS_STORE_V6 else HOST_V4_SIZE)
    if body_at > end:
        raise RecordError(f"record of {size} bytes ends in its fixed part")
    body_size = int.from_bytes(data[body_at - 4 : body_at], "big", signed=True)
    topic_at = body_at + body_size + (1 if magic == MAGIC_V1 else 2)
    if body_size < 0 or topic_at > end:
        raise RecordError(f"body of {body_size} bytes in a record of {size}")
    topic_size = int.from_bytes(data[body_at + body_size : topic_at], "big")
    if not 0 < topic_size <= (TOPIC_BYTES_V1_MAX if magic == MAGIC_V1 else TOPIC_BYTES_MAX):
        raise RecordError(f"topic of {topic_size} bytes")
    properties_at = topic_at + topic_size + 2
    if properties_at > end:
        raise RecordError(f"topic of {topic_size} bytes in a record of {size}")
    properties_size = int.from_bytes(data[properties_at - 2 : properties_at], "big", signed=True)
    if properties_at + properties_size != end or properties_size < 0:
        raise RecordError(f"properties of {properties_size} bytes in a record of {size}")
    reconsume_times, prepared_offset, _ = AFTER_STORE_HOST.unpack_from(data, body_at - 16)
    return Layout(
        size, head[2], head[3], head[4], head[5], head[6], sys_flag, head[8], born_host_size,
        int.from_bytes(data[store_at : store_at + 8], "big", signed=True), store_at + 8,
        reconsume_times, prepared_offset, body_at, body_size, topic_at, topic_size,
        properties_at, properties_size,
    )  # fmt: skip


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


_ID_SIZE = len(METAQ_ID_PREFIX) + 17
_SHAPE_CRC_SIZE = len(METAQ_CRC_PREFIX) + 9


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


def verify_record(data: Buffer, at: int, end: int) -> None:
    """Compare the record's checksum. RecordError: it does not match."""
    covered = end - CRC32_SIZE
    stored = bytes(data[end - 11 : end - 1])
    if crc_digits(crc31(memoryview(data)[at:covered])) != stored:
        raise RecordError(f"checksum {stored[::-1]!r} does not match")


def metaq_form(record: Buffer, at: int = 0) -> tuple[bytes, memoryview]:
    """Return one record in MetaQ's stored form: header with attribute prefix, and payload.

    The payload is a slice of ``record``, or of the inflated body of a compressed one. RecordError:
    no whole record, or one without a MetaQ position.
    """
    layout = read_layout(record, at)
    reserved = read_reserved(record, layout.properties_at, at + layout.size)
    if reserved.metaq_id < 0:
        raise RecordError("record without a MetaQ position")
    tags = find(bytes(record[layout.properties_at : reserved.client_end]), b"TAGS")
    prefix = b"" if tags is None else len(tags).to_bytes(4, "big") + tags
    payload = memoryview(record)[layout.body_at : layout.body_at + layout.body_size]
    checksum = layout.body_crc
    if reserved.metaq_length >= 0:
        payload = _inflated(payload, layout.sys_flag, reserved.metaq_length - len(prefix))
        checksum = reserved.metaq_crc
    elif prefix:
        checksum = crc31(payload, crc32(prefix))
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


def key_hash(topic: bytes, key: bytes) -> int:
    """Return the 32-bit hash under which the key index holds a message: CRC-32 of topic#key."""
    return crc32(key, crc32(b"#", crc32(topic)))


def key_entries(records: Buffer, physical_offset: int) -> bytes:
    """Return 12-byte entries (u32 key hash, i64 physical offset) of each UNIQ_KEY and KEYS token.

    ``records`` starts at ``physical_offset``; what follows the last whole record is left out. A
    rolled-back half message has no entries.
    """
    entries: list[bytes] = []
    at = 0
    while _stop_at(records, at) is None:
        try:
            layout = read_layout(records, at)
        except RecordError:
            break
        if layout.sys_flag & SYS_TRANSACTION_MASK != SYS_ROLLBACK:
            topic = bytes(records[layout.topic_at : layout.topic_at + layout.topic_size])
            properties = bytes(records[layout.properties_at : at + layout.size])
            for key in _keys(properties):
                entries.append(KEY_ENTRY.pack(key_hash(topic, key), physical_offset + at))
        at += layout.size
    return b"".join(entries)


def _keys(properties: bytes) -> list[bytes]:
    keys = [find(properties, b"UNIQ_KEY") or b""]
    keys += (find(properties, b"KEYS") or b"").split(b" ")
    return [key for key in keys if key]
