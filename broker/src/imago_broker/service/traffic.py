"""Counts of what went out, for the figures that RocketMQ's tools show."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """What RocketMQ consumers were answered since the start."""

    messages: int = 0
    bytes: int = 0
    found: int = 0
    """Answers with messages."""
    missed: int = 0
    """Reads that found none."""
    read_ns_max: int = 0
    """How long the longest read of the store took."""

    def delivered(self, count: int, size: int) -> None:
        """Note one answer with messages."""
        self.found += 1
        self.messages += count
        self.bytes += size
