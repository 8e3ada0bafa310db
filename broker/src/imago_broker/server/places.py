"""The connections that a process has room for, counted over all its listeners."""

from __future__ import annotations

NO_LIMIT = 1 << 60


class Places:
    """One place for each connection; every one takes a file descriptor of the process."""

    def __init__(self, count_max: int = NO_LIMIT) -> None:
        self.count_max = count_max
        self.taken = 0

    def take(self, beyond: int = 0) -> bool:
        """Take a place, or say that none is free.

        `beyond`: as many are kept, above all others, for callers who must get in.
        """
        if self.taken >= self.count_max + beyond:
            return False
        self.taken += 1
        return True

    def leave(self) -> None:
        """Give a place back."""
        self.taken -= 1
