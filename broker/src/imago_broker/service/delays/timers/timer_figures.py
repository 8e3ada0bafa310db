"""What has been counted of timers since the process began."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TimerFigures:
    """What the metrics tell."""

    fired: int = 0
    late_ms: int = 0
    """Sum over all that fired."""
    late_ms_max: int = 0
    lost: int = 0
    """Timers whose records the log lost before they were due."""
    dropped: int = 0
    """Timers that had no place any more when they were due."""

    def count_fired(self, count: int, late_ms: int, first_late_ms: int) -> None:
        """Count some that fired, by how much they were late together, and the first of them."""
        self.fired += count
        self.late_ms += max(0, late_ms)
        self.late_ms_max = max(self.late_ms_max, first_late_ms)
