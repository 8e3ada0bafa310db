"""Which of the timers that are near is due next: a wheel of seconds over plain numbers.

A timer is a message of a queue of the timer topic; the wheel knows when it is due and where it
stands, eight bytes of memory each, and takes in and gives out many at once. Pure: all times are
arguments.
"""

from __future__ import annotations

import heapq
from array import array
from sys import byteorder
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_wire.hot import pop_timers, push_timer, spread_timers, timer_runs
from imago_wire.record_format.timing import OFFSET_BITS, QUEUE_BITS, SECOND_MS, TIMER_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

_TIME_AT: Final = QUEUE_BITS + OFFSET_BITS
_LAST: Final = (1 << 64) - 1
QUEUES_MAX: Final = 1 << QUEUE_BITS
_OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1
_QUEUE_MASK: Final = QUEUES_MAX - 1


class Timer(NamedTuple):
    """One message that waits, by when it is due and where it is parked."""

    due_ms: int
    queue_id: int
    offset: int


class TimerRun(NamedTuple):
    """Timers of one second, in their order, whose messages stand side by side in a queue."""

    second: int
    queue_id: int
    first: int
    """Offset of the first one."""
    length: int
    rests: int
    """The sum of the milliseconds of the second after which they are due."""
    packed: bytes
    """All of them, eight bytes each."""

    @classmethod
    def of(cls, timer: Timer) -> TimerRun:
        """Return one timer as a run."""
        second, rest = divmod(timer.due_ms, SECOND_MS)
        packed = _packed(rest, timer)
        whole = packed.to_bytes(TIMER_SIZE, byteorder)
        return cls(second, timer.queue_id, timer.offset, 1, rest, whole)

    def head(self, count: int) -> TimerRun:
        """Return the run of the first ones."""
        if count == self.length:
            return self
        packed = self.packed[: count * TIMER_SIZE]
        rests = sum([timer >> _TIME_AT for timer in memoryview(packed).cast("Q")])
        return self._replace(length=count, rests=rests, packed=packed)

    def timers(self) -> Iterator[Timer]:
        """Yield them one by one."""
        begins_ms = self.second * SECOND_MS
        for timer in memoryview(self.packed).cast("Q"):
            queue_id, offset = timer >> OFFSET_BITS & _QUEUE_MASK, timer & _OFFSET_MASK
            yield Timer(begins_ms + (timer >> _TIME_AT), queue_id, offset)

    def late_ms(self, now_ms: int) -> tuple[int, int]:
        """Return by how much they are late, all together and the first one."""
        passed_ms = now_ms - self.second * SECOND_MS
        first_rest = memoryview(self.packed).cast("Q")[0] >> _TIME_AT
        return passed_ms * self.length - self.rests, passed_ms - first_rest


def _packed(rest: int, timer: Timer) -> int:
    return (rest << QUEUE_BITS | timer.queue_id) << OFFSET_BITS | timer.offset


class TimerWheel:
    """Timers by the second in which they are due; within it in the order of due time and place."""

    def __init__(self) -> None:
        self._slots: dict[int, bytearray] = {}
        self._seconds: list[int] = []
        """A heap of the slots' numbers."""
        self._front_second = -1
        self._front = bytearray()
        """A heap: the slot that is being emptied."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, timer: Timer) -> None:
        """Have one more timer wait."""
        second, rest = divmod(timer.due_ms, SECOND_MS)
        packed = _packed(rest, timer)
        self._count += 1
        if second == self._front_second:
            push_timer(self._front, packed)
            return
        slot = self._slots.get(second)
        if slot is None:
            slot = self._slots[second] = bytearray()
            heapq.heappush(self._seconds, second)
        slot += packed.to_bytes(TIMER_SIZE, byteorder)

    def spread(self, units: bytes, at: int, queue_id: int, offset: int) -> int:
        """Add the timers of a queue's units from number `at` on; return how many there were.

        `offset` is the queue offset of the first. Ends at what is no timer.
        """
        count = spread_timers(
            units, at, queue_id, offset, self._slots, self._seconds, self._front_second, self._front
        )
        self._count += count
        return count

    @property
    def next_ms(self) -> int | None:
        """When the first timer is due; None: there is none."""
        self._turn()
        if not self._front:
            return None
        first = memoryview(self._front).cast("Q")[0]
        return self._front_second * SECOND_MS + (first >> _TIME_AT)

    def take_due(self, now_ms: int, count_max: int) -> list[TimerRun]:
        """Return the first timers that are due, and forget them."""
        taken: list[TimerRun] = []
        while count_max > 0:
            self._turn()
            second = self._front_second
            passed_ms = now_ms - second * SECOND_MS
            if not self._front or passed_ms < 0:
                break
            last = min((passed_ms + 1 << _TIME_AT) - 1, _LAST)
            packed = pop_timers(self._front, last, count_max)
            if not packed:
                break
            count_max -= len(packed) // TIMER_SIZE
            self._count -= len(packed) // TIMER_SIZE
            at = 0
            for queue_id, first, count, rests in timer_runs(packed):
                end = at + count * TIMER_SIZE
                taken.append(TimerRun(second, queue_id, first, count, rests, packed[at:end]))
                at = end
        return taken

    def _turn(self) -> None:
        """Have the earliest second in front; what is left of a later one goes back."""
        if not self._seconds or (self._front and self._front_second <= self._seconds[0]):
            return
        if self._front:
            self._slots[self._front_second] = self._front
            heapq.heappush(self._seconds, self._front_second)
        self._front_second = heapq.heappop(self._seconds)
        # In their order they are a heap.
        self._front = bytearray(array("Q", sorted(array("Q", self._slots.pop(self._front_second)))))
