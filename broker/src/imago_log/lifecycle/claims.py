"""What others want of old records: asked when a file of the log is about to go."""

from __future__ import annotations

from typing import Protocol

from imago_log.commitlog.watermark import ALL_VISIBLE

NOBODY_READS = ALL_VISIBLE
"""A queue offset behind all others: of a queue whose messages nobody waits for."""


class Claims(Protocol):
    """Who still needs what. Log offsets and queue offsets."""

    def needed_from(self) -> int:
        """Return the log offset of the oldest record of which something still has to come."""
        ...

    def may_force(self) -> bool:
        """Whether a full disk may take files at all: no other member has room instead."""
        ...

    def read_to(self, topic: str, queue_id: int) -> int:
        """Return the queue offset below which all who read the queue have read.

        0 where nobody has said that it reads; `NOBODY_READS` where nobody ever will.
        """
        ...


class NoClaims:
    """Of a store on its own: nothing has to come of its records, and nobody has read any."""

    def needed_from(self) -> int:
        return ALL_VISIBLE

    def may_force(self) -> bool:
        return True

    def read_to(self, topic: str, queue_id: int) -> int:
        del topic, queue_id
        return 0


NO_CLAIMS = NoClaims()
