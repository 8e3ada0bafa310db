"""When polls that wait are woken: at once, or together a moment later when very many are wanted.

A poll that is woken for each single message costs the broker as much again as the send that brought
it. Where arrivals are rare a wake-up goes out at once; where more than `AT_ONCE_MAX` a millisecond
are wanted, those of the next millisecond wait for its end, so that one answer carries what arrived
meanwhile.
"""

from __future__ import annotations

AT_ONCE_MAX = 8
"""Wake-ups wanted within a millisecond: a client that answers message by message, as fast as it
can, wants fewer."""


class WakePace:
    """Counts wake-ups by the millisecond. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._now_ms = 0
        self._wanted = 0
        self._is_busy = False

    def puts_off(self, wanted: int, now_ms: int) -> bool:
        """Say whether so many more wake-ups, wanted now, are put off."""
        passed = now_ms - self._now_ms
        if passed:
            self._is_busy = self._wanted > AT_ONCE_MAX * passed
            self._now_ms, self._wanted = now_ms, 0
        self._wanted += wanted
        return self._is_busy
