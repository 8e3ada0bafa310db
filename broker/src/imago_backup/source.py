"""The log of a running member, as a backup reads it: cut by the loop, read beside it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_backup.format import FILES
from imago_backup.uploading import LogCut
from imago_log.disk.files import offset_name
from imago_log.errors import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from imago_backup.format import MetaqOffsets
    from imago_log import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSource:
    """One member's store."""

    store: MessageStore
    cluster: str
    cluster_id: str
    shard: str
    version: str
    now_ms: Callable[[], int]
    told_offsets: Callable[[], Awaitable[MetaqOffsets]]
    tier_url: str = ""
    """Where files go that the disk has no more."""

    async def metaq_offsets(self) -> MetaqOffsets:
        """Return what MetaQ's groups have in ZooKeeper now."""
        return await self.told_offsets()

    def cut(self) -> LogCut:
        """Cut the log below the high watermark, which never stands inside what is one commit."""
        store = self.store
        size, start, first_ms = store.config.segment_bytes_max, store.log_start, 0
        with suppress(UnreadableError):
            first_ms = store.components.storage.records.first_ms(start) or 0
        end = store.high_watermark
        return LogCut(
            first=start - start % size,
            log_start=start,
            end=end,
            segment_bytes=size,
            first_ms=first_ms,
            last_ms=store.newest_ms,
            cut_ms=self.now_ms(),
            epoch_seen=store.epoch_seen,
            epochs=[[epoch, begin] for epoch, begin in store.epochs if begin <= end],
            older_in=self.tier_url if start else "",
            damaged=[[each.start, each.end, each.reason] for each in store.damaged_ranges()],
        )

    def path(self, offset: int) -> Path:
        """Return the file that holds a log offset."""
        size = self.store.config.segment_bytes_max
        return self.store.config.data_dir / "commitlog" / offset_name(offset - offset % size)

    def files(self) -> dict[str, str]:
        """Return the small files that are there."""
        found = {}
        for name in sorted(FILES):
            path = self.store.config.data_dir / name
            if path.is_file():
                found[name] = path.read_text(encoding="utf-8")
        return found
