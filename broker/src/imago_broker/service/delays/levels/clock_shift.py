"""Times that were read from a clock that was ahead of the one of now.

A leader's clock may run ahead, or be set back; and another leader has another clock. The log's own
times never go back: while they are ahead of the clock they stand still. By how much they are ahead
when that is first noticed, tells what a time from before means by the clock of now.
"""

from __future__ import annotations

TURN_MS_MAX = 1000
"""What is appended stands in the log within this of the time that was read for it; a log time
further ahead than that has stood still."""


class ClockShift:
    """By how much times between two points were ahead. Pure: all times are arguments."""

    def __init__(self) -> None:
        self._from_ms = self._until_ms = self._by_ms = 0

    @property
    def none(self) -> bool:
        """Whether no time was ever ahead."""
        return self._by_ms == 0

    def notice(self, newest_ms: int, now_ms: int) -> None:
        """Compare the log's newest time with the clock; the first look after a step counts."""
        ahead_ms = newest_ms - now_ms
        if ahead_ms > 0 and (newest_ms > self._until_ms or ahead_ms > self._by_ms):
            self._from_ms, self._until_ms, self._by_ms = now_ms, newest_ms, ahead_ms

    def corrected(self, read_ms: int, store_ms: int) -> int:
        """Return what a time that was read for a record means now; `store_ms` is the record's."""
        was_ahead = self._from_ms < read_ms <= self._until_ms
        return read_ms - self._by_ms if was_ahead and store_ms - read_ms <= TURN_MS_MAX else read_ms
