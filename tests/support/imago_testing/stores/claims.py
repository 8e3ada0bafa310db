"""What others want of a store's old records, as a test says it."""

from __future__ import annotations

from imago_log.lifecycle.claims import NOBODY_READS


class SaidClaims:
    """All is read and nothing is needed, until a test says otherwise."""

    def __init__(self) -> None:
        self.needed = NOBODY_READS
        self.alone = True
        """Whether no other member has room."""
        self.read: dict[tuple[str, int], int] = {}
        """Progress in the queues that are not read through."""

    def needed_from(self) -> int:
        return self.needed

    def may_force(self) -> bool:
        return self.alone

    def read_to(self, topic: str, queue_id: int) -> int:
        return self.read.get((topic, queue_id), NOBODY_READS)
