"""What waits for one queue until it is a whole request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.core.sending.packed import Packed

if TYPE_CHECKING:
    from imago_client.message_queue import MessageQueue


class WaitingRows:
    """The entries of one queue's next request; `_packing_c` adds to it, too."""

    __slots__ = ("body", "cost", "count", "queue", "used")

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.body = bytearray()
        """Entries up to `used`, and room behind them."""
        self.used = self.count = self.cost = 0

    def add(self, entry: bytes, cost: int) -> None:
        """Add a message that was made ready; `cost`: what counts against the request's bytes."""
        self.body[self.used :] = entry
        self.used += len(entry)
        self.count += 1
        self.cost += cost

    def taken(self) -> Packed:
        """Return what is there as one request, and begin the next."""
        with memoryview(self.body) as view:
            found = Packed(self.queue.topic, self.count, bytes(view[: self.used]))
        self.used = self.count = self.cost = 0
        return found
