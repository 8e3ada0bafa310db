"""Which queue a message goes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_wire.record_format.tags import java_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_client.message_queue import MessageQueue


def queue_for_key(key: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """Return the queue that the Java client's SelectMessageQueueByHash picks for this key."""
    return queues[place_of_key(key, len(queues))]


def place_of_key(key: str, queues: int) -> int:
    """Return the place of that queue among so many."""
    return abs(java_hash(key)) % queues


class RoundRobin:
    """Rotates over a topic's queues, keeping away from the shard that just failed."""

    def __init__(self, start: int = 0) -> None:
        self._next = start

    def pick(self, queues: Sequence[MessageQueue], *, avoid: str | None = None) -> MessageQueue:
        """Return the next queue; one of shard `avoid` only if there is no other."""
        if avoid is None:
            self._next = at = self._next + 1
            return queues[(at - 1) % len(queues)]
        for _ in queues:
            queue = queues[self._next % len(queues)]
            self._next += 1
            if queue.shard != avoid:
                return queue
        queue = queues[self._next % len(queues)]
        self._next += 1
        return queue
