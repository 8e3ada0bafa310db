"""Which log files may go, and what a full disk means: decisions only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_log.results import DiskLevel

if TYPE_CHECKING:
    from collections.abc import Sequence

FILES_AT_ONCE_MAX = 10
"""Files that one round deletes, so that one mistake of a clock or a disk figure stays small."""


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
    clean_ratio: float
    force_ratio: float
    full_ratio: float


def disk_level(used_ratio: float, limits: Limits) -> DiskLevel:
    """Return what a disk this full asks for."""
    if used_ratio > limits.full_ratio:
        return DiskLevel.FULL
    if used_ratio > limits.force_ratio:
        return DiskLevel.FORCE
    return DiskLevel.CLEAN if used_ratio > limits.clean_ratio else DiskLevel.NORMAL


def files_to_delete(
    files: Sequence[LogFile], *, file_size: int, now_ms: int, level: DiskLevel, limits: Limits
) -> int:
    """Return how many of the oldest closed files go now; the written file is not among them.

    Expired files always go. Above the force ratio the oldest goes whatever its age, one a round:
    the next round sees what that has freed.
    """
    count = 0
    for file in files:
        kept_bytes = (len(files) - count + 1) * file_size  # the written file counts
        too_old = limits.retention_ms and now_ms - file.newest_ms > limits.retention_ms
        too_many = limits.retention_bytes and kept_bytes > limits.retention_bytes
        if not (too_old or too_many):
            break
        count += 1
    if level in (DiskLevel.FORCE, DiskLevel.FULL) and files:
        count = max(count, 1)
    return min(count, FILES_AT_ONCE_MAX)
