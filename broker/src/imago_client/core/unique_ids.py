"""Client message ids (UNIQ_KEY) in the shape of the original clients.

Upper-case hexadecimal of IPv4 address (4 bytes), process id (2), a number of this client (4),
ms since the start of the current month (4) and a counter (2).
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_PREFIX: Final = struct.Struct(">4sHI")
_SUFFIX: Final = struct.Struct(">IH")


def month_start_ms(now_ms: int) -> int:
    """Return the first instant of the UTC month that `now_ms` lies in, ms since 1970."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return int(start.timestamp()) * 1000


def next_month_ms(start_ms: int) -> int:
    """Return the start of the month after the one that starts at `start_ms`."""
    return month_start_ms(start_ms + 32 * 24 * 3600 * 1000)


class UniqueKeys:
    """Makes ids that this process never repeats within a month."""

    def __init__(
        self,
        *,
        address: bytes,
        process_id: Callable[[], int],
        number: int,
        clock_ms: Callable[[], int],
    ) -> None:
        self._address, self._number = address, number & 0xFFFFFFFF
        self._process_id = process_id
        self._clock_ms = clock_ms
        self._prefix_of = (-1, "")
        self._last = 0  # ms << 16 | counter: grows with every id, also when the clock does not
        self._month_start = self._month_end = 0

    def next_key(self) -> str:
        """Return a new id, 32 characters."""
        self._last = max(self._last + 1, self._clock_ms() << 16)
        at_ms, counter = self._last >> 16, self._last & 0xFFFF
        if not self._month_start <= at_ms < self._month_end:
            self._month_start = month_start_ms(at_ms)
            self._month_end = next_month_ms(self._month_start)
        process_id = self._process_id()
        if process_id != self._prefix_of[0]:  # the first id, or the first one after a fork
            prefix = _PREFIX.pack(self._address, process_id & 0xFFFF, self._number)
            self._prefix_of = (process_id, prefix.hex().upper())
        suffix = _SUFFIX.pack((at_ms - self._month_start) & 0xFFFFFFFF, counter)
        return self._prefix_of[1] + suffix.hex().upper()
