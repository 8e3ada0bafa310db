"""Where whole records begin again behind damage.

A body may hold what looks like a record of its own place, checksum included, for clients choose
bodies and can tell where they will be. So what is found by looking is no record before a witness
confirms it: see `views.witness`. What a damaged record says of its own end is believed where all
its lengths agree and a record follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from imago_wire.errors import RecordError
from imago_wire.hot import view_record
from imago_wire.record_format.layout import (
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
    TOPIC_BYTES_MAX,
    blank_record,
)
from imago_wire.record_format.record_fields import read_layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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


class Witness(Protocol):
    """Says which borders are real: see `views.witness.UnitWitness`."""

    @property
    def marks(self) -> Callable[[], Iterable[int]]: ...

    def tag_of(
        self, topic: bytes, queue_id: int, offset: int, record: tuple[int, int]
    ) -> int | None: ...


def written_end(log: LogBytes, offset: int, files_end: int) -> int:
    """Return where the last byte from an offset on that is not zero ends; `offset`: there is none.

    A record's last byte is never zero.
    """
    end = offset
    while offset < files_end:
        data = log.read(offset, min(CHUNK_BYTES, segment_end(log, offset) - offset))
        if data != _ZEROS[: len(data)]:
            end = offset + len(data.rstrip(b"\0"))
        offset = offset + len(data) if len(data) == CHUNK_BYTES else segment_end(log, offset)
    return end


def is_left_by_kill(log: LogBytes, end: int, written: int) -> bool:
    """Whether a start cuts the bytes at the end of the log after a kill, and calls nothing damage.

    `written`: the last byte that is not zero ends there.
    """
    return is_torn(log, end, written) or is_noise(log, end, written)


def is_torn(log: LogBytes, end: int, written: int) -> bool:
    """Whether the bytes at the end of the log are the front of a write that a kill tore.

    `written`: the last byte that is not zero ends there.
    """
    said = claims(log, end)
    return min(said) > written if said else written - end <= HEAD_BYTES


def is_noise(log: LogBytes, end: int, written: int) -> bool:
    """Whether nothing behind the end of the log says that it is a record and belongs there."""
    if claims(log, end):
        return False
    while end < written:
        limit = min(written, segment_end(log, end))
        if any(record_places(data, at) for at, data in _written_chunks(log, end, limit)):
            return False
        end = limit
    return True


def border_behind(log: LogBytes, damaged: int, limit: int, witness: Witness) -> int:
    """Return where the chain of records goes on behind damage, in the same file.

    That is a whole record that a witness confirms, the blank record that closes the file, or
    `limit`: the end of the log, or that of the file.
    """
    limit = min(limit, segment_end(log, damaged))
    found = known_border(log, damaged, limit, witness)
    return limit if found is None else found


def known_border(log: LogBytes, damaged: int, limit: int, witness: Witness) -> int | None:
    """Return the same, None where nothing is confirmed before the limit."""
    agreed = claimed_end(log, damaged)
    if agreed is not None and (agreed == limit or _is_border(log, agreed, limit)):
        return agreed
    return first_confirmed(log, damaged + 1, limit, witness)


def first_confirmed(log: LogBytes, start: int, limit: int, witness: Witness) -> int | None:
    """Return where the first whole record from `start` on is that a witness confirms."""
    marks = sorted(mark for mark in witness.marks() if start <= mark < limit)
    marked = next((mark for mark in marks if _is_border(log, mark, limit)), None)
    for at, data in _written_chunks(log, start, limit if marked is None else marked):
        for place in record_places(data, at):
            if is_confirmed(log, place, witness):
                return place
    return marked


def is_confirmed(log: LogBytes, place: int, witness: Witness) -> bool:
    """Whether a whole record starts at a log offset, and the unit of its queue names it.

    The unit is looked for first: a body may hold thousands of heads that claim much.
    """
    head = log.read(place, _HEAD_SIZE_MAX)
    if len(head) < FIXED_SIZE_V4:
        return False
    size, magic, _, queue_id, _, offset, _, sys_flag, _ = HEAD.unpack_from(head)
    if magic not in (MAGIC_V1, MAGIC_V2) or not 0 < size <= segment_end(log, place) - place:
        return False
    body_at, body_size = _body(head, sys_flag)
    if not 0 <= body_size < size:
        return False
    length_size = 2 if magic == MAGIC_V2 else 1
    behind = log.read(place + body_at + body_size, length_size + TOPIC_BYTES_MAX)
    topic = behind[length_size : length_size + int.from_bytes(behind[:length_size], "big")]
    tag = witness.tag_of(topic, queue_id, offset, (place, size))
    if tag is None or not is_record(log, place):
        return False
    return view_record(log.read(place, size), 0).tag_code == tag


def _body(head: bytes, sys_flag: int) -> tuple[int, int]:
    """Return where the body of a record begins, and its size."""
    born_size = HOST_V6_SIZE if sys_flag & SYS_BORN_V6 else HOST_V4_SIZE
    store_size = HOST_V6_SIZE if sys_flag & SYS_STORE_V6 else HOST_V4_SIZE
    at = HEAD.size + born_size + 8 + store_size + AFTER_STORE_HOST.size
    return at, int.from_bytes(head[at - 4 : at], "big", signed=True)


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
    body_at, body_size = _body(head, sys_flag)
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
