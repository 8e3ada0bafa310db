"""Which client may consume a queue in order: the locks of orderly consumers.

A lock belongs to one client of one group, is renewed by asking again, and ends after a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LOCK_LIFE_MS = 60_000

QueueKey = tuple[str, str, int]
"""Broker name, topic, queue."""


class QueueLocks:
    """Locks by group and queue."""

    def __init__(self, *, life_ms: int = LOCK_LIFE_MS) -> None:
        self._life_ms = life_ms
        self._held: dict[str, dict[QueueKey, tuple[str, int]]] = {}

    def lock(
        self, group: str, client_id: str, queues: Iterable[QueueKey], *, now_ms: int
    ) -> list[QueueKey]:
        """Take or renew the locks that are free or the client's own; return those it holds."""
        held = self._held.setdefault(group, {})
        taken = []
        for queue in queues:
            owner, at_ms = held.get(queue, (client_id, now_ms))
            if owner == client_id or now_ms - at_ms > self._life_ms:
                held[queue] = (client_id, now_ms)
                taken.append(queue)
        return taken

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueKey]) -> None:
        """Give up those locks that the client holds."""
        held = self._held.get(group, {})
        for queue in queues:
            if held.get(queue, ("", 0))[0] == client_id:
                del held[queue]
        if not held:
            self._held.pop(group, None)

    def any_held(self, group: str, *, now_ms: int) -> bool:
        """Whether any client of the group holds a lock that has not ended."""
        held = self._held.get(group, {})
        return any(now_ms - at_ms <= self._life_ms for _, at_ms in held.values())

    def sweep(self, *, now_ms: int) -> None:
        """Forget locks that have ended."""
        for group, held in list(self._held.items()):
            for queue in [q for q, (_, at) in held.items() if now_ms - at > self._life_ms]:
                del held[queue]
            if not held:
                del self._held[group]
