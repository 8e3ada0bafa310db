"""Keys to reconcile: each once, one at a time, none forgotten, none in front for ever.

Everything here is decided by the arguments: time is a number that the caller gives.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from imago_operator.reconcile import ObjectKey

GAP_S: Final = 0.5
"""Least time between two reconciliations of the same object, whatever happens to it."""
Group = tuple[str, str]


@dataclass(slots=True)
class _Queued:
    due: float | None = None
    """When to reconcile it; None: not by itself."""
    ready: bool = False
    started: float | None = None
    """Since when it is being worked on; None: it is not."""
    not_before: float = 0.0


class WorkQueue:
    """Keys by when they are due; groups of them (kind and namespace) take turns."""

    def __init__(self, group_max: int) -> None:
        """`group_max`: keys of one group that are worked on at a time."""
        self._group_max = group_max
        self._entries: dict[ObjectKey, _Queued] = {}
        self._heap: list[tuple[float, int, ObjectKey]] = []
        self._order = itertools.count()
        self._ready: OrderedDict[Group, deque[ObjectKey]] = OrderedDict()
        self._busy: dict[Group, int] = {}

    def add(self, key: ObjectKey, at: float) -> None:
        """Reconcile a key by a moment; an earlier request stays, a later one is part of it."""
        entry = self._entries.setdefault(key, _Queued())
        at = max(at, entry.not_before)
        if entry.ready or (entry.due is not None and entry.due <= at):
            return
        entry.due = at
        if entry.started is None:
            heapq.heappush(self._heap, (at, next(self._order), key))

    def take(self, now: float) -> ObjectKey | None:
        """Return the next key that is due and may be worked on; `done` must follow."""
        self._ripen(now)
        for group in list(self._ready):
            if self._busy.get(group, 0) >= self._group_max:
                continue
            keys = self._ready[group]
            key = keys.popleft()
            self._ready.move_to_end(group)
            if not keys:
                del self._ready[group]
            entry = self._entries[key]
            entry.ready, entry.due, entry.started = False, None, now
            entry.not_before = now + GAP_S
            self._busy[group] = self._busy.get(group, 0) + 1
            return key
        return None

    def done(self, key: ObjectKey, again_at: float | None) -> None:
        """Take a key back; what was requested meanwhile counts, too. None: it may be forgotten."""
        entry, group = self._entries[key], _group(key)
        entry.started = None
        self._busy[group] -= 1
        if not self._busy[group]:
            del self._busy[group]
        requested, entry.due = entry.due, None
        moments = [moment for moment in (requested, again_at) if moment is not None]
        if moments:
            self.add(key, min(moments))
        else:
            del self._entries[key]

    def next_at(self) -> float | None:
        """Return when the next key gets due; None: none will, as things are."""
        while self._heap and not self._counts(*self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    @property
    def waiting(self) -> int:
        """Keys that are due and not yet worked on."""
        return sum(map(len, self._ready.values()))

    def running(self) -> dict[ObjectKey, float]:
        """Return keys that are worked on, and since when."""
        return {k: e.started for k, e in self._entries.items() if e.started is not None}

    def _ripen(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            at, order, key = heapq.heappop(self._heap)
            if self._counts(at, order, key):
                self._entries[key].ready = True
                self._ready.setdefault(_group(key), deque()).append(key)

    def _counts(self, at: float, _: int, key: ObjectKey) -> bool:
        """Whether an entry of the heap is still the requested one."""
        entry = self._entries.get(key)
        if entry is None or entry.started is not None or entry.ready:
            return False
        return entry.due == at


def _group(key: ObjectKey) -> Group:
    return key.kind, key.namespace
