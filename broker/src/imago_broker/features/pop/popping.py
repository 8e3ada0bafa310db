"""What a group has taken from one queue by POP and not acknowledged yet. Pure.

Messages are handed out together, for a time during which nobody else gets them: a *handout*, known
by its stamp, which clients carry in their receipts. What is acknowledged leaves its handout; what
is not when the time is up is handed out again, and its count grows. A receipt counts for as long as
the message has not been handed out again, be its time up or not.

Three kinds of facts make up the whole state, so that the log can hold it: the handouts, the offset
up to which messages were handed out for the first time, and the offset below which everything is
acknowledged, which is the group's committed one. Times are arguments, in epoch milliseconds.

```
                 committed                        next
  ... done done done | out  done  out  expired  done | never handed out ...
```
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SLACK = 64
"""Entries that heaps may hold beyond twice of what counts."""


@dataclass(slots=True)
class Handout:
    """What is left of messages that were handed out together."""

    due_ms: int
    times: dict[int, int]
    """By offset: how often each was handed out before; one less where nobody got it."""


@dataclass(slots=True)
class PopChanges:
    """What has changed since it was asked for last."""

    handouts: dict[int, Handout | None] = field(default_factory=dict)
    """By stamp, the newest first; None: nothing is left of it."""
    moved: bool = False
    """Whether `next_offset` or `committed` did."""


class PopQueue:
    """One group's state in one queue."""

    __slots__ = (
        "_changed",
        "_due",
        "_handouts",
        "_lowest",
        "_newest",
        "_ripe",
        "_told",
        "_where",
        "next_offset",
    )

    def __init__(self, next_offset: int, handouts: Mapping[int, Handout] | None = None) -> None:
        """Go on with what the log holds, or begin at an offset."""
        self.next_offset = next_offset
        self._handouts: dict[int, Handout] = {}
        self._where: dict[int, int] = {}
        """The stamp of each message that is out."""
        self._lowest: list[int] = []
        """A heap of offsets; may name some that are acknowledged."""
        self._due: list[tuple[int, int]] = []
        """A heap of times and stamps; may name handouts of which nothing is left, or old times."""
        self._ripe: dict[int, None] = {}
        """Stamps of handouts whose time is up."""
        self._newest = 0
        self._changed: set[int] = set()
        for stamp in sorted(handouts or {}):
            self._restore(stamp, (handouts or {})[stamp])
        self._lowest += self._where
        heapq.heapify(self._lowest)
        heapq.heapify(self._due)
        self._told = (-1, -1)

    def _restore(self, stamp: int, handout: Handout) -> None:
        for offset in handout.times:
            # Cut off between two records: what was handed out again is in both.
            self._leave(offset)
            self._where[offset] = stamp
            self.next_offset = max(self.next_offset, offset + 1)
        self._handouts[stamp] = Handout(handout.due_ms, dict(handout.times))
        self._newest = stamp
        self._due.append((handout.due_ms, stamp))

    def __len__(self) -> int:
        """Return how many messages are out."""
        return len(self._where)

    @property
    def committed(self) -> int:
        """Everything below is acknowledged."""
        lowest = self._lowest
        while lowest and lowest[0] not in self._where:
            heapq.heappop(lowest)
        return lowest[0] if lowest else self.next_offset

    @property
    def due_ms(self) -> int | None:
        """When the next messages can be handed out again, of those that were not yet when it was
        looked last; None: there are none."""
        self._tidy()
        return self._due[0][0] if self._due else None

    def blocked(self, now_ms: int) -> bool:
        """Whether any message is out whose time is not up: consumption in order waits for it."""
        self._ripen(now_ms)
        return len(self._handouts) > len(self._ripe)

    def expired(self, now_ms: int, count_max: int) -> dict[int, int]:
        """Return the first messages whose time is up, and how often each was handed out before."""
        self._ripen(now_ms)
        if not self._ripe:
            return {}
        found: dict[int, int] = {}
        for stamp in self._ripe:
            found |= {offset: times + 1 for offset, times in self._handouts[stamp].times.items()}
        return {offset: found[offset] for offset in heapq.nsmallest(count_max, found)}

    def next_stamp(self, now_ms: int) -> int:
        """Return the smallest stamp that the next handout may have; it grows with the clock."""
        return max(now_ms, self._newest + 1)

    def hand_out(
        self, messages: Mapping[int, int], *, stamp: int, due_ms: int, next_offset: int
    ) -> None:
        """Hand out messages together, some of them maybe again.

        `messages`: how often each was handed out before. `next_offset`: behind all that were read
        for it, also those that were not wanted.
        """
        offsets = sorted(messages)
        if offsets and offsets[0] >= self.next_offset:
            # None was ever out, so that behind what is in the heap they keep its order.
            self._lowest += offsets
            self._where |= dict.fromkeys(messages, stamp)
        else:
            for offset in messages:
                if not self._leave(offset):
                    heapq.heappush(self._lowest, offset)
                self._where[offset] = stamp
        if messages:
            self._newest = stamp
            self._handouts[stamp] = Handout(due_ms, dict(messages))
            heapq.heappush(self._due, (due_ms, stamp))
            self._changed.add(stamp)
        self.next_offset = max(self.next_offset, next_offset)

    def take_back(self, stamp: int, now_ms: int) -> None:
        """Note that a handout reached nobody: its messages may be handed out again from now on.

        Their counts do not grow by it.
        """
        handout = self._handouts.get(stamp)
        if handout is None:
            return
        for offset in handout.times:
            handout.times[offset] -= 1
        self.prolong(stamp, now_ms)

    def prolong(self, stamp: int, due_ms: int) -> None:
        """Have what is left of a handout out until then, under the receipts that it has."""
        handout = self._handouts.get(stamp)
        if handout is None:
            return
        handout.due_ms = due_ms
        self._ripe.pop(stamp, None)
        heapq.heappush(self._due, (due_ms, stamp))
        self._changed.add(stamp)

    def left(self, stamp: int) -> int:
        """Return how many messages of a handout are out."""
        handout = self._handouts.get(stamp)
        return 0 if handout is None else len(handout.times)

    def is_kept(self, offset: int, stamp: int, now_ms: int) -> bool:
        """Whether a receipt counts, and the message's time is not up."""
        return self.is_out(offset, stamp) and self._handouts[stamp].due_ms >= now_ms

    def is_out(self, offset: int, stamp: int) -> bool:
        """Whether a receipt counts."""
        return self._where.get(offset) == stamp

    def acknowledge(self, offsets: Iterable[int], stamp: int) -> int:
        """Note that messages are done; return of how many the receipt counts."""
        handout, done = self._handouts.get(stamp), 0
        if handout is None:
            return 0
        times, where = handout.times, self._where
        for offset in offsets:
            if offset in times:
                del times[offset], where[offset]
                done += 1
        if done:
            self._left(stamp, handout)
        return done

    def drop(self, offset: int) -> None:
        """Note that a message that is out is done, or not in the log any more."""
        self._leave(offset)
        self._where.pop(offset, None)

    def drop_below(self, offset: int) -> int:
        """Drop what is out and not in the log any more; return how many messages."""
        count = len(self._where)
        while self._where and (lowest := self.committed) < offset:
            self.drop(lowest)
        return count - len(self._where)

    def postpone(
        self, offset: int, stamp: int, *, now_ms: int, invisible_ms: int, counted: bool = True
    ) -> int | None:
        """Hide a message for another time from now on; return the new stamp, None: not out.

        Its count does not grow before it is handed out again, and not then, either, unless
        `counted`.
        """
        if not self.is_out(offset, stamp):
            return None
        times = self._handouts[stamp].times[offset] - (not counted)
        later = self.next_stamp(now_ms)
        due_ms = now_ms + invisible_ms
        self.hand_out({offset: times}, stamp=later, due_ms=due_ms, next_offset=0)
        return later

    def changes(self) -> PopChanges:
        """Return what has to be written, and take it for written."""
        stamps = sorted(self._changed, reverse=True)
        self._changed.clear()
        place = (self.next_offset, self.committed)
        moved, self._told = place != self._told, place
        return PopChanges({stamp: self._handouts.get(stamp) for stamp in stamps}, moved)

    def unwritten(self, changes: PopChanges) -> None:
        """Take it back: it could not be written."""
        self._changed |= changes.handouts.keys()
        if changes.moved:
            self._told = (-1, -1)

    def written(self) -> set[int]:
        """Return the stamps that the log may have something of."""
        return self._handouts.keys() | self._changed

    def _leave(self, offset: int) -> bool:
        """Take a message out of its handout; false: it is in none."""
        stamp = self._where.get(offset)
        if stamp is None:
            return False
        handout = self._handouts[stamp]
        del handout.times[offset]
        self._left(stamp, handout)
        return True

    def _left(self, stamp: int, handout: Handout) -> None:
        """Note that a handout has lost messages, maybe its last ones."""
        if not handout.times:
            del self._handouts[stamp]
            self._ripe.pop(stamp, None)
        self._changed.add(stamp)

    def _ripen(self, now_ms: int) -> None:
        due = self._due
        while due and due[0][0] <= now_ms:
            stamp = heapq.heappop(due)[1]
            handout = self._handouts.get(stamp)
            if handout is not None and handout.due_ms <= now_ms:
                self._ripe[stamp] = None

    def _tidy(self) -> None:
        due, handouts = self._due, self._handouts
        if len(due) > 2 * len(handouts) + _SLACK:
            due[:] = [(each.due_ms, at) for at, each in handouts.items() if at not in self._ripe]
            heapq.heapify(due)
        while due:
            due_ms, stamp = due[0]
            if stamp in handouts and handouts[stamp].due_ms == due_ms:
                break
            heapq.heappop(due)
        if len(self._lowest) > 2 * len(self._where) + _SLACK:
            self._lowest = list(self._where)
            heapq.heapify(self._lowest)
