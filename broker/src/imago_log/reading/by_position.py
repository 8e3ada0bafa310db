"""Reads by MetaQ position: slices of materialised files, or records transcoded on the way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.results import MetaqRead, MetaqStatus
from imago_log.views.metaq_batch import first_messages

if TYPE_CHECKING:
    from imago_log.commitlog.records import LogRecords
    from imago_log.results import FileSlice
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
    start, count, end = first_messages(queue, offset, high, bytes_max)
    size = end - start
    if count:
        queue.lookup.remember(end, offset + count)
    if size < bytes_max and offset + count < high:  # the next message is cut
        at, length = queue.position(offset + count)
        count, end = count + 1, at + length
        size = min(bytes_max, end - start)
    kept = None if segments is None else _kept(segments, start, end, size)
    if kept is not None:
        return MetaqRead(MetaqStatus.FOUND, start, position_min, position_max, kept)
    units = queue.units(offset, count)
    data = records.metaq(queue.tail, units, offset, (start, end), size)
    behind = not records.are_recent(units)
    return MetaqRead(MetaqStatus.FOUND, start, position_min, position_max, data, behind)


def _kept(segments: MetaqSegments, start: int, end: int, size: int) -> FileSlice | bytes | None:
    """Return what a file of MetaQ's has of the first `size` bytes of messages, None: nothing."""
    found = segments.slice(start, end - start)
    if found is None:
        return None
    # A shorter slice is whole messages too: files end at message borders.
    if not segments.verify(start, found.size):
        raise WrongFilesError
    if found.size > size:
        found = found._replace(size=size)
    return found if found.size >= SLICE_BYTES_MIN else found.read()
