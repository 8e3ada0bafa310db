"""Writing units behind the append, from memory to the files of queues.

It is spread out: each round takes a part of the queues and writes a bounded number of files, so
that ten thousand busy queues cost no more a turn than ten.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from imago_log.errors import NoSpaceError
from imago_log.views.units.consume_queue import owes

if TYPE_CHECKING:
    from imago_log.views.queues.queues import Queues
    from imago_log.views.units.consume_queue import ConsumeQueue

LOOKED_AT_MAX = 1024
"""Queues that one round takes."""
WRITES_MAX = 32
"""Queues that one round writes, while memory is not short."""
WRITES_A_MS = (0.05, 0.25)
"""Queues written in a millisecond: as many as QUEUES_A_MS allow, but within these bounds."""
QUEUES_A_MS = 1 / 2000
"""Of some hundred queues each is written every 2 s: rarer and larger writes cost less, and what
is not written yet is read from memory."""
MADE_MAX = 8
"""Queues that get their first files in one round: making folders and files is slow."""


class QueueWriter:
    """Writes the units of all queues behind."""

    def __init__(self, queues: Queues, pending_bytes_max: int) -> None:
        self._queues, self._first_files = queues, queues.first_files
        self._pending_bytes_max = pending_bytes_max
        self._cursor = 0
        self._allowance = float(WRITES_MAX)
        self._hurried = False

    def write_some(self, elapsed_ms: int) -> None:
        """Write units to files, a bounded number of queues; so long after the last round."""
        self._write_made()
        order = self._queues.order
        left, cursor = self._writes_now(elapsed_ms), self._cursor
        if not left:
            return
        fresh: list[ConsumeQueue] = []
        for _ in range(min(LOOKED_AT_MAX, len(order))):
            cursor = cursor + 1 if cursor + 1 < len(order) else 0
            queue = order[cursor]
            if not queue.tail.units:
                continue
            if not queue.exists:
                fresh.append(queue)
                if len(fresh) == MADE_MAX:
                    break
                continue
            queue.write_behind()
            self._allowance -= 1
            left -= 1
            if not left:
                break
        self._cursor = cursor
        if fresh:
            self._first_files.make(fresh)
            self._write_made()

    def _writes_now(self, elapsed_ms: int) -> int:
        """Return how many queues may be written in this round."""
        least, most = WRITES_A_MS
        pace = min(max(least, len(self._queues.order) * QUEUES_A_MS), most)
        self._allowance = min(WRITES_MAX, self._allowance + elapsed_ms * pace)
        return WRITES_MAX if self._hurried else max(0, int(self._allowance))

    def _write_made(self) -> None:
        """Write the queues whose first files the worker has made meanwhile."""
        for queue in self._first_files.made():
            known = self._queues.find(queue.tail.topic.decode(), queue.tail.queue_id)
            if known is queue and not queue.exists:
                queue.write_behind()

    def write_all(self) -> None:
        """Write all units to their files."""
        for queue in self._queues.order:
            if queue.tail.units or owes(queue):
                queue.write_behind()

    def write_now(self, topic: str) -> None:
        """Write the units of a topic's first queue, unless there is no room: it can wait then."""
        queue = self._queues.find(topic, 0)
        if queue is not None and queue.tail.units:
            with contextlib.suppress(NoSpaceError):
                queue.write_behind()

    def relieve(self) -> None:
        """Write everything when the units in memory exceed their limit; hurry at half of it."""
        pending = sum(
            len(queue.tail.units) + len(queue.tail.positions)
            for queue in self._queues.order
            if queue.tail.units
        )
        self._hurried = pending > self._pending_bytes_max // 2
        if pending > self._pending_bytes_max:
            self.write_all()

    def written_end(self, log_end: int) -> int:
        """Return the log offset below which every record's unit is in its file."""
        # Big-endian numbers are ordered as their bytes are, and there may be thousands.
        places = [queue.tail.units[:8] for queue in self._queues.order if queue.tail.units]
        return int.from_bytes(min(places), "big") if places else log_end

    def unsynced(self) -> list[tuple[ConsumeQueue, int, int]]:
        """Return the queues to sync: from which unit, and up to which they are synced then.

        NoSpaceError: some lack what they begin with, and there is no room for it yet.
        """
        written = [queue for queue in self._queues.order if queue.synced < queue.written]
        for queue in written:
            if owes(queue):
                queue.write_behind()
        return [(queue, *queue.plan_sync()) for queue in written]
