"""Settings of one store, checked on construction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Due = Callable[[str | None], bool]
    """Whether expired files go now, by the schedule of their topic; None: that of the store."""

SEGMENT_BYTES_MIN = 4096
HOST_SIZES = (8, 20)

FILES_OPEN_MAX = 512
"""Files of views; those of the log are open beside them."""


def always_due(_: str | None) -> bool:
    """Have expired files go as soon as they expire."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Where the store lives and its limits. Sizes in bytes, times in milliseconds."""

    data_dir: Path
    metaq_broker_id: int
    """0 … 1023: part of every MetaQ message id, unique among the shards."""
    store_host: bytes
    """Address (4 or 16 bytes) and i32 port: goes into every record and RocketMQ message id."""
    segment_bytes_max: int = 256 << 20
    """Size of one log file; must not change while a data folder is in use."""
    message_bytes_max: int = 4 << 20
    """Largest body; the writer's limit, here only for sizing."""
    metaq_segment_bytes_max: int = 1 << 30
    """A materialised MetaQ file is closed once it is at least this large."""
    retention_ms: int = 72 * 3600 * 1000
    """Log files whose newest record is older than this are deleted; 0 keeps them."""
    retention_bytes: int = 0
    """The log is kept below this size by deleting its oldest files; 0 means no limit."""
    due: Due = always_due
    """Asked at each tick; files that go for want of room do not wait."""
    disk_clean_ratio: float = 0.75
    """Above it the health report warns; expired files are always deleted."""
    disk_force_ratio: float = 0.85
    """Above it the oldest log files go before they expire: those that everybody has read."""
    disk_force_unread: bool = False
    """Whether they go all the same where somebody has not read them, or something still has to
    come of them: instead of refused puts, messages are lost."""
    disk_full_ratio: float = 0.90
    """Above it puts are refused until the disk is below it again."""
    files_open_max: int = FILES_OPEN_MAX
    """Open view files; the least recently used one is closed."""
    view_pending_bytes_max: int = 32 << 20
    """View entries in memory that are not in their files yet, over all queues."""
    view_delay_ms: int = 200
    """How long a view entry waits for its file when there is little to write."""
    view_sync_interval_ms: int = 10_000
    """How often view files are synced; bounds what a start after power loss reads again."""
    checkpoint_interval_ms: int = 1000

    scrub_interval_ms: int = 24 * 3600 * 1000
    """Verify the whole log once in this time; 0: verify only what is read."""
    scrub_step_bytes_max: int = 16 << 20
    """Verify at most this much between two ticks, so that others get at the disk."""

    def __post_init__(self) -> None:
        _at_least("segment_bytes_max", self.segment_bytes_max, SEGMENT_BYTES_MIN)
        _at_least("metaq_segment_bytes_max", self.metaq_segment_bytes_max, 1)
        _at_least("files_open_max", self.files_open_max, 8)
        _at_least("scrub_step_bytes_max", self.scrub_step_bytes_max, 4096)
        _at_least("scrub_interval_ms", self.scrub_interval_ms, 0)
        for name in ("retention_ms", "retention_bytes", "view_delay_ms", "checkpoint_interval_ms"):
            _at_least(name, getattr(self, name), 0)
        if not 0 <= self.metaq_broker_id <= 1023:
            raise WrongError(f"metaq_broker_id: {self.metaq_broker_id}, must be 0 … 1023")
        if len(self.store_host) not in HOST_SIZES:
            raise WrongError(f"store_host: {len(self.store_host)} bytes, must be 8 or 20")
        if not 0 < self.disk_clean_ratio <= self.disk_force_ratio <= self.disk_full_ratio <= 1:
            raise WrongError("disk ratios: need 0 < clean ≤ force ≤ full ≤ 1")


def _at_least(name: str, value: int, minimum: int) -> None:
    if value < minimum:
        raise WrongError(f"{name}: {value}, must be at least {minimum}")
