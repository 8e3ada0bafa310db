"""Comparing units with what the log says they are."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_log.views.units.consume_queue import POSITION_SIZE, UNIT_SIZE, ConsumeQueue
from imago_log.views.units.lost import is_possible
from imago_wire.record_format.layout import UNIT

if TYPE_CHECKING:
    from imago_log.views.queues.queues import Queues
    from imago_log.views.queues.refilling import Refiller
    from imago_log.views.view import LogBlock, QueueKey
    from imago_wire.hot import QueueTail

logger = logging.getLogger(__name__)

PutRight = Callable[[ConsumeQueue, int, int, int], bool]
"""Reads a record again, by queue offset, place and size, and writes its unit if that is wrong."""


@dataclass(slots=True)
class QueuesComparison:
    """All that it needs is in the blocks."""

    queues: Queues
    refiller: Refiller
    put_right: PutRight

    def read(self, _block: LogBlock, _data: bytes) -> None:
        """Nothing more than what the block has."""

    def mend(self, blocks: list[LogBlock]) -> int:
        """Put wrong units right and fill queues that are short; return how much was wrong."""
        wrong = 0
        for block in blocks:
            for key, (first, tail) in block.units.items():
                queue = self._queue(key, int.from_bytes(tail.units[:8], "big"))
                if queue is not None:
                    wrong += self._mend(queue, first, tail)
        return wrong

    def _queue(self, key: QueueKey, place: int) -> ConsumeQueue | None:
        try:
            topic = self.refiller.metadata.topic(key[0].decode("utf-8", "replace"))
        except KeyError:
            return None
        return self.queues.get(topic, key[1]) if place >= topic.birth else None

    def _mend(self, queue: ConsumeQueue, first: int, tail: QueueTail) -> int:
        place = int.from_bytes(tail.units[-UNIT_SIZE:][:8], "big")
        if not is_possible(tail.next_offset - 1, place):
            return 0  # hidden in a message behind damage: no start takes it either
        if queue.end < tail.next_offset:
            self.refiller.refill(queue, self.refiller.metadata.topic(tail.topic.decode()))
        if queue.end < tail.next_offset:
            self.queues.folders.forget_views()
            logger.error(
                "queue.short queue=%s/%d end=%d, the log has %d: the next start builds views again",
                tail.topic, tail.queue_id, queue.end, tail.next_offset,
            )  # fmt: skip
            return 1
        start, end = max(first, queue.first), min(tail.next_offset, queue.written)
        if start >= end:
            return 0
        found = queue.units(start, end - start)
        wrong = set(_differences(found, tail.units, (start - first) * UNIT_SIZE, UNIT_SIZE))
        if queue.tail.dual and tail.dual:
            found = queue.position_units(start, end - start)
            skip = (start - first) * POSITION_SIZE
            wrong |= set(_differences(found, tail.positions, skip, POSITION_SIZE))
        # Read again: the log may have been cut since the worker read it.
        units = list(UNIT.iter_unpack(tail.units))[start - first :]
        return sum(self.put_right(queue, start + at, *units[at][:2]) for at in sorted(wrong))


def _differences(found: bytes, expected: bytearray, skip: int, unit: int) -> list[int]:
    """Return which units differ."""
    wanted = bytes(memoryview(expected)[skip : skip + len(found)])
    if found == wanted:
        return []
    return [
        at // unit
        for at in range(0, len(found), unit)
        if found[at : at + unit] != wanted[at : at + unit]
    ]
