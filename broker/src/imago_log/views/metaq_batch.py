"""How many whole messages of a queue fit into so many bytes of MetaQ's form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.views.consume_queue import POSITION_SIZE
from imago_wire.layout import METAQ_HEADER_SIZE, POSITION_UNIT

if TYPE_CHECKING:
    from imago_log.views.consume_queue import ConsumeQueue

MESSAGES_MAX = 2048
"""Messages that one read returns, however small they are."""


def whole_messages(
    queue: ConsumeQueue, offset: int, high: int, bytes_max: int
) -> tuple[int, int, int]:
    """Return the position of a message, and how many from it on are whole in `bytes_max` bytes.

    Third: their size; with no whole one a part of the first, at least its header.
    """
    count = min(high - offset, MESSAGES_MAX, max(1, bytes_max // METAQ_HEADER_SIZE))
    units = queue.position_units(offset, count)
    start, first_size = POSITION_UNIT.unpack_from(units)
    if first_size > bytes_max:
        return start, 0, max(bytes_max, METAQ_HEADER_SIZE)
    fits, size = _fitting(units, count, start + bytes_max)
    return start, fits, size - start


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
            # A guess that was right leaves the next one to look at, whatever their sizes.
            fits, end, halving = middle, at + size, False
        else:
            beyond, beyond_end, halving = middle, at + size, not halving
    return fits, end
