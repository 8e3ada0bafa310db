"""Messages whose records lie in a damaged part of the log: finding them in a queue's units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.unit_files import LOST_SIZE_FIELD
from imago_wire.layout import UNIT

if TYPE_CHECKING:
    from imago_log.consume_queue import ConsumeQueue
    from imago_log.damage import Damage

UNITS_AT_ONCE = 2048


def is_lost(damage: Damage, place: int, size: int) -> bool:
    """Whether the record that a unit points to cannot be read."""
    return size == LOST_SIZE_FIELD or damage.at(place) is not None


def first_lost(queue: ConsumeQueue, damage: Damage, start: int, end: int) -> int:
    """Return the first lost message of some queue offsets, `end` when there is none."""
    return _first(queue, damage, start, end, lost=True) if damage.ranges else end


def first_kept(queue: ConsumeQueue, damage: Damage, start: int, end: int) -> int:
    """Return the first message of some queue offsets that is not lost, `end` when all are."""
    return _first(queue, damage, start, end, lost=False)


def _first(queue: ConsumeQueue, damage: Damage, start: int, end: int, *, lost: bool) -> int:
    while start < end:
        units = queue.units(start, min(end - start, UNITS_AT_ONCE))
        for place, size, _ in UNIT.iter_unpack(units):
            if is_lost(damage, place, size) is lost:
                return start
            start += 1
    return end
