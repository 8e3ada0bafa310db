"""What one member holds of one queue: pulled, in work, finished, and so what may be committed."""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from imago_client.core.inflation import InflationBudget
    from imago_client.received import ReceivedMessage


class ProcessQueue:
    """The messages between the pull and the commit of one queue. Not thread-safe.

    `commit_offset` never passes a message that is unfinished, so a crash redelivers at worst.
    """

    def __init__(self, start_offset: int, inflation: InflationBudget | None = None) -> None:
        self._inflation = inflation
        self._inflated: dict[int, int] = {}
        self._waiting: list[ReceivedMessage] = []
        # Offset -> body size, in order of offsets; ordered, so that the first is found at once.
        self._unfinished: OrderedDict[int, int] = OrderedDict()
        self._next_offset = start_offset
        self.cached_bytes = 0

    @property
    def cached_count(self) -> int:
        return len(self._unfinished)

    @property
    def commit_offset(self) -> int:
        """The first offset not finished; everything below it is."""
        return next(iter(self._unfinished), self._next_offset)

    def add(self, messages: Iterable[ReceivedMessage], next_offset: int) -> None:
        """Take what one pull brought; `next_offset` is where the next pull goes on."""
        for message in messages:
            self._waiting.append(message)
            self._unfinished[message.offset] = message.size
            self.cached_bytes += message.size
            if self._inflation is not None and message.inflated_bytes:
                self._inflated[message.offset] = message.inflated_bytes
                self._inflation.take(message.inflated_bytes)
        self.advance(next_offset)

    def advance(self, next_offset: int) -> None:
        """Note that a pull found nothing for us up to `next_offset`."""
        self._next_offset = max(self._next_offset, next_offset)

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """Return the oldest waiting messages, at most `count_max`; they count as in work."""
        taken, self._waiting = self._waiting[:count_max], self._waiting[count_max:]
        return taken

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Make taken messages wait again, in their old place."""
        for message in messages:
            insort(self._waiting, message, key=lambda waiting: waiting.offset)

    def finish(self, messages: Iterable[ReceivedMessage]) -> None:
        """Mark messages as handled, sent back or given up."""
        for message in messages:
            self.cached_bytes -= self._unfinished.pop(message.offset, 0)
            if self._inflation is not None:
                self._inflation.give_back(self._inflated.pop(message.offset, 0))

    def release(self) -> None:
        """Count nothing of the consumer's inflated bytes any more: the queue is given up."""
        if self._inflation is not None:
            self._inflation.give_back(sum(self._inflated.values()))
        self._inflated.clear()
