"""Offsets that an administrator has set and that consumers have not taken over yet.

Until a consumer has heard of a reset, what it commits still counts from where it was before: such
commits are dropped, and its next pull is sent to the new place.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

RESETS_MAX = 100_000


class PendingResets:
    """Resets by group, topic and queue."""

    def __init__(self, *, resets_max: int = RESETS_MAX) -> None:
        self._resets_max = resets_max
        # Ordered: the first of a dict is found behind all that were deleted in front of it.
        self._pending: OrderedDict[tuple[str, str, int], int] = OrderedDict()

    def add(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note where the group's next pull has to go. The oldest goes when there are too many."""
        self._pending.pop((group, topic, queue_id), None)
        if len(self._pending) >= self._resets_max:
            self._pending.popitem(last=False)
        self._pending[group, topic, queue_id] = offset

    def __bool__(self) -> bool:
        """Whether any group has not heard yet."""
        return bool(self._pending)

    def pending(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether the group has not heard yet."""
        return (group, topic, queue_id) in self._pending

    def take(self, group: str, topic: str, queue_id: int, asked_offset: int) -> int | None:
        """Return where a pull has to go instead of where it asks, once; None: it is right."""
        if not self._pending:
            return None
        offset = self._pending.pop((group, topic, queue_id), None)
        return None if offset == asked_offset else offset

    def forget(self, queues: Iterable[tuple[str, str, int]]) -> None:
        """Drop what is pending for these: a topic that is made again has nothing to do with it."""
        if self._pending:
            for key in queues:
                self._pending.pop(key, None)

    def clear(self) -> None:
        """Forget everything: another broker leads, and groups may go anywhere meanwhile."""
        self._pending.clear()

    def forget_group(self, group: str) -> None:
        """Drop what is pending for a deleted group."""
        for key in [key for key in self._pending if key[0] == group]:
            del self._pending[key]
