"""Timers that are near, as plain numbers.

A timer is 64 bits: by how many milliseconds of its second it is due (10 bits), the queue in which
its message is parked (11), and its offset there (43). So numbers of one second are in the order in
which they fire. They stand side by side in memory, in the machine's byte order.
"""

from __future__ import annotations

from typing import Final

SECOND_MS: Final = 1000
OFFSET_BITS: Final = 43
QUEUE_BITS: Final = 11
TIMER_SIZE: Final = 8
