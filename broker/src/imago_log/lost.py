"""Messages whose records lie in a damaged part of the log: finding them in a queue's units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.unit_files import BLANK_SIZE_FIELD, LOST_SIZE_FIELD
from imago_wire.layout import UNIT

if TYPE_CHECKING:
    from imago_log.consume_queue import ConsumeQueue
    from imago_log.damage import Damage

UNITS_AT_ONCE = 2048


def lose_before(
    queue: ConsumeQueue,
    damage: Damage,
    birth: int,
    log_start: int,
    record: tuple[int, int, int],
) -> None:
    """Where records before this one are lost in damage, let lost units stand for them.

    `record`: its queue offset, log offset and MetaQ position; `birth` is that of its topic.
    """
    offset, place, position = record
    if offset <= queue.end or not damage.ranges:
        return
    after = birth
    if queue.end > queue.first:
        after = queue.last_place
    elif queue.end or birth < log_start:
        return  # the queue begins here: what it had before has expired
    lost = damage.first_in(after, place)
    if lost is not None:
        queue.lose(offset, position, max(lost.start, after))


def not_real_until(queue: ConsumeQueue, start: int, end: int) -> int:
    """Return the first message from `start` on that is neither lost nor gone; `end`: none is."""
    while start < end:
        units = queue.units(start, min(end - start, UNITS_AT_ONCE))
        for _, size, _ in UNIT.iter_unpack(units):
            if size not in (LOST_SIZE_FIELD, BLANK_SIZE_FIELD):
                return start
            start += 1
    return end


def lost_from(queue: ConsumeQueue, end: int) -> int:
    """Return from where on all messages of a queue up to an offset are lost."""
    while end > queue.first:
        start = max(queue.first, end - UNITS_AT_ONCE)
        sizes = [size for _, size, _ in UNIT.iter_unpack(queue.units(start, end - start))]
        while sizes and sizes[-1] == LOST_SIZE_FIELD:
            sizes.pop()
        end = start + len(sizes)
        if sizes:
            break
    return end


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
