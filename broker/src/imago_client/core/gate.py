"""What one operation waits at until another one of the same client opens it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Gate:
    """Opens once, and calls those that wait at it."""

    def __init__(self) -> None:
        self.is_open = False
        self._tell: list[Callable[[], None]] = []

    def open(self) -> None:
        self.is_open = True
        tell, self._tell = self._tell, []
        for one in tell:
            one()

    def on_open(self, tell: Callable[[], None]) -> None:
        """Call back at the opening; at once where that has been."""
        if self.is_open:
            tell()
        else:
            self._tell.append(tell)
