"""What a member of a group is told of its queues, and may say of them: the same on both faces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.checks import check_queue
from imago_client.errors import UsageError
from imago_client.naming import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from imago_client.message_queue import MessageQueue


class PausedQueues:
    """Those that the caller wants nothing of for now."""

    def __init__(self) -> None:
        self._paused: set[MessageQueue] = set()

    def __contains__(self, queue: MessageQueue) -> bool:
        return queue in self._paused

    def listed(self) -> tuple[MessageQueue, ...]:
        """Return them, sorted."""
        return tuple(sorted(self._paused))

    def pause(self, queues: Iterable[MessageQueue], read: Container[MessageQueue]) -> None:
        """Pause queues. UsageError: one of them is not read; then none is paused."""
        wanted = set(queues)
        for queue in wanted:
            check_read(queue, read)
        self._paused |= wanted

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with queues, as far as they were paused."""
        self._paused.difference_update(queues)

    def clear(self) -> None:
        """Pause nothing any more: the member leaves."""
        self._paused.clear()


class Reassigned:
    """What came and what went since the member's listeners were told."""

    def __init__(self) -> None:
        self._came: set[MessageQueue] = set()
        self._went: set[MessageQueue] = set()

    def came(self, queue: MessageQueue) -> None:
        """Note that a queue is read from now on; of the group's retry topic nobody asked for."""
        if not queue.topic.startswith(RETRY_PREFIX):
            self._came.add(queue)

    def went(self, queues: Iterable[MessageQueue]) -> None:
        """Note that queues are not read any more."""
        self._went.update(queue for queue in queues if not queue.topic.startswith(RETRY_PREFIX))

    def taken(self) -> tuple[tuple[MessageQueue, ...], tuple[MessageQueue, ...]]:
        """Return what went and what came, each sorted, and forget it."""
        went, came = tuple(sorted(self._went)), tuple(sorted(self._came))
        self._went.clear()
        self._came.clear()
        return went, came


def check_read(queue: MessageQueue, read: Container[MessageQueue]) -> None:
    """UsageError: it is none of those that the member reads now."""
    check_queue(queue)
    if queue not in read:
        raise UsageError(f"queue: {queue} is not one that this member reads now")
