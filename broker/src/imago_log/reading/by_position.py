"""Reads by MetaQ position: slices of materialised files, or records transcoded on the way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.results import MetaqRead, MetaqStatus
from imago_log.views.metaq_batch import whole_messages
from imago_wire.hot import metaq_block, view_record

if TYPE_CHECKING:
    from imago_log.commitlog.records import LogRecords
    from imago_log.views.consume_queue import ConsumeQueue
    from imago_log.views.metaq_segments import MetaqSegments

SLICE_BYTES_MIN = 64 << 10
"""Shorter reads of a file are returned as bytes: sendfile would cost more than it saves."""


class WrongFilesError(Exception):
    """MetaQ's files do not hold what they should: they are to be made anew."""


def read_positions(
    queue: ConsumeQueue,
    records: LogRecords,
    segments: MetaqSegments | None,
    visible: tuple[int, int, int, int],
    position: int,
    bytes_max: int,
) -> MetaqRead:
    """Read from one dual queue; `visible` is (min offset, end offset, min and end position)."""
    low, high, position_min, position_max = visible
    if position < position_min:
        return MetaqRead(MetaqStatus.TOO_SMALL, position_min, position_min, position_max)
    if position >= position_max:
        status = MetaqStatus.AT_END if position == position_max else MetaqStatus.BEYOND_END
        return MetaqRead(status, position_max, position_min, position_max)
    offset = queue.lookup.offset_of_position(position, low)
    if offset >= high:  # inside the last message
        return MetaqRead(MetaqStatus.AT_END, position_max, position_min, position_max)
    start, count, size = whole_messages(queue, offset, high, bytes_max)
    if count:
        queue.lookup.remember(start + size, offset + count)
    # A part of a message comes from the log: its checksum is over the whole.
    found = segments.slice(start, size) if segments is not None and count else None
    if segments is not None and found is not None:
        # A shorter slice is whole messages too: files end at message borders.
        if not segments.verify(start, found.size):
            raise WrongFilesError
        data = found if found.size >= SLICE_BYTES_MIN else found.read()
        return MetaqRead(MetaqStatus.FOUND, start, position_min, position_max, data)
    units = queue.units(offset, count or 1)
    block = _block(queue, records, units, offset)
    if len(block) < size or (count and len(block) > size):
        raise records.unreadable(int.from_bytes(units[:8], "big"))
    data = block if count else block[:size]
    behind = not records.are_recent(units)
    return MetaqRead(MetaqStatus.FOUND, start, position_min, position_max, data, behind)


def _block(queue: ConsumeQueue, records: LogRecords, units: bytes, offset: int) -> bytes:
    """Return messages in MetaQ's form. UnreadableError: they are not whole, or not of there."""
    found = records.each(queue.tail, units, offset)
    if view_record(found[0]).metaq_position != queue.position(offset)[0]:
        raise records.unreadable(int.from_bytes(units[:8], "big"))
    return metaq_block(found)
