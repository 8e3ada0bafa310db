"""Which records RocketMQ would take for being in memory: the newest ones of the log."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_log.store import MessageStore

MEMORY_RATIO = 0.4
"""Part of the machine's memory whose worth of newest records RocketMQ takes for cached."""


class MemoryWindow:
    """The newest records of one store, by their size."""

    def __init__(self, store: MessageStore, bytes_max: int) -> None:
        self._store = store
        self.bytes_max = bytes_max
        """How far behind the log's end a record counts as still in memory."""

    @classmethod
    def of_machine(cls, store: MessageStore) -> MemoryWindow:
        """Return the window of a broker that has this machine to itself, as RocketMQ assumes."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return cls(store, int(memory * MEMORY_RATIO))

    def holds(self, physical_offset: int) -> bool:
        """Return whether the record at this place in the log counts as in memory."""
        return self._store.log_end - physical_offset <= self.bytes_max

    def holds_first(self, topic: str, queue_id: int) -> bool:
        """Return whether a queue lost nothing yet and its first message counts as in memory."""
        low, _ = self._store.queue_range(topic, queue_id)
        if low > 0:
            return False
        found = self._store.read(topic, queue_id, 0, messages_max=1, bytes_max=1)
        return not found.count or self.holds(int.from_bytes(found.body[28:36], "big"))
