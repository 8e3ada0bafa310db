"""Messages whose records lie in a damaged part of the log: finding them in a queue's units."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_log.views.units.unit_files import BLANK_SIZE_FIELD, LOST_SIZE_FIELD, UNITS_PER_FILE
from imago_wire.record_format.layout import FIXED_SIZE_V4, UNIT

if TYPE_CHECKING:
    from imago_log.commitlog.damage import Damage
    from imago_log.views.units.consume_queue import ConsumeQueue

logger = logging.getLogger(__name__)

UNITS_AT_ONCE = 2048
GAP_UNITS_MAX = UNITS_PER_FILE
"""Queue offsets in a row that the log may lack without damage: as many as one file of a queue
holds, for versions before this one believed noise in such a file to be its end."""


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
        after = queue.lookup.last_place
    elif queue.end or birth < log_start:
        return  # the queue begins here: what it had before has expired
    lost = damage.first_in(after, place)
    room = damage.bytes_in(after, place) // FIXED_SIZE_V4
    if lost is not None and offset - queue.end <= room:  # else it is no record of that queue
        queue.lose(offset, position, max(lost.start, after))


def is_possible(offset: int, place: int) -> bool:
    """Whether a record there may have a queue offset: each one before it took some of the log."""
    return (offset - GAP_UNITS_MAX) * FIXED_SIZE_V4 <= place


def lose_gap(queue: ConsumeQueue, damage: Damage, birth: int, record: tuple[int, int, int]) -> bool:
    """Let lost units stand for queue offsets that the whole log lacks; false: it is no such gap.

    `record` as for `lose_before`. A gap with damage in it is that of lost records, or none.
    """
    offset, place, position = record
    after = queue.lookup.last_place if queue.end > queue.first else birth
    if not 0 < offset - queue.end <= GAP_UNITS_MAX or damage.first_in(after, place) is not None:
        return False
    tail = queue.tail
    logger.error("queue.gap queue=%s/%d from=%d to=%d log_offset=%d: no record has these offsets",
                 tail.topic, tail.queue_id, queue.end, offset, place)  # fmt: skip
    queue.lose(offset, position, after)
    damage.note_gap()
    return True


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
    return _first(queue, damage, start, end, lost=True) if damage.may_lose else end


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
