"""What one member holds of one queue: pulled, in work, finished, and so what may be committed."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from imago_wire.record_format.layout import SYS_COMPRESSED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_client.core.consuming.inflation import InflationBudget
    from imago_client.received import ReceivedMessage


class ProcessQueue:
    """The messages between the pull and the commit of one queue. Not thread-safe.

    `commit_offset` never passes a message that is unfinished, so a crash redelivers at worst.
    """

    def __init__(self, start_offset: int, inflation: InflationBudget | None = None) -> None:
        self._inflation = inflation
        self._inflated: dict[int, int] = {}
        self._waiting: deque[ReceivedMessage] = deque()
        # Offset -> body size, in order of offsets; ordered, so that the first is found at once.
        self._unfinished: OrderedDict[int, int] = OrderedDict()
        self._next_offset = start_offset
        self.cached_bytes = 0

    @property
    def cached_count(self) -> int:
        return len(self._unfinished)

    @property
    def waiting_count(self) -> int:
        """How many nobody has taken yet."""
        return len(self._waiting)

    @property
    def commit_offset(self) -> int:
        """The first offset not finished; everything below it is."""
        return next(iter(self._unfinished), self._next_offset)

    def add(self, messages: Iterable[ReceivedMessage], next_offset: int) -> None:
        """Take what one pull brought; `next_offset` is where the next pull goes on."""
        unfinished = self._unfinished
        for message in messages:
            size, offset = len(message.held), message.offset
            self._waiting.append(message)
            unfinished[offset] = size
            self.cached_bytes += size
            if (
                message.sys_flag & SYS_COMPRESSED
                and self._inflation is not None
                and message.inflated_bytes
            ):
                self._inflated[offset] = message.inflated_bytes
                self._inflation.take(message.inflated_bytes)
        self.advance(next_offset)

    def advance(self, next_offset: int) -> None:
        """Note that a pull found nothing for us up to `next_offset`."""
        self._next_offset = max(self._next_offset, next_offset)

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """Return the oldest waiting messages, at most `count_max`; they count as in work."""
        waiting = self._waiting
        return [waiting.popleft() for _ in range(min(count_max, len(waiting)))]

    def finish(self, messages: Iterable[ReceivedMessage]) -> None:
        """Mark messages as handled, sent back or given up."""
        for message in messages:
            self.cached_bytes -= self._unfinished.pop(message.offset, 0)
            if self._inflated and self._inflation is not None:
                self._inflation.give_back(self._inflated.pop(message.offset, 0))

    def release(self) -> None:
        """Count nothing of the consumer's inflated bytes any more: the queue is given up."""
        if self._inflation is not None:
            self._inflation.give_back(sum(self._inflated.values()))
        self._inflated.clear()
