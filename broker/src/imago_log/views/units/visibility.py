"""What readers may see of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.commitlog.watermark import HighWatermark
    from imago_log.views.units.consume_queue import ConsumeQueue


class Visibility:
    """Bounds of queues, by the log's start and the high watermark."""

    def __init__(self, log: CommitLog, watermark: HighWatermark) -> None:
        self._log, self._watermark = log, watermark

    def end(self, queue: ConsumeQueue) -> int:
        """Return the offset behind a queue's last message below the high watermark."""
        watermark = self._watermark.value
        return queue.lookup.end_below(watermark) if watermark < self._log.end else queue.end

    def bounds(self, queue: ConsumeQueue) -> tuple[int, int]:
        """Return a queue's smallest stored and its visible end queue offset."""
        low = queue.lookup.min_offset(self._log.start)
        watermark = self._watermark.value
        if watermark < self._log.end:
            return low, max(low, queue.lookup.end_below(watermark))
        return low, queue.tail.next_offset
