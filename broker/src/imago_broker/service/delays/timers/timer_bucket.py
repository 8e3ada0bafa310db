"""The queues of the timer topic: which a timer is in, and which of its timers are done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_broker.model.topics.system_topics import TIMER_BUCKETS

if TYPE_CHECKING:
    from collections.abc import Iterable

BUCKET_MS: Final = 600_000
BUCKETS: Final = TIMER_BUCKETS
"""A bucket's queue is used again after a little more than seven days."""
_OPEN, _FIRING, _FIRED, _RECALLED = range(4)
_FIRING_BYTE, _FIRED_BYTE = bytes([_FIRING]), bytes([_FIRED])


def bucket_of(due_ms: int) -> int:
    """Return the queue of the timer topic for a due time."""
    return due_ms // BUCKET_MS % BUCKETS


def recall_tag(offset: int) -> int:
    """Return what the unit of a recall holds: which timer of its queue it takes back."""
    return -1 - offset


class TimerBucket:
    """Timers from `base` to `end`, a byte each; those before are all done."""

    def __init__(
        self, queue_id: int, base: int, *, since: int, begins_ms: int, closes_ms: int
    ) -> None:
        self.queue_id = queue_id
        self.begins_ms = begins_ms
        self.whole = False
        """Whether all was read once: until then a recall of what was read may follow."""
        self.base = base
        self.end = base
        """Up to where the queue's units were read."""
        self.since = since
        """The first firing record that may name timers of this bucket."""
        self.closes_ms = closes_ms
        """When to look next whether all are done."""
        self.left = 0
        """How many wait."""
        self._done = bytearray()
        self._before = set[int]()
        """Done before they were read: what firing records say at a start."""
        self._withdrawn = set[int]()
        """Recalled before they were read."""

    def expect_done(self, offsets: Iterable[int]) -> None:
        """Note what is done of units that are not read yet."""
        self._before.update(offset for offset in offsets if offset >= self.end)

    def read(self, *, waits: bool) -> bool:
        """Take the next unit in; return whether it is a timer that waits."""
        waits = waits and self.end not in self._before
        self._before.discard(self.end)
        if self.end in self._withdrawn:
            self._withdrawn.discard(self.end)
            self._done.append(_RECALLED if waits else _FIRED)
            self.end += 1
            return False
        self._done.append(_OPEN if waits else _FIRED)
        self.left += waits
        self.end += 1
        return waits

    @property
    def usual(self) -> bool:
        """Whether whatever timer is read next waits."""
        return not self._before and not self._withdrawn

    def read_run(self, count: int) -> None:
        """Take so many timers in, where that is so."""
        self._done += bytes(count)
        self.left += count
        self.end += count

    def is_done(self, offset: int) -> bool:
        """Whether a timer has fired, or was dropped or recalled."""
        at = offset - self.base
        if offset >= self.end:
            return offset in self._withdrawn
        return at < 0 or bool(self._done[at])

    def has_fired(self, offset: int) -> bool:
        """Whether it is too late for a recall."""
        at = offset - self.base
        return at < 0 or (at < len(self._done) and self._done[at] in (_FIRING, _FIRED))

    def may_fire(self, offset: int) -> bool:
        """Whether a timer may still fire: it waits, is being fired, or its recall may yet fail."""
        at = offset - self.base
        return at >= len(self._done) or (at >= 0 and self._done[at] != _FIRED)

    def begin(self, first: int, count: int = 1) -> bool:
        """Note that timers are being fired; false: not all of them wait any more."""
        at = first - self.base
        end = at + count
        if at < 0 or self._done[at:end] != bytes(count):
            return False
        self._done[at:end] = _FIRING_BYTE * count
        self.left -= count
        return True

    def finish(self, first: int, count: int = 1) -> None:
        """Note that those that were being fired have been, or were dropped."""
        at = first - self.base
        end = at + count
        assert at >= 0, "what is being fired is not trimmed"
        assert self._done[at:end] == _FIRING_BYTE * count, "they have begun"
        self._done[at:end] = _FIRED_BYTE * count

    def fail(self, offset: int) -> None:
        """Note that it has not fired after all."""
        self._set(offset, _FIRING, _OPEN, 1)

    def recall(self, offset: int) -> None:
        """Note that a timer is not to fire."""
        if offset >= self.end:
            self._withdrawn.add(offset)
        self._set(offset, _OPEN, _RECALLED, -1)

    def revive(self, offset: int) -> None:
        """Have a recalled timer wait again."""
        self._withdrawn.discard(offset)
        self._set(offset, _RECALLED, _OPEN, 1)

    def _set(self, offset: int, before: int, after: int, more: int) -> None:
        at = offset - self.base
        if 0 <= at < len(self._done) and self._done[at] == before:
            self._done[at] = after
            self.left += more

    def first_open(self) -> int:
        """Return the first offset that is not done."""
        at = self._done.find(0)
        return self.end if at < 0 else self.base + at

    def trim(self, base: int) -> None:
        """Forget what is before, all of it done."""
        del self._done[: base - self.base]
        self.base = base
