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

_PREFIX: Final = struct.Struct(">4sHII")


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
    ) -> None:
        self._address, self._number = address, number & 0xFFFFFFFF
        self._process_id = process_id
        self._made_by = -1
        self._at_ms = 0
        self._counter = -1
        self._prefix = ""
        self._month_start = self._month_end = 0

    def next_key(self, now_ms: int) -> str:
        """Return a new id, 32 characters."""
        if now_ms <= self._at_ms and self._counter < 0xFFFF:  # the clock may stand or go back
            self._counter += 1
        else:
            self._at_ms, self._counter = max(now_ms, self._at_ms + 1), 0
            self._made_by = -1
        process_id = self._process_id()
        if process_id != self._made_by:  # the first id of a millisecond, or after a fork
            self._made_by, self._prefix = process_id, self._made_prefix(process_id)
        return f"{self._prefix}{self._counter:04X}"

    def next_run(self, now_ms: int, count: int) -> tuple[str, int]:
        """Return what `count` new ids begin with, and the number of the first: 4 more digits."""
        first = self._counter + 1
        if now_ms > self._at_ms or self._counter + count > 0xFFFF:
            self._at_ms, first = max(now_ms, self._at_ms + 1), 0
            self._made_by = -1
        self._counter = first + count - 1
        process_id = self._process_id()
        if process_id != self._made_by:
            self._made_by, self._prefix = process_id, self._made_prefix(process_id)
        return self._prefix, first

    def _made_prefix(self, process_id: int) -> str:
        if not self._month_start <= self._at_ms < self._month_end:
            self._month_start = month_start_ms(self._at_ms)
            self._month_end = next_month_ms(self._month_start)
        since_ms = (self._at_ms - self._month_start) & 0xFFFFFFFF
        packed = _PREFIX.pack(self._address, process_id & 0xFFFF, self._number, since_ms)
        return packed.hex().upper()
