"""Bookkeeping of what waits: answers for a log offset, long polls for a queue to grow.

Both are pure: time is an argument, waking is a return value.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Generic, TypeVar

from imago_broker.core.acknowledgement import Acknowledgement

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class _Pending(Generic[T]):
    end_offset: int
    deadline_ms: int
    size: int
    item: T


class AcknowledgementQueue(Generic[T]):
    """Puts that are appended and wait until their level's progress passes their end.

    One first-in, first-out line per level: offsets are added in the order of the log, so what is
    released or expired is always the head. An item leaves exactly once.
    """

    def __init__(self) -> None:
        self._lines: dict[Acknowledgement, deque[_Pending[T]]] = {
            level: deque() for level in Acknowledgement
        }
        self.bytes_waiting = 0

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def add(
        self, level: Acknowledgement, *, end_offset: int, deadline_ms: int, size: int, item: T
    ) -> None:
        """Let an item of `size` bytes wait until progress reaches `end_offset`."""
        line = self._lines[level]
        if line:
            assert end_offset >= line[-1].end_offset, "the service adds in the order of the log"
            # A shortened time-out must not let a later item expire behind an earlier one.
            deadline_ms = max(deadline_ms, line[-1].deadline_ms)
        line.append(_Pending(end_offset, deadline_ms, size, item))
        self.bytes_waiting += size

    def advance(self, level: Acknowledgement, progress: int) -> list[T]:
        """Return, oldest first, the items of the level that end at or below `progress`."""
        line = self._lines[level]
        released: list[T] = []
        while line and line[0].end_offset <= progress:
            released.append(self._pop(line))
        return released

    def expire(self, now_ms: int) -> list[tuple[Acknowledgement, T]]:
        """Return the items whose deadline has come, with their level."""
        expired: list[tuple[Acknowledgement, T]] = []
        for level, line in self._lines.items():
            while line and line[0].deadline_ms <= now_ms:
                expired.append((level, self._pop(line)))
        return expired

    def drain(self) -> list[tuple[Acknowledgement, T]]:
        """Return everything that waits: the broker is stopping."""
        drained: list[tuple[Acknowledgement, T]] = []
        for level, line in self._lines.items():
            while line:
                drained.append((level, self._pop(line)))
        return drained

    @property
    def next_deadline_ms(self) -> int | None:
        """When `expire` next has something to return, or None."""
        heads = [line[0].deadline_ms for line in self._lines.values() if line]
        return min(heads, default=None)

    def _pop(self, line: deque[_Pending[T]]) -> T:
        pending = line.popleft()
        self.bytes_waiting -= pending.size
        return pending.item


class Waiter(Generic[K, T]):
    """One long poll: what it waits for, until when, and whose it is."""

    __slots__ = ("active", "deadline_ms", "item", "key")

    def __init__(self, key: K, deadline_ms: int, item: T) -> None:
        self.key = key
        self.deadline_ms = deadline_ms
        self.item = item
        self.active = True


class LongPolls(Generic[K, T]):
    """Long polls by key, for example (topic, queue). At most `waiters_max` at one moment."""

    def __init__(self, waiters_max: int) -> None:
        self._waiters_max = waiters_max
        self._by_key: dict[K, list[Waiter[K, T]]] = {}
        self._deadlines: list[tuple[int, int, Waiter[K, T]]] = []
        self._sequence = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: K, deadline_ms: int, item: T) -> Waiter[K, T] | None:
        """Let an item wait; None, and nothing kept, when too many wait already."""
        if self._count >= self._waiters_max:
            return None
        waiter = Waiter(key, deadline_ms, item)
        self._by_key.setdefault(key, []).append(waiter)
        self._sequence += 1
        heappush(self._deadlines, (deadline_ms, self._sequence, waiter))
        self._count += 1
        return waiter

    def remove(self, waiter: Waiter[K, T]) -> None:
        """Forget a waiter, for example because its connection is gone. Safe to repeat."""
        if not waiter.active:
            return
        self._release(waiter)
        line = self._by_key[waiter.key]
        line.remove(waiter)
        if not line:
            del self._by_key[waiter.key]
        self._drop_dead_deadlines()

    def wake(self, keys: Iterable[K]) -> list[Waiter[K, T]]:
        """Take out and return, in the order they came, the waiters of the keys."""
        woken: list[Waiter[K, T]] = []
        if not self._by_key:
            return woken
        for key in keys:
            for waiter in self._by_key.pop(key, ()):
                self._release(waiter)
                woken.append(waiter)
        self._drop_dead_deadlines()
        return woken

    def expire(self, now_ms: int) -> list[Waiter[K, T]]:
        """Take out and return, earliest first, the waiters whose deadline has come."""
        expired: list[Waiter[K, T]] = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            waiter = heappop(self._deadlines)[2]
            if waiter.active:
                self.remove(waiter)
                expired.append(waiter)
        return expired

    @property
    def next_deadline_ms(self) -> int | None:
        """When `expire` next has something to return, or None."""
        return self._deadlines[0][0] if self._deadlines else None

    def _release(self, waiter: Waiter[K, T]) -> None:
        waiter.active = False
        self._count -= 1

    def _drop_dead_deadlines(self) -> None:
        # Dead entries inside the heap are dropped when they surface, or all at once when they
        # outnumber the living, so that fast polls with long deadlines do not pile up.
        while self._deadlines and not self._deadlines[0][2].active:
            heappop(self._deadlines)
        if len(self._deadlines) > 64 + 2 * self._count:
            self._deadlines = sorted(entry for entry in self._deadlines if entry[2].active)
