"""Which messages of a target queue are which of the source: where a group may go on there.

A queue of the target holds copies of one or several queues of the source, and messages of clients
of its own. A group that consumed the source up to some offsets may pass those copies alone that it
has consumed there, and nothing that its clients at the target alone can have seen. So its offset
moves over a part of the queue only where every message in it is such a copy.

Parts are few where only the mirror writes: one for a queue. Where there are too many, the oldest
two that touch become one, which a group passes as a whole; where none touch, the oldest goes, and a
group that stands before it stays there: it reads messages twice, and misses none.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PARTS_MAX: Final = 64
"""Of one target queue."""
NEEDS_MAX: Final = 64
"""Source queues in one part."""


class CopiedRange(NamedTuple):
    """Messages of a source queue, from `first` to before `end`."""

    queue: str
    first: int
    end: int


class Part(NamedTuple):
    """Offsets of a target queue, from `first` to before `end`, and whose copies are there."""

    first: int
    end: int
    needs: tuple[CopiedRange, ...]

    @property
    def is_exact(self) -> bool:
        """Whether each offset in it is known to be that of one message of the source."""
        (need, *others) = self.needs
        return not others and need.end - need.first == self.end - self.first


class OffsetMap:
    """The parts of one target queue, in their order; none overlaps another."""

    def __init__(
        self, parts: Iterable[Part] = (), *, life: int = 0, parts_max: int = PARTS_MAX
    ) -> None:
        self.life = life
        """Which topic of its name the queue is of."""
        self._parts = list(parts)
        self._parts_max = parts_max

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(self._parts)

    def note(self, queue: str, source: int, target: int, count: int = 1) -> None:
        """Note that messages of a source queue from `source` on are at the target, side by side."""
        at = bisect_right(self._parts, target, key=lambda part: part.first)
        before = self._parts[at - 1] if at else None
        if before is not None and before.end > target:
            known = min(count, before.end - target)
            if known < count:
                self.note(queue, source + known, target + known, count - known)
            return
        limit = self._parts[at].first if at < len(self._parts) else target + count
        fits = min(count, limit - target)
        made = Part(target, target + fits, (CopiedRange(queue, source, source + fits),))
        joined = None if before is None else _exactly(before, made)
        if joined is None:
            self._parts.insert(at, made)
        else:
            at -= 1
            self._parts[at] = joined
        if at + 1 < len(self._parts):
            joined = _exactly(self._parts[at], self._parts[at + 1])
            if joined is not None:
                self._parts[at : at + 2] = [joined]
        self._bound()
        if fits < count:
            self.note(queue, source + fits, target + fits, count - fits)

    def cut(self, end: int) -> None:
        """Forget what is said of offsets from `end` on: the target has lost them."""
        kept: list[Part] = []
        for part in self._parts:
            if part.end <= end:
                kept.append(part)
            elif part.first < end and part.is_exact:
                need, size = part.needs[0], end - part.first
                kept.append(Part(part.first, end, (need._replace(end=need.first + size),)))
        self._parts = kept

    def advance(self, at: int, consumed: Mapping[str, int]) -> int:
        """Return how far a group at offset `at` may go that consumed the source queues so far."""
        index = bisect_right(self._parts, at, key=lambda part: part.first) - 1
        while 0 <= index < len(self._parts):
            part = self._parts[index]
            if not part.first <= at < part.end:
                break
            if any(consumed.get(need.queue, 0) < need.end for need in part.needs):
                if part.is_exact:
                    need = part.needs[0]
                    done = consumed.get(need.queue, 0) - need.first
                    at = max(at, part.first + max(0, done))
                break
            at, index = part.end, index + 1
        return at

    def _bound(self) -> None:
        while len(self._parts) > self._parts_max:
            for at, (one, next_) in enumerate(zip(self._parts, self._parts[1:], strict=False)):
                whole = _roughly(one, next_)
                if whole is not None:
                    self._parts[at : at + 2] = [whole]
                    break
            else:
                del self._parts[0]


def _exactly(one: Part, other: Part) -> Part | None:
    """Return both as one exact part; None: they are not side by side in both queues."""
    if one.end != other.first or not (one.is_exact and other.is_exact):
        return None
    left, right = one.needs[0], other.needs[0]
    if left.queue != right.queue or left.end != right.first:
        return None
    return Part(one.first, other.end, (left._replace(end=right.end),))


def _roughly(one: Part, other: Part) -> Part | None:
    """Return both as one part that is passed as a whole; None: something lies in between."""
    if one.end != other.first:
        return None
    needs: dict[str, CopiedRange] = {}
    for need in (*one.needs, *other.needs):
        had = needs.get(need.queue, need)
        needs[need.queue] = CopiedRange(
            need.queue, min(had.first, need.first), max(had.end, need.end)
        )
    if len(needs) > NEEDS_MAX:
        return None
    return Part(one.first, other.end, tuple(needs.values()))
