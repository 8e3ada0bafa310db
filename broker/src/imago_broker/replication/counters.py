"""Totals of a member's replication since the start, as plain numbers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_broker.model.registry.shard import ShardState

OTHER = "other"
KNOWN_CAUSES = frozenset(
    {
        "first election",
        "leader gone",
        "no leader",
        "handover",
        "forced, loss allowed",
        "all in-sync members lost power",
    }
)


class ReplicationCounters:
    """What this member has sent, taken and seen."""

    def __init__(self) -> None:
        self.bytes_sent = 0
        """Log bytes given to followers."""
        self.bytes_caught_up = 0
        """Those of them that came out of files, for followers that were far behind."""
        self.bytes_taken = 0
        """Log bytes taken from leaders."""
        self.elections: Counter[str] = Counter()
        """Elections that took place while we watched, by cause."""
        self._epoch: int | None = None

    def saw(self, shard: ShardState) -> None:
        """Count the elections that a newer state of the shard tells of."""
        if self._epoch is not None:
            for election in shard.history:
                if election.epoch > self._epoch:
                    known = election.cause in KNOWN_CAUSES
                    self.elections[election.cause if known else OTHER] += 1
        self._epoch = max(self._epoch or 0, shard.epoch)
