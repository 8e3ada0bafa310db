"""Which client may consume a queue in order: the locks of orderly consumers.

A lock belongs to one client of one group, is renewed by asking again, and ends after a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LOCK_LIFE_MS = 60_000
LOCKS_MAX = 1_000_000

QueueKey = tuple[str, str, int]
"""Broker name, topic, queue."""


class QueueLocks:
    """Locks by group and queue. Times are milliseconds of one monotonic clock."""

    def __init__(self, *, life_ms: int = LOCK_LIFE_MS, locks_max: int = LOCKS_MAX) -> None:
        self._life_ms = life_ms
        self._locks_max = locks_max
        self._count = 0
        self._held: dict[str, dict[QueueKey, tuple[str, int]]] = {}

    def lock(
        self, group: str, client_id: str, queues: Iterable[QueueKey], *, now_ms: int
    ) -> list[QueueKey]:
        """Take or renew the locks that are free or the client's own; return those it holds.

        Beyond the limit a lock is refused as if another client held it.
        """
        held = self._held.setdefault(group, {})
        taken = []
        for queue in queues:
            owner, at_ms = held.get(queue, ("", 0))
            if queue not in held:
                if self._count >= self._locks_max:
                    continue
                self._count += 1
            elif owner != client_id and now_ms - at_ms <= self._life_ms:
                continue
            held[queue] = (client_id, now_ms)
            taken.append(queue)
        self._drop_if_empty(group)
        return taken

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueKey]) -> None:
        """Give up those locks that the client holds."""
        held = self._held.get(group, {})
        for queue in queues:
            if queue in held and held[queue][0] == client_id:
                del held[queue]
                self._count -= 1
        self._drop_if_empty(group)

    def any_held(self, group: str, *, now_ms: int) -> bool:
        """Whether any client of the group holds a lock that has not ended."""
        held = self._held.get(group, {})
        return any(now_ms - at_ms <= self._life_ms for _, at_ms in held.values())

    def sweep(self, *, now_ms: int) -> None:
        """Forget locks that have ended."""
        for group, held in list(self._held.items()):
            for queue in [q for q, (_, at) in held.items() if now_ms - at > self._life_ms]:
                del held[queue]
                self._count -= 1
            self._drop_if_empty(group)

    def _drop_if_empty(self, group: str) -> None:
        if not self._held.get(group, True):
            del self._held[group]
