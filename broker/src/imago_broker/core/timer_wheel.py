"""Which of the timers that are near is due next: a wheel of seconds over plain numbers.

A timer is a message of a queue of the timer topic; the wheel knows when it is due and where it
stands, eight bytes of memory each until its second comes. Pure: all times are arguments.
"""

from __future__ import annotations

import heapq
from array import array
from typing import Final, NamedTuple

SLOT_MS: Final = 1000
_OFFSET_BITS: Final = 43
_QUEUE_BITS: Final = 11
QUEUES_MAX: Final = 1 << _QUEUE_BITS
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1
_QUEUE_MASK: Final = QUEUES_MAX - 1


class Timer(NamedTuple):
    """One message that waits, by when it is due and where it is parked."""

    due_ms: int
    queue_id: int
    offset: int


class TimerWheel:
    """Timers by the second in which they are due; within it in the order of due time and place."""

    def __init__(self) -> None:
        self._slots: dict[int, array[int]] = {}
        self._seconds: list[int] = []
        """A heap of the slots' numbers."""
        self._front_second = -1
        self._front: list[int] = []
        """A heap: the slot that is being emptied."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, timer: Timer) -> None:
        """Have one more timer wait."""
        second, rest = divmod(timer.due_ms, SLOT_MS)
        packed = (rest << _QUEUE_BITS | timer.queue_id) << _OFFSET_BITS | timer.offset
        self._count += 1
        if second == self._front_second:
            heapq.heappush(self._front, packed)
            return
        slot = self._slots.get(second)
        if slot is None:
            slot = self._slots[second] = array("Q")
            heapq.heappush(self._seconds, second)
        slot.append(packed)

    @property
    def next_ms(self) -> int | None:
        """When the first timer is due; None: there is none."""
        self._turn()
        if not self._front:
            return None
        return self._front_second * SLOT_MS + (self._front[0] >> _QUEUE_BITS + _OFFSET_BITS)

    def take_due(self, now_ms: int, count_max: int) -> list[Timer]:
        """Return the first timers that are due, and forget them."""
        taken: list[Timer] = []
        while len(taken) < count_max:
            self._turn()
            front, begins_ms = self._front, self._front_second * SLOT_MS
            beyond = (now_ms - begins_ms + 1) << _QUEUE_BITS + _OFFSET_BITS
            if not front or front[0] >= beyond:
                break
            while front and front[0] < beyond and len(taken) < count_max:
                packed = heapq.heappop(front)
                due_ms = begins_ms + (packed >> _QUEUE_BITS + _OFFSET_BITS)
                queue_id = packed >> _OFFSET_BITS & _QUEUE_MASK
                taken.append(Timer(due_ms, queue_id, packed & _OFFSET_MASK))
        self._count -= len(taken)
        return taken

    def _turn(self) -> None:
        """Have the earliest second in front; what is left of a later one goes back."""
        if not self._seconds or (self._front and self._front_second <= self._seconds[0]):
            return
        if self._front:
            self._slots[self._front_second] = array("Q", self._front)
            heapq.heappush(self._seconds, self._front_second)
        self._front_second = heapq.heappop(self._seconds)
        self._front = list(self._slots.pop(self._front_second))
        heapq.heapify(self._front)
