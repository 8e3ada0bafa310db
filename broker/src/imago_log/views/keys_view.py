"""The key index as a view of the log."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_log.views.view import SyncPlan
from imago_wire.hot import key_entries, whole_records

if TYPE_CHECKING:
    from imago_log.commitlog.checkpointer import Checkpointer
    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.disk.folder import DataFolder
    from imago_log.views.key_index import KeyIndex
    from imago_log.views.view import LogBlock
    from imago_wire.records.record import RecordView

logger = logging.getLogger(__name__)


class KeysView:
    """Keeps the checkpoint's mark of the key index, too."""

    def __init__(
        self, keys: KeyIndex, log: CommitLog, folder: DataFolder, checkpointer: Checkpointer
    ) -> None:
        self._keys, self._log, self._folder = keys, log, folder
        self._checkpointer = checkpointer
        self.truncate, self.drop_before = keys.truncate, keys.drop_before
        self.reset = self.rebuild = keys.reset
        self.write_all = keys.write_all

    def add(self, data: bytes, log_offset: int, records: list[RecordView]) -> None:
        """Take the keys of whole records that a start reads again."""
        start = max(self._keys.end, log_offset) - log_offset
        at = next((view.at for view in records if view.at >= start), None)
        if at is not None:
            self._keys.add(log_offset + at, data[at:])
            self._keys.digest()

    def drop_topic(self, _topic: str) -> None:
        """Keep its entries: whoever looks a key up compares what he finds with the record."""

    def lower_mark(self, end: int) -> None:
        """Promise no more than the entries of what stays."""
        if self._checkpointer.keys_synced[0] > end:
            self._checkpointer.lower_keys(end, self._keys.count_below(end))

    def is_synced(self, end: int) -> bool:
        """Whether all entries are on the device."""
        return self._checkpointer.keys_synced[0] == end

    def plan_sync(self, _end: int) -> SyncPlan:
        """Write what is in memory, and return the files to sync."""
        keys, checkpointer = self._keys, self._checkpointer
        keys.write_all()
        files = keys.unsynced(checkpointer.keys_synced[1])
        end, count = keys.written_end, keys.written_count
        return SyncPlan(files, note=lambda: checkpointer.begin_keys(end, count))

    def compare(self) -> KeysComparison:
        """Return what compares the entries with those of the records."""
        return KeysComparison(self._keys, self._log, self._folder)


@dataclass(slots=True)
class KeysComparison:
    """The entries that there should be, by where their block begins."""

    keys: KeyIndex
    log: CommitLog
    folder: DataFolder
    entries: dict[int, bytes] = field(default_factory=dict)

    def read(self, block: LogBlock, data: bytes) -> None:
        """Make the entries of a block; in the worker."""
        self.entries[block.start] = key_entries(data, block.start)

    def mend(self, blocks: list[LogBlock]) -> int:
        """Put wrong entries right; return in how many blocks there were any."""
        return sum(self._mend(block) for block in blocks)

    def _mend(self, block: LogBlock) -> bool:
        keys, start, size, entries = self.keys, *block[:2], self.entries[block.start]
        if start + size > keys.written_end or keys.holds(start, size, entries):
            return False
        data = self.log.read(start, size)
        good, _, _ = whole_records(data, start)
        if good != size or key_entries(data, start) != entries:
            return False  # cut since
        if not keys.overwrite(start, size, entries):
            self.folder.forget_views()
            logger.error("keys.wrong log_offset=%d: the next start builds views again",
                         start)  # fmt: skip
        return True
