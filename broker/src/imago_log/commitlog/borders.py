"""Where whole records begin again behind damage.

A record counts as found when it says that it belongs where it stands and its checksum matches.
What a damaged record says of its own size is believed where a record follows there, or all its
lengths agree. Inside of what an intact head claims nothing is looked for: a body may hold what
looks like a record of its own place, for clients choose bodies and can tell where they will be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from imago_wire.errors import RecordError
from imago_wire.hot import view_record
from imago_wire.layout import (
    AFTER_STORE_HOST,
    BLANK_SIZE,
    FIXED_SIZE_V4,
    HEAD,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    SYS_BORN_V6,
    SYS_STORE_V6,
    blank_record,
)
from imago_wire.record_fields import read_layout

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_BYTES = 8 << 20
_ZEROS = bytes(CHUNK_BYTES)
_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
_PLACE_AT = 28
"""Where a record holds its own log offset."""
HEAD_BYTES = _PLACE_AT + 8
"""Of a record, up to where it says that it belongs."""
_HEAD_SIZE_MAX = HEAD.size + HOST_V6_SIZE + 8 + HOST_V6_SIZE + AFTER_STORE_HOST.size
"""Of a record, up to its body."""


class LogBytes(Protocol):
    """The bytes of a log, by log offset."""

    @property
    def segment_size(self) -> int: ...

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes within one file, fewer where it ends."""


def segment_end(log: LogBytes, offset: int) -> int:
    """Return where the file that holds a log offset ends."""
    return offset - offset % log.segment_size + log.segment_size


def is_record(log: LogBytes, offset: int) -> bool:
    """Whether a whole record starts at a log offset."""
    size = int.from_bytes(log.read(offset, 4), "big")
    if not FIXED_SIZE_V4 <= size <= segment_end(log, offset) - offset:
        return False
    try:
        view = view_record(log.read(offset, size), 0, verify=True)
    except RecordError:
        return False
    return view.physical_offset == offset and view.size == size


def is_blank(log: LogBytes, offset: int) -> bool:
    """Whether a blank record that closes its file starts at a log offset."""
    left = segment_end(log, offset) - offset
    return left >= BLANK_SIZE and log.read(offset, BLANK_SIZE) == blank_record(left)


def first_record(log: LogBytes, start: int, end: int) -> tuple[int | None, bool]:
    """Return where the first whole record from `start` on is, within one file.

    Second: whether anything but zeros stands there.
    """
    written = False
    for at, data in _written_chunks(log, start, end):
        written = True
        for place in record_places(data, at):
            if is_record(log, place):
                return place, True
    return None, written


def border_behind(log: LogBytes, damaged: int, limit: int) -> int:
    """Return where the chain of records goes on behind damage, in the same file.

    That is a whole record, the blank record that closes the file, or `limit`: the end of the log,
    or that of the file.
    """
    limit = min(limit, segment_end(log, damaged))
    said = claims(log, damaged)
    agreed = claimed_end(log, damaged)
    for end in said if agreed is None else (agreed, *said):
        if end == limit or _is_border(log, end, limit):
            return end
    start = said[0] if said and said[0] < limit else damaged + 1
    found, _ = first_record(log, start, limit)
    if found is None and limit == segment_end(log, damaged):
        found = _closing_blank(log, start, limit)
    return limit if found is None else found


def claims(log: LogBytes, offset: int) -> tuple[int, ...]:
    """Return where a record ends whose head is intact, as it says and as its parts say.

    Nothing unless it says that it belongs where it stands; one alone where its parts are torn.
    """
    room = segment_end(log, offset) - offset
    head = log.read(offset, _HEAD_SIZE_MAX)
    if len(head) < FIXED_SIZE_V4:
        return ()
    size, magic, _, _, _, _, place, sys_flag, _ = HEAD.unpack_from(head)
    if magic not in (MAGIC_V1, MAGIC_V2) or place != offset or not FIXED_SIZE_V4 <= size <= room:
        return ()
    born_size = HOST_V6_SIZE if sys_flag & SYS_BORN_V6 else HOST_V4_SIZE
    store_size = HOST_V6_SIZE if sys_flag & SYS_STORE_V6 else HOST_V4_SIZE
    body_at = HEAD.size + born_size + 8 + store_size + AFTER_STORE_HOST.size
    body_size = int.from_bytes(head[body_at - 4 : body_at], "big", signed=True)
    if not 0 <= body_size < room:
        return (offset + size,)
    at = offset + body_at + body_size
    for length_size in (2 if magic == MAGIC_V2 else 1, 2):
        length = log.read(at, length_size)
        at += length_size + int.from_bytes(length, "big")
    return (offset + size, at) if offset + FIXED_SIZE_V4 < at <= offset + room else (offset + size,)


def _is_border(log: LogBytes, offset: int, limit: int) -> bool:
    return offset < limit and (is_record(log, offset) or is_blank(log, offset))


def claimed_end(log: LogBytes, offset: int) -> int | None:
    """Return where a record ends whose lengths agree, though its checksum may not match."""
    size = int.from_bytes(log.read(offset, 4), "big")
    if not FIXED_SIZE_V4 <= size <= segment_end(log, offset) - offset:
        return None
    try:
        read_layout(log.read(offset, size), 0)
    except RecordError:
        return None
    return offset + size


def _closing_blank(log: LogBytes, start: int, limit: int) -> int | None:
    """Return where the blank record is that closes a file, when the next file goes on."""
    if not is_record(log, limit):
        return None
    magic = blank_record(0)[4:]
    while start < limit:
        data = log.read(start, min(CHUNK_BYTES, limit - start))
        at = data.find(magic, 4)
        while at >= 0:
            if is_blank(log, start + at - 4):
                return start + at - 4
            at = data.find(magic, at + 1)
        if len(data) < CHUNK_BYTES:
            return None
        start += len(data) - BLANK_SIZE
    return None


def _written_chunks(log: LogBytes, offset: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the parts of one file that are not all zeros, overlapping by a record's head."""
    while offset < end:
        size = min(CHUNK_BYTES, end - offset)
        data = log.read(offset, size)
        if data != _ZEROS[: len(data)]:
            yield offset, data
        if len(data) < size:
            return
        offset += size if offset + size >= end else size - HEAD_BYTES


def record_places(data: bytes, offset: int) -> list[int]:
    """Return the log offsets of what may be records that say they belong there."""
    places = []
    for magic in _MAGICS:
        at = data.find(magic, 4)
        while at >= 0:
            begin = at - 4
            own = data[begin + _PLACE_AT : begin + HEAD_BYTES]
            if int.from_bytes(own, "big") == offset + begin:
                places.append(offset + begin)
            at = data.find(magic, at + 1)
    return sorted(places)
