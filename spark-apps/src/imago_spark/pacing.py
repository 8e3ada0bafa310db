"""Rows a second of a sink, over all that it sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PACED_ROWS: Final = 100
"""Of one request of a paced sink, whatever its pace: another pace sends the same requests."""


class SendPace:
    """Lets rows pass at a pace, and never faster to make up for a pause. None: as they come."""

    def __init__(
        self,
        rows_per_second: int | None,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._rows_per_second, self._clock, self._sleep = rows_per_second, clock, sleep
        self._due = clock()

    def take(self, rows: int) -> None:
        """Return once these rows may be sent."""
        if self._rows_per_second is None:
            return
        self.rest()
        self._due = max(self._due, self._clock()) + rows / self._rows_per_second

    def rest(self) -> None:
        """Return once somebody else may send: the rows that were sent last have had their time."""
        if (left := self._due - self._clock()) > 0:
            self._sleep(left)
