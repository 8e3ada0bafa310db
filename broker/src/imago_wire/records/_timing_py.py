"""Timers that are near, taken in and given out many at once: the plain reference.

`imago_wire.record_format.timing` says how a timer is a number.
"""

from __future__ import annotations

import heapq
import sys
from typing import TYPE_CHECKING, Final

from imago_wire.record_format.layout import UNIT
from imago_wire.record_format.timing import OFFSET_BITS, QUEUE_BITS, SECOND_MS, TIMER_SIZE

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1
_QUEUE_MASK: Final = (1 << QUEUE_BITS) - 1


def push_timer(heap: bytearray, timer: int) -> None:
    """Add a timer to a heap of them."""
    heap += timer.to_bytes(TIMER_SIZE, sys.byteorder)
    at = len(heap) // TIMER_SIZE - 1
    with memoryview(heap).cast("Q") as timers:
        while at and timers[above := (at - 1) // 2] > timer:
            timers[at] = timers[above]
            at = above
        timers[at] = timer


def pop_timers(heap: bytearray, last: int, count_max: int) -> bytes:
    """Take the first timers off a heap, in their order: up to `last`, and up to so many."""
    taken = bytearray()
    count = len(heap) // TIMER_SIZE
    with memoryview(heap).cast("Q") as timers:
        while count and len(taken) < count_max * TIMER_SIZE and timers[0] <= last:
            taken += timers[0].to_bytes(TIMER_SIZE, sys.byteorder)
            count -= 1
            moved, at = timers[count], 0
            while (below := 2 * at + 1) < count:
                if below + 1 < count and timers[below + 1] < timers[below]:
                    below += 1
                if timers[below] >= moved:
                    break
                timers[at] = timers[below]
                at = below
            timers[at] = moved
    del heap[count * TIMER_SIZE :]
    return bytes(taken)


def spread_timers(
    units: bytes,
    at: int,
    queue_id: int,
    offset: int,
    slots: MutableMapping[int, bytearray],
    seconds: list[int],
    front_second: int,
    front: bytearray,
) -> int:
    """Add the timers of a queue's units from number `at` on by seconds; return how many.

    `offset` is the queue offset of the first. Those of `front_second` come to the heap `front`, of
    other seconds into `slots`; a second that is new there comes to the heap `seconds`. Ends at what
    is no timer: a recall, or a unit whose record is lost.
    """
    count = 0
    for _, size, due_ms in UNIT.iter_unpack(units[at * UNIT.size :]):
        if due_ms < 0 or size <= 0:
            break
        second, rest = divmod(due_ms, SECOND_MS)
        timer = (rest << QUEUE_BITS | queue_id) << OFFSET_BITS | offset + count
        count += 1
        if second == front_second:
            push_timer(front, timer)
            continue
        slot = slots.get(second)
        if slot is None:
            slot = slots[second] = bytearray()
            heapq.heappush(seconds, second)
        slot += timer.to_bytes(TIMER_SIZE, sys.byteorder)
    return count


def timer_runs(timers: bytes) -> list[tuple[int, int, int, int]]:
    """Return those that stand side by side in their queues, in the order of the timers.

    Queue, offset of the first, how many, and the sum of the milliseconds in their second.
    """
    runs: list[tuple[int, int, int, int]] = []
    for timer in memoryview(timers).cast("Q"):
        queue_id, offset = timer >> OFFSET_BITS & _QUEUE_MASK, timer & _OFFSET_MASK
        rest = timer >> OFFSET_BITS + QUEUE_BITS
        if runs:
            in_queue, first, count, rests = runs[-1]
            if (queue_id, offset) == (in_queue, first + count):
                runs[-1] = (in_queue, first, count + 1, rests + rest)
                continue
        runs.append((queue_id, offset, 1, rest))
    return runs
