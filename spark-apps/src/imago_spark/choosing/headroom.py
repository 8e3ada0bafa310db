"""Says which queues are about to lose messages that a stream has not read, before they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from imago_client.message_queue import MessageQueue
    from imago_spark.offsets import Offsets

LOOK_EVERY_S: Final = 60.0
"""At most: each look is a request a shard."""


class Headroom:
    """Compares what went from a queue's beginning since the last look with what is left there.

    How long messages are kept says less: files go whole, and also for want of room.
    """

    def __init__(
        self, earliest: Callable[[Iterable[MessageQueue]], Offsets], clock: Callable[[], float]
    ) -> None:
        self._earliest, self._clock = earliest, clock
        self._first: Offsets = {}
        self._looked_at: float | None = None

    def warnings(self, read: Offsets, ends: Offsets) -> list[str]:
        """Return a text for each queue that loses unread messages if as much goes once more."""
        behind = [queue for queue, at in read.items() if at < ends.get(queue, 0)]
        now = self._clock()
        if not behind or (self._looked_at is not None and now - self._looked_at < LOOK_EVERY_S):
            return []
        first, before = self._earliest(behind), self._first
        seconds = now - (now if self._looked_at is None else self._looked_at)
        self._first, self._looked_at = first, now
        found = []
        for queue, at in sorted(first.items()):
            gone, left = at - before.get(queue, at), read[queue] - at
            if 0 <= left < gone:
                found.append(
                    f"{queue}: within {seconds:.0f} s {gone} messages were deleted at its"
                    f" beginning, and {left} are left before offset {read[queue]}, where this query"
                    " is: as many again take what it has not read; read faster, or keep messages"
                    " longer"
                )
        return found
