"""Where the last process ended, by the files of queues before a start puts them in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.views.units.unit_files import BLANK_SIZE_FIELD, LOST_SIZE_FIELD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_log.views.units.consume_queue import ConsumeQueue

PLACE_MAX = 1 << 48
"""No log reaches so far: a unit that says so is noise."""


class FoundEnds:
    """Where queues ended whose files had more than counts."""

    def __init__(self) -> None:
        self.queues: dict[tuple[str, int], tuple[int, int, int]] = {}
        """By topic and number: end, end position, newest log offset."""
        self.log_end = 0
        """Where the newest record ended that they name."""

    def note(self, queue: ConsumeQueue) -> None:
        """Remember where a queue ends that has units."""
        tail = queue.tail
        ends = (queue.end, tail.next_position, queue.lookup.last_place)
        self.queues[tail.topic.decode(), tail.queue_id] = ends
        place, size, _ = queue.unit(queue.end - 1)
        if size not in (BLANK_SIZE_FIELD, LOST_SIZE_FIELD) and 0 <= place < PLACE_MAX:
            self.log_end = max(self.log_end, place + size)

    def note_all(self, queues: Iterable[ConsumeQueue]) -> None:
        """Remember where those of some queues end that have units."""
        for queue in queues:
            if queue.end > queue.first:
                self.note(queue)
