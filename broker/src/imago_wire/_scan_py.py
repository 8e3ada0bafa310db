"""Read records back: the plain Python reference of the compiled ``_scan_c``.

Reached through :mod:`imago_wire.hot` and :mod:`imago_wire.record`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from isal.isal_zlib import crc32

from imago_wire.compression import inflate
from imago_wire.crc import CRC31_MASK, Buffer, crc31
from imago_wire.errors import RecordError
from imago_wire.layout import (
    BLANK_SIZE,
    BODY_BYTES_MAX,
    KEY_ENTRY,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    METAQ_HEADER,
    METAQ_HEADER_SIZE,
    POSITION_UNIT,
    SYS_COMPRESSED,
    SYS_PREPARED,
    SYS_ROLLBACK,
    SYS_TRANSACTION_MASK,
    UNIT,
)
from imago_wire.properties import find
from imago_wire.record_fields import has_checksum, read_layout, read_reserved, verify_record
from imago_wire.tags import cached_tag_code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_wire._record_py import QueueTail


class ScanStop(Enum):
    """Why a scan ended."""

    END = "end"
    """All of the bytes were whole records."""
    BLANK = "blank"
    """The record that closes a segment."""
    UNWRITTEN = "unwritten"
    """Eight zeros: nothing was written here."""
    SHORT = "short"
    """A record that starts well and is cut by the end of the bytes, or fewer than 8 bytes."""
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


class Indexed(NamedTuple):
    """What index_records() did."""

    end: int
    """Where the records end whose units are in their queues."""
    stopped_at: int
    """Where the last of them starts when it is of the topic to stop at, else -1."""
    store_ms: int
    """The newest store time, 0 without records."""
    metaq_id: int
    """The highest MetaQ id, -1 without any."""
    reason: str
    """Why the record at ``end`` cannot follow in its queue; empty when all is well."""


FindTail: TypeAlias = Callable[[bytes, int, int, int, int], "QueueTail | None"]
"""Topic, queue id, and of the first record: queue offset, physical offset, MetaQ position. The tail
to which units of this queue go; None: to no queue."""


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


def whole_records(
    data: Buffer, physical_offset: int, *, verify: bool = True
) -> tuple[int, ScanStop, str]:
    """Return how far the records reach that scan_records() would return, why, and the reason."""
    scan = scan_records(data, physical_offset, verify=verify)
    return scan.end, scan.stop, scan.reason


def queue_records(
    data: Buffer,
    physical_offset: int,
    topic: bytes,
    queue_id: int,
    queue_offset: int,
    *,
    verify: bool = True,
) -> int:
    """Return how many bytes at the start of data are the records of one queue from an offset on.

    The first one stands at ``physical_offset``, and they follow one another in the log and in the
    queue. Less than all of the data: there is damage, or it is of something else.
    """
    at = 0
    while at < len(data):
        try:
            layout = read_layout(data, at)
            if verify:
                verify_record(data, at, at + layout.size)
        except RecordError:
            break
        if verify and not has_checksum(data, layout.properties_at, at + layout.size):
            break
        found = bytes(data[layout.topic_at : layout.topic_at + layout.topic_size])
        own = (layout.physical_offset, found, layout.queue_id, layout.queue_offset)
        if own != (physical_offset + at, topic, queue_id, queue_offset):
            break
        at += layout.size
        queue_offset += 1
    return at


def fitting_units(units: bytes, bytes_max: int) -> tuple[int, int]:
    """Return how many of a queue's 20-byte units one read may take, and their records' size.

    At least the first; it ends before a unit that has no record. (0, 0): the first one has none.
    """
    count = total = 0
    for _, size, _ in UNIT.iter_unpack(units):
        if size <= 0 or (count and total + size > bytes_max):
            break
        count, total = count + 1, total + size
    return count, total


def gather_records(
    window: Buffer,
    window_at: int,
    units: bytes,
    first: int,
    topic: bytes,
    queue_id: int,
    offset: int,
    *,
    verify: bool = True,
) -> tuple[bytes, int]:
    """Return the records of a queue's 20-byte units from number ``first`` on, joined.

    Up to one that is not whole in ``window``, log bytes from ``window_at`` on; second: its number.
    """
    view, at, parts = memoryview(window), first, []
    for place, size, _ in UNIT.iter_unpack(memoryview(units)[first * UNIT.size :]):
        start = place - window_at
        own = view[start : start + size] if start >= 0 else view[:0]
        good = queue_records(own, place, topic, queue_id, offset + at, verify=verify)
        if not 0 < size == good:
            break
        parts.append(own)
        at += 1
    return b"".join(parts), at


def _stop_at(data: Buffer, at: int) -> ScanStop | None:
    """Return why no whole record can start here; None: one may."""
    left = len(data) - at
    if not left:
        return ScanStop.END
    if left < BLANK_SIZE:
        return ScanStop.SHORT
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


def index_records(data: Buffer, find_tail: FindTail, stop_topic: bytes) -> Indexed:
    """Append the units of whole records to their queues' tails, as build() did on the leader.

    Ends behind the first record of ``stop_topic``, which may change what the tails are: that is
    why each tail is asked for once only. The records are taken as they are: whole_records() has
    verified them.
    """
    tails: dict[tuple[bytes, int], QueueTail | None] = {}
    at = store_ms = 0
    metaq_id = -1
    while at < len(data):
        try:
            view = view_record(data, at)
        except RecordError as error:
            return Indexed(at, -1, store_ms, metaq_id, str(error))
        if view.has_unit:
            key = view.topic, view.queue_id
            if key not in tails:
                place, position = view.physical_offset, view.metaq_position
                tails[key] = find_tail(*key, view.queue_offset, place, position)
            tail = tails[key]
            if tail is not None:
                reason = _add_unit(tail, view)
                if reason:
                    return Indexed(at, -1, store_ms, metaq_id, reason)
        store_ms, metaq_id = max(store_ms, view.store_ms), max(metaq_id, view.metaq_id)
        at += view.size
        if view.topic == stop_topic:
            return Indexed(at, view.at, store_ms, metaq_id, "")
    return Indexed(at, -1, store_ms, metaq_id, "")


def _add_unit(tail: QueueTail, view: RecordView) -> str:
    """Append the units of one record; return why that cannot be done."""
    if view.queue_offset != tail.next_offset:
        return f"queue offset {view.queue_offset} where {tail.next_offset} follows"
    if tail.dual:
        if view.metaq_id < 0:
            return "no MetaQ position"
        tail.positions += POSITION_UNIT.pack(view.metaq_position, view.metaq_size)
        tail.next_position = view.metaq_position + view.metaq_size
    tail.units += UNIT.pack(view.physical_offset, view.size, view.tag_code)
    tail.next_offset += 1
    return ""


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
            place = physical_offset + at
            entries += [KEY_ENTRY.pack(key_hash(topic, key), place) for key in _keys(properties)]
        at += layout.size
    return b"".join(entries)


def _keys(properties: bytes) -> list[bytes]:
    keys = [find(properties, b"UNIQ_KEY") or b""]
    keys += (find(properties, b"KEYS") or b"").split(b" ")
    return [key for key in keys if key]
