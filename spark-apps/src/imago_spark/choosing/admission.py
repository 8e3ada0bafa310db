"""How much the next micro-batch of a stream takes, beside a limit of rows: bytes, and a minimum."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_client.message_queue import MessageQueue
    from imago_spark.offsets import Offsets


def admit_bytes(
    start: Mapping[MessageQueue, int],
    end: Mapping[MessageQueue, int],
    row_bytes: Mapping[MessageQueue, float],
    bytes_max: int,
) -> Offsets:
    """Return ends that are near enough to `start` for about `bytes_max`, by the size of rows.

    Every queue gets its part in proportion to its backlog, and the first one at least one row: so
    a row that is larger than the limit does not hold the stream up.
    """
    backlog = {queue: end[queue] - start.get(queue, 0) for queue in end}
    sizes = {queue: rows * row_bytes.get(queue, 0.0) for queue, rows in backlog.items()}
    total = sum(sizes.values())
    if total <= bytes_max:
        return dict(end)
    found = {
        queue: start.get(queue, 0) + int(rows * bytes_max / total)
        for queue, rows in backlog.items()
    }
    if all(found[queue] == start.get(queue, 0) for queue in found):
        largest = max(sorted(sizes), key=lambda queue: sizes[queue])
        found[largest] += 1
    return found


class BatchMinimum:
    """Has a micro-batch wait until it has enough rows, but not for ever."""

    def __init__(self, rows_min: int | None, delay_s: float, clock: Callable[[], float]) -> None:
        self._rows_min, self._delay_s, self._clock = rows_min, delay_s, clock
        self._since = clock()

    def waits(self, start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> bool:
        """Whether there is too little yet. What does not wait is taken to be the next batch."""
        rows = sum(offset - start.get(queue, 0) for queue, offset in end.items())
        if not rows:
            return False
        now = self._clock()
        if self._rows_min and rows < self._rows_min and now - self._since < self._delay_s:
            return True
        self._since = now
        return False
