"""Which log files may go: decisions only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_log.disk.pressure import DiskLevel

if TYPE_CHECKING:
    from collections.abc import Sequence

FORCED = (DiskLevel.FORCE, DiskLevel.FULL)
"""Levels at which the oldest file goes whatever its age, where nobody needs it any more."""

FILES_AT_ONCE_MAX = 10
"""Files that one round deletes, so that one mistake of a clock or a disk figure stays small."""

STEP_MS_MIN = 60_000
"""The wall clock may be set by less and is believed."""
DOUBT_MS_MAX = 6 * 3600 * 1000
"""A step of the wall clock is believed once it has lasted so long, a smaller one its own length."""


class AgeClock:
    """What time it is for whoever decides by age: a step of the wall clock ahead counts only once
    it has lasted. What is deleted does not come back when the clock does.

    `newest_ms` is what the clock said last before this process, as far as is known; 0: nothing.
    """

    def __init__(self, newest_ms: int) -> None:
        self._now_ms = newest_ms
        self._looked_ms: int | None = None
        self._ahead_since_ms: int | None = None

    def now(self, wall_ms: int, monotonic_ms: int) -> int:
        """Return the time of now, from both clocks of the machine."""
        if self._looked_ms is None:
            self._looked_ms = monotonic_ms
            self._now_ms = self._now_ms or wall_ms
        expected = self._now_ms + monotonic_ms - self._looked_ms
        self._looked_ms = monotonic_ms
        step = wall_ms - expected
        if step > STEP_MS_MIN:
            if self._ahead_since_ms is None:
                self._ahead_since_ms = monotonic_ms
            if monotonic_ms - self._ahead_since_ms < min(step, DOUBT_MS_MAX):
                self._now_ms = expected
                return expected
        self._ahead_since_ms = None
        self._now_ms = wall_ms
        return wall_ms


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log file that is no longer written, the oldest first in any list."""

    base: int
    newest_ms: int
    """Store time of its newest record, or a little later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """0 means no limit."""

    retention_ms: int
    retention_bytes: int


def files_to_delete(
    files: Sequence[LogFile], *, file_size: int, now_ms: int, limits: Limits
) -> int:
    """Return how many of the oldest closed files have expired; the written file is not among them.

    That is what the settings ask for, however full the disk is.
    """
    count = 0
    for file in files:
        kept_bytes = (len(files) - count + 1) * file_size  # the written file counts
        too_old = limits.retention_ms and now_ms - file.newest_ms > limits.retention_ms
        too_many = limits.retention_bytes and kept_bytes > limits.retention_bytes
        if not (too_old or too_many):
            break
        count += 1
    return min(count, FILES_AT_ONCE_MAX)


def files_to_spare(
    files: Sequence[LogFile], count: int, *, file_size: int, needed_from: int
) -> int:
    """Return how many of the `count` oldest files stay, since a record in them is still needed.

    `needed_from`: log offset of the oldest such record. No disk is too full for that.
    """
    return count - sum(file.base + file_size <= needed_from for file in files[:count])
