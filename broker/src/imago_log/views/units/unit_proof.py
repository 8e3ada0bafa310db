"""Whether a queue ends where its files say: its newest unit names a record that the log has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.commitlog.log_reader import find_damage
from imago_log.views.units.unit_files import BLANK_SIZE_FIELD, LOST_SIZE_FIELD
from imago_wire.hot import queue_records, view_record

if TYPE_CHECKING:
    from imago_log.commitlog.borders import Witness
    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.commitlog.damage import Damage
    from imago_log.views.units.consume_queue import ConsumeQueue

_NOT_REAL = (BLANK_SIZE_FIELD, LOST_SIZE_FIELD)


class UnitProof:
    """Compares units with the log."""

    def __init__(self, log: CommitLog, damage: Damage, witness: Witness) -> None:
        self.log, self.damage, self.witness = log, damage, witness

    def ends_right(self, queue: ConsumeQueue, log_end: int, *, save: bool) -> bool:
        """Whether the newest unit of a queue that has one is that of its record.

        Where the record has expired, or is damaged, only the order of units can tell. Damage that
        nobody had found is noted, and saved with `save`: then the log is wrong, not the unit.
        """
        offset, log = queue.end - 1, self.log
        place, size, tag = queue.unit(offset)
        position = queue.position(offset) if queue.tail.dual else None
        if size in _NOT_REAL:
            return _stands_for_none((place, size, tag), position, log_end)
        if place < 0 or not 0 < size <= log.segment_size:
            return False
        if place < log.start or self.damage.at(place) is not None:
            return _follows(queue, offset)
        record, tail = log.read(place, size), queue.tail
        if queue_records(record, place, tail.topic, tail.queue_id, offset) == size == len(record):
            view = view_record(record)
            found = (view.metaq_position, view.metaq_size)
            return view.tag_code == tag and position in (None, found)
        lost = find_damage(log, place, log_end, self.witness)
        if lost is not None:
            self.damage.add(*lost)
            if save:
                self.damage.save_later()
        return lost is not None and _follows(queue, offset)


def _follows(queue: ConsumeQueue, offset: int) -> bool:
    """Whether the units of a message follow those of the one before it."""
    if offset == queue.first:
        return True
    if not 0 <= queue.unit(offset - 1)[0] < queue.unit(offset)[0]:
        return False
    if not queue.tail.dual:
        return True
    (before, size), (position, _) = queue.position(offset - 1), queue.position(offset)
    if size == LOST_SIZE_FIELD:
        return position >= before  # not every version noted how long the lost ones were
    return position == (before if size == BLANK_SIZE_FIELD else before + size)


def _stands_for_none(
    unit: tuple[int, int, int], position: tuple[int, int] | None, log_end: int
) -> bool:
    """Whether the units of a message without record are as they are written.

    The tag of a lost one may be the position where the last of the lost messages ended.
    """
    place, size, tag = unit
    if position is not None and (position[0] < 0 or position[1] != size):
        return False
    if size == BLANK_SIZE_FIELD:
        return place == tag == 0
    behind = tag == 0 or (position is not None and 0 <= tag - position[0] <= log_end)
    return behind and 0 <= place < log_end
