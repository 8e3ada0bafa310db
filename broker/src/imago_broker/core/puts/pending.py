"""Bookkeeping of puts that wait for their level: pure, time is an argument."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from imago_broker.core.puts.acknowledgement import Acknowledgement

T = TypeVar("T")


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

    def waits_for(self, level: Acknowledgement) -> bool:
        """Whether any item waits for this level."""
        return bool(self._lines[level])

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
