"""Finding messages among the units of one queue: by log offset, by position, by any order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from imago_log.views.units.unit_files import BLANK_SIZE_FIELD, LOST_SIZE_FIELD

if TYPE_CHECKING:
    from collections.abc import Callable

READ_ENDS_MAX = 16


class Units(Protocol):
    """The units `first` … `end` of one queue."""

    @property
    def first(self) -> int: ...
    @property
    def end(self) -> int: ...
    def unit(self, offset: int) -> tuple[int, int, int]: ...
    def position(self, offset: int) -> tuple[int, int]: ...


class UnitLookup:
    """Searches units, and remembers what was found: `forget` it when they change."""

    __slots__ = (
        "_below",
        "_end_below",
        "_log_start",
        "_low",
        "_low_position",
        "_min",
        "_read_ends",
        "_units",
    )

    def __init__(self, units: Units) -> None:
        self._units = units
        self._log_start = self._min = -1
        self._read_ends: dict[int, int] = {}
        """Offsets by position where reads have ended, and so will begin."""
        self._below = self._end_below = -1
        self._low = self._low_position = -1
        """The offset that was asked for last, and its position."""

    def forget(self) -> None:
        """Find everything again: units were cut or written again."""
        self.forget_bounds()
        self._read_ends.clear()

    def forget_bounds(self) -> None:
        """Find bounds again; where messages start by position has not changed."""
        self._log_start = self._min = self._below = self._low = -1

    def forget_end_below(self) -> None:
        """Units were added of records before others that are known."""
        self._below = -1

    @property
    def last_place(self) -> int:
        """Log offset of the newest message, -1 when there is none."""
        return (
            self._units.unit(self._units.end - 1)[0] if self._units.end > self._units.first else -1
        )

    def first_position(self, low: int) -> int:
        """Return the MetaQ position of the first message that readers may have."""
        if self._low != low:
            self._low_position = self._units.position(low)[0]
            self._low = low
        return self._low_position

    def search(self, low: int, high: int, before: Callable[[int], bool]) -> int:
        """Return the first offset in low … high for which `before` does not hold (any more)."""
        while low < high:
            middle = (low + high) // 2
            if before(middle):
                low = middle + 1
            else:
                high = middle
        return low

    def min_offset(self, log_start: int) -> int:
        """Return the offset of the first message whose record is still in the log."""
        if log_start != self._log_start:
            first = max(self._units.first, self._min)
            self._min = self.search(
                first, self._units.end, lambda offset: self._gone(offset, log_start)
            )
            self._log_start = log_start
        return self._min

    @property
    def is_bare(self) -> bool:
        """Whether all units are blank: a crash may leave a part of them, the last one torn.

        Blank units are of log offset 0, where otherwise only the first change of metadata stands.
        """
        if self._units.first == self._units.end:
            return True
        place, size, _ = self._units.unit(self._units.end - 1)
        return place == 0 and size != LOST_SIZE_FIELD

    def ends_before(self, log_start: int) -> bool:
        """Whether all records would be gone from a log that began there."""
        return self._units.first == self._units.end or self._gone(self._units.end - 1, log_start)

    def _gone(self, offset: int, log_start: int) -> bool:
        place, size, _ = self._units.unit(offset)
        return place < log_start or size == BLANK_SIZE_FIELD

    def offset_of_log(self, log_offset: int) -> int:
        """Return the first offset whose record is at or after a log offset."""
        return self.search(
            self._units.first,
            self._units.end,
            lambda offset: self._units.unit(offset)[0] < log_offset,
        )

    def end_below(self, log_offset: int) -> int:
        """Return the same, for a log offset near the end of the log: it looks from there.

        The log offset must not be behind the end of the log.
        """
        if log_offset != self._below:
            self._end_below = self._search_back(log_offset)
            self._below = log_offset  # units that come are of records behind it
        return self._end_below

    def _search_back(self, log_offset: int) -> int:
        first, high, step = self._units.first, self._units.end, 1
        while high > first:
            low = max(first, high - step)
            if self._units.unit(low)[0] < log_offset:
                return self.search(low + 1, high, lambda at: self._units.unit(at)[0] < log_offset)
            high, step = low, step * 2
        return first

    def offset_of_position(self, position: int, low: int) -> int:
        """Return the first offset from `low` on whose message starts at or after a position."""
        known = self._read_ends.get(position)
        if known is not None and known >= low:
            return known
        return self.search(
            low, self._units.end, lambda offset: self._units.position(offset)[0] < position
        )

    def remember(self, position: int, offset: int) -> None:
        """Note that a message starts at a position, or will: a reader goes on from there."""
        if len(self._read_ends) >= READ_ENDS_MAX:
            del self._read_ends[next(iter(self._read_ends))]
        self._read_ends[position] = offset
