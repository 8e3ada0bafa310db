"""What one idempotent producer has sent to one queue: where its last numbers are.

Numbers that stand side by side in the queue make one run. Where many producers share a queue each
message begins a run of its own, so that beginning one costs as little as going on with one does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

RUNS_MAX = 16

Run: TypeAlias = tuple[int, int, int, int, int]
"""Epoch, first number, how many numbers, queue offset of the first, log offset of the last record.
"""
_NONE: Run = (0, 0, 0, 0, 0)


@dataclass(slots=True)
class NumberedRuns:
    """The window of runs; the fields that are numbers are those of the newest, which grows."""

    older: list[Run] = field(default_factory=list)
    dropped: Run | None = None
    """The newest run that is no longer in the window."""
    epoch: int = 0
    first: int = 0
    size: int = 0
    """0: there is no run."""
    offset: int = 0
    place: int = 0

    @classmethod
    def of(cls, runs: list[Run], dropped: Run | None) -> NumberedRuns:
        """Return these runs, the oldest first."""
        made = cls(dropped=dropped)
        made.keep(runs)
        return made

    def keep(self, runs: list[Run]) -> None:
        """Have these runs from now on, and no others."""
        *self.older, newest = runs or [_NONE]
        self.epoch, self.first, self.size, self.offset, self.place = newest

    @property
    def last(self) -> Run | None:
        """The newest run, in the window or not."""
        if not self.size:
            return self.dropped
        return self.epoch, self.first, self.size, self.offset, self.place

    def runs(self) -> list[Run]:
        """Return those in the window as they are now, the oldest first."""
        if not self.size:
            return []
        return [*self.older, (self.epoch, self.first, self.size, self.offset, self.place)]

    def take(self, epoch: int, number: int, offset: int, place: int) -> None:
        """Have the newest run grow by a message, or begin one with it; the oldest one goes where
        there are too many."""
        size = self.size
        if self.offset + size == offset and self.first + size == number and self.epoch == epoch:
            self.size = size + 1
            self.place = place
            return
        if size:
            older = self.older
            older.append((self.epoch, self.first, size, self.offset, self.place))
            if len(older) >= RUNS_MAX:
                self.dropped = older.pop(0)
        self.epoch, self.first, self.size = epoch, number, 1
        self.offset, self.place = offset, place

    def next_in(self, epoch: int) -> int:
        """Return the number that comes next in an epoch."""
        last = self.last
        return 0 if last is None or last[0] != epoch else last[1] + last[2]

    def offset_of(self, epoch: int, number: int, count: int) -> int | None:
        """Return the queue offset of the first of so many numbers that stand side by side."""
        for known, first, size, offset, _ in reversed(self.runs()):
            if known == epoch and first <= number and number + count <= first + size:
                return offset + number - first
        return None

    def truncate(self, end: int, queue_end: int) -> None:
        """Forget the records from log offset `end` and queue offset `queue_end` on."""
        kept: list[Run] = []
        for epoch, first, size, offset, place in self.runs():
            if place < end:
                kept.append((epoch, first, size, offset, place))
            elif queue_end > offset:
                kept.append((epoch, first, queue_end - offset, offset, end - 1))
        self.keep(kept)
        if self.dropped is not None and self.dropped[-1] >= end:
            # How much of it is left is not known: a producer that goes on hears of a gap.
            self.dropped = None
