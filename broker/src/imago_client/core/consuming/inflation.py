"""What the compressed bodies that one consumer holds may take, inflated."""

from __future__ import annotations

from typing import Final

_PARTS: Final = 8


class InflationBudget:
    """Counts the bytes; whoever finds no room waits, decodes later, or hands over an error."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0

    @property
    def free(self) -> int:
        return max(0, self.bytes_max - self.used)

    def take(self, size: int) -> None:
        self.used += size

    def give_back(self, size: int) -> None:
        self.used -= size

    def worth_waiting_for(self, tried: int) -> int:
        """Return how much room to wait for where `tried` bytes were too few.

        At least twice as much: nobody inflates the same body again for every byte that comes free.
        """
        return min(self.bytes_max, max(2 * tried, self.bytes_max // _PARTS))
