"""What one member holds of one queue: pulled, in work, finished, and so what may be committed."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from imago_wire.record_format.layout import SYS_COMPRESSED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from imago_client.core.consuming.inflation import InflationBudget
    from imago_client.received import ReceivedMessage


_FINISHED_MAX: Final = 1024
"""Offsets that are kept though they are finished, while nobody asks for a commit."""


class ProcessQueue:
    """The messages between the pull and the commit of one queue. Not thread-safe.

    `commit_offset` never passes a message that is unfinished, so a crash redelivers at worst.
    """

    def __init__(self, start_offset: int, inflation: InflationBudget | None = None) -> None:
        self._inflation = inflation
        self._inflated: dict[int, int] = {}
        self._waiting: deque[ReceivedMessage] = deque()
        self._unfinished: dict[int, int] = {}
        """Body sizes by offset."""
        self._order: deque[int] = deque()
        """Those offsets as they came, and finished ones: the first that is not bounds a commit."""
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
        order, unfinished = self._order, self._unfinished
        while order and order[0] not in unfinished:
            order.popleft()
        return order[0] if order else self._next_offset

    def add(self, messages: Collection[ReceivedMessage], next_offset: int) -> None:
        """Take what one pull brought; `next_offset` is where the next pull goes on."""
        offsets = [message.offset for message in messages]
        sizes = [len(message.held) for message in messages]
        self._unfinished.update(zip(offsets, sizes, strict=True))
        self._order.extend(offsets)
        self._waiting.extend(messages)
        self.cached_bytes += sum(sizes)
        if self._inflation is not None:
            for message in messages:
                if message.sys_flag & SYS_COMPRESSED and (size := message.inflated_bytes):
                    self._inflated[message.offset] = size
                    self._inflation.take(size)
        self.advance(next_offset)

    def advance(self, next_offset: int) -> None:
        """Note that a pull found nothing for us up to `next_offset`."""
        self._next_offset = max(self._next_offset, next_offset)

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """Return the oldest waiting messages, at most `count_max`; they count as in work."""
        waiting = self._waiting
        if count_max == 1:  # for every message, where handlers get one
            return [waiting.popleft()] if waiting else []
        return [waiting.popleft() for _ in range(min(count_max, len(waiting)))]

    def finish(self, messages: Iterable[ReceivedMessage]) -> None:
        """Mark messages as handled, sent back or given up."""
        unfinished, inflation = self._unfinished, self._inflation
        for message in messages:
            offset = message.offset
            self.cached_bytes -= unfinished.pop(offset, 0)
            if self._inflated and inflation is not None:
                inflation.give_back(self._inflated.pop(offset, 0))
        if len(self._order) > 2 * len(unfinished) + _FINISHED_MAX:
            self._order = deque(offset for offset in self._order if offset in unfinished)

    def release(self) -> None:
        """Count nothing of the consumer's inflated bytes any more: the queue is given up."""
        if self._inflation is not None:
            self._inflation.give_back(sum(self._inflated.values()))
        self._inflated.clear()
