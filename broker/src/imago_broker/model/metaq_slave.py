"""How the copying of an original MetaQ master stands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """How one partition stands."""

    topic: str
    partition: int
    position: int
    """Where the copy ends."""
    messages: int
    """Copied since the broker started."""
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveStatus:
    """How the copying stands."""

    slave_id: int
    group: str
    master: str
    """Its address; empty: none is connected."""
    problem: str
    """Why nothing is copied at all; empty: it is."""
    left_out: tuple[str, ...]
    """Topics of the master that cannot be here."""
    config_problem: str
    """Why topics have not all the settings of the master's; empty: they have, or need not."""
    partitions: tuple[PartitionStatus, ...]

    @property
    def copies(self) -> bool:
        """Whether every partition is being copied."""
        return not self.problem and not any(each.problem for each in self.partitions)
