"""The machine's clocks."""

from __future__ import annotations

import time


class SystemClock:
    """`imago_broker.ports.Clock` of a real process."""

    def epoch_ms(self) -> int:
        """Wall clock."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Time since the machine started, its sleep included: leases of others run on meanwhile."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
