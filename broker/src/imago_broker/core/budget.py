"""How much memory all unread answers together may take."""

from __future__ import annotations

SMALL_ANSWER_BYTES = 64 << 10
"""What a socket usually takes at once, so that it costs no memory of ours."""


class OutputBudget:
    """Bytes of answers that peers have not taken yet, over all connections.

    Past `bytes_max` answers become small, so that peers that do read still make progress; past
    twice that there are none.
    """

    __slots__ = ("bytes_max", "held")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held = 0

    def hold(self, size: int) -> None:
        """Count bytes that wait for their peer."""
        self.held += size

    def release(self, size: int) -> None:
        """Count them no more."""
        assert size <= self.held, "a session releases what it holds"
        self.held -= size

    def allowance(self, wanted: int) -> int:
        """Return how large an answer may be for which `wanted` bytes are asked; 0: none."""
        if self.held < self.bytes_max:
            return wanted
        if self.held < 2 * self.bytes_max:
            return min(wanted, SMALL_ANSWER_BYTES)
        return 0
