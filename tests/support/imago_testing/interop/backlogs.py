"""What a group of an original client got of a backlog."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogReading:
    """How much it was, and how long it took from the first message on."""

    whole: bool
    """Whether all came that were asked for."""
    messages: int
    bytes: int
    seconds: float
    processor_seconds: float
    """Of all threads of the client's process, in that time."""
    held_back: int = 0
    """How often the client put a pull off because too much waited for its listeners."""
