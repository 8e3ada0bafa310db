"""What every view of the log can do, so that whoever changes the log goes through all of them.

The order is that of `StoreState.views`: units first, then what is made from them. What is undone
goes through them the other way round.
"""

from __future__ import annotations

from typing import Protocol


class View(Protocol):
    """Derived from the log, in memory and in files: all of it can be made again."""

    def truncate(self, end: int, /) -> None:
        """Forget what records at or after a log offset gave it."""

    def drop_before(self, start: int, /) -> None:
        """Let go of what records before a log offset gave it, as far as nothing else needs it."""

    def reset(self, start: int, /) -> None:
        """Drop everything and begin with nothing at a log offset."""

    def write_all(self) -> None:
        """Write what is in memory to the files."""
