"""Read records back: the plain Python reference of the compiled ``_scan_c``.

Reached through :mod:`imago_wire.hot` and :mod:`imago_wire.records.record`.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from imago_wire.errors import RecordError
from imago_wire.record_format.layout import (
    BLANK_SIZE,
    BODY_BYTES_MAX,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    METAQ_HEADER_SIZE,
    SYS_PREPARED,
    UNIT,
)
from imago_wire.record_format.properties import find
from imago_wire.record_format.record_fields import (
    has_checksum,
    read_layout,
    read_reserved,
    verify_record,
)
from imago_wire.record_format.sequences import read_stored
from imago_wire.record_format.tags import cached_tag_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_wire.crc import Buffer


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


Numbered: TypeAlias = tuple[str, int, int, str, int, int, int, int]
"""Producer, epoch and number; topic, queue, queue offset, log offset and store time."""


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
        stop = stop_at(data, at)
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


def numbered_records(data: Buffer, physical_offset: int) -> list[Numbered]:
    """Return what idempotent producers say in the records that scan_records() would return.

    Without half messages, which are in no queue.
    """
    found: list[Numbered] = []
    for view in scan_records(data, physical_offset, verify=False).views:
        if not view.has_unit:
            continue
        start, end = view.properties_at, view.properties_at + view.properties_size
        sent = read_stored(bytes(data[start:end]))
        if sent is not None:
            topic = view.topic.decode("utf-8", "replace")
            where = (topic, view.queue_id, view.queue_offset, view.physical_offset)
            found.append((*sent, *where, view.store_ms))
    return found


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

    The first one is at ``physical_offset``, and they follow one another in the log and in the
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


def near_units(units: bytes, first: int, limit: int, gap_max: int) -> tuple[int, int]:
    """Return how far a queue's 20-byte units from number ``first`` on lie in a part of the log.

    The number of the first unit that does not follow the one before it with at most ``gap_max``
    bytes between them, or ends behind ``limit``; and where the record before it ends.
    """
    at, end = first, -1
    for place, size, _ in UNIT.iter_unpack(memoryview(units)[first * UNIT.size :]):
        if size <= 0 or place < 0 or place + size > limit:
            break
        if end >= 0 and not 0 <= place - end <= gap_max:
            break
        at, end = at + 1, place + size
    return at, end


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


def gather_blocks(
    blocks: Sequence[bytes],
    starts: Sequence[int],
    units: bytes,
    first: int,
    topic: bytes,
    queue_id: int,
    offset: int,
) -> tuple[bytes, int]:
    """As ``gather_records`` without ``verify``, out of blocks of the log that begin at ``starts``.

    Each record is whole in one of them; they ascend, maybe with gaps.
    """
    at, parts = first, []
    for place, size, _ in UNIT.iter_unpack(memoryview(units)[first * UNIT.size :]):
        index = bisect_right(starts, place) - 1
        if index < 0:
            break
        start = place - starts[index]
        own = memoryview(blocks[index])[start : start + max(size, 0)]
        if not 0 < size == queue_records(own, place, topic, queue_id, offset + at, verify=False):
            break
        parts.append(own)
        at += 1
    return b"".join(parts), at


def stop_at(data: Buffer, at: int) -> ScanStop | None:
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
    if reserved.metaq_position >= 0:
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
