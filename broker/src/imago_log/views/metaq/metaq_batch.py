"""How many messages of a queue make up so many bytes of MetaQ's form."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_log.views.units.consume_queue import POSITION_SIZE
from imago_wire.record_format.layout import METAQ_HEADER_SIZE, POSITION_UNIT

if TYPE_CHECKING:
    from imago_log.views.units.consume_queue import ConsumeQueue

UNITS_AT_ONCE = 2048


class MessageSpan(NamedTuple):
    """Messages of a queue that follow each other, and where they stand in MetaQ's form."""

    start: int
    """Position of the first one."""
    messages: int
    end: int
    """Position behind the last one."""


def first_messages(queue: ConsumeQueue, offset: int, high: int, bytes_max: int) -> MessageSpan:
    """Return the messages from an offset on that end within `bytes_max` bytes; there may be none.

    At most as many as have that room with empty bodies.
    """
    high = min(high, offset + bytes_max // METAQ_HEADER_SIZE)
    if offset >= high:
        start = queue.position(offset)[0]
        return MessageSpan(start, 0, start)
    start = end = -1
    count = 0
    while offset < high:
        asked = min(high - offset, UNITS_AT_ONCE)
        units = queue.position_units(offset, asked)
        at, size = POSITION_UNIT.unpack_from(units)
        if not count:
            start = end = at
        if at + size > start + bytes_max:
            break
        fits, end = _fitting(units, asked, start + bytes_max)
        offset, count = offset + fits, count + fits
        if fits < asked:
            break
    return MessageSpan(start, count, end)


def _fitting(units: bytes, count: int, limit: int) -> tuple[int, int]:
    """Return how many of the messages end at a position or before it, and where the last one ends.

    The first one does. Where it looks next follows from the mean size: most are of about one size.
    """
    at, size = POSITION_UNIT.unpack_from(units, (count - 1) * POSITION_SIZE)
    beyond, beyond_end = count, at + size
    if beyond_end <= limit:
        return count, beyond_end
    at, size = POSITION_UNIT.unpack_from(units)
    fits, end = 1, at + size
    halving = False
    while beyond - fits > 1:
        step = (beyond - fits) * (limit - end) // (beyond_end - end)
        middle = (fits + beyond) // 2 if halving else min(max(fits + step, fits + 1), beyond - 1)
        at, size = POSITION_UNIT.unpack_from(units, (middle - 1) * POSITION_SIZE)
        if at + size <= limit:
            # A guess that was right leaves the next one to read, whatever their sizes.
            fits, end, halving = middle, at + size, False
        else:
            beyond, beyond_end, halving = middle, at + size, not halving
    return fits, end
