"""Check all files of a stopped store, offline and without changing anything.

The log is read twice: once to find every record, where the log ends and what its metadata says;
once to compare every view with the records, in log order. Memory: one block of the log, a few
kilobytes a queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_log.offline.findings import Finding, Findings, Severity
from imago_log.offline.keys import KeysCheck
from imago_log.offline.log_files import LogCheck
from imago_log.offline.metadata import MetadataCheck
from imago_log.offline.metaq import MetaqCheck
from imago_log.offline.queues import QueuesCheck
from imago_log.offline.records import CHUNK_BYTES
from imago_log.offline.small_files import check_against_log, check_checkpoint, check_marks
from imago_log.offline.stopped import NotADataFolderError, StoppedStore
from imago_wire.hot import scan_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from imago_log.metadata.state import Metadata
    from imago_wire.records.record import RecordView

__all__ = ["CheckProgress", "Finding", "NotADataFolderError", "Severity", "check"]


@dataclass(frozen=True, slots=True)
class CheckProgress:
    """How far a check is: `done` of `total` bytes of the log, once for each stage."""

    stage: str
    done: int
    total: int


def check(
    data_dir: Path, *, progress: Callable[[CheckProgress], None] | None = None
) -> Iterator[Finding]:
    """Return the findings on a data folder, as they are found; none for a store that is whole.

    The lock is held shared until the last one is taken. NotADataFolderError: no store is there.
    DataFolderLockedError: a broker runs on it. LogIOError: a file cannot be read.
    """
    store = StoppedStore(data_dir)
    return _Check(store, progress).run()


class _Check:
    """One check of one store."""

    def __init__(
        self, store: StoppedStore, progress: Callable[[CheckProgress], None] | None
    ) -> None:
        self._store, self._progress = store, progress
        self._findings = Findings()
        self._metadata = MetadataCheck(store, self._findings)
        self._log = LogCheck(store, self._findings, self._metadata)

    def run(self) -> Iterator[Finding]:
        store, findings, log = self._store, self._findings, self._log
        try:
            check_marks(store, findings)
            check_checkpoint(store, findings)
            total = sum(store.log.sizes.values())
            for offset in log.run():
                self._tell_progress(CheckProgress("log", offset - log.start, total))
                yield from findings.take()
            metadata = self._metadata.finish(log.end)
            check_against_log(store, findings, log)
            yield from findings.take()
            if self._views_count():
                yield from self._views(metadata, total)
            yield from findings.take()
        finally:
            store.close()

    def _views_count(self) -> bool:
        """Whether the next start uses the view files, and does not build them again."""
        store = self._store
        if store.checkpoint is None or not store.keeps_views:
            return False
        return not store.clean or store.folder.views_agree()

    def _views(self, metadata: Metadata, total: int) -> Iterator[Finding]:
        store, log = self._store, self._log
        assert store.checkpoint is not None, "views count only with a checkpoint"
        limit = min(store.checkpoint.views_synced, log.end)
        findings, is_damaged = self._findings, log.is_damaged
        queues = QueuesCheck(store, findings, metadata, log.start, limit, is_damaged)
        keys = KeysCheck(store, findings, log.start, is_damaged)
        metaq = MetaqCheck(store, self._findings, queues)
        for start, end in log.extents:
            queues.pass_damage(sum(place < start for place, _ in log.damaged))
            at = start
            while at < end:
                at = self._block(at, end, queues, keys, metaq)
                self._tell_progress(CheckProgress("views", at - log.start, total))
                yield from self._findings.take()
        for part in (queues, keys, metaq):
            part.finish()

    def _block(
        self, start: int, end: int, queues: QueuesCheck, keys: KeysCheck, metaq: MetaqCheck
    ) -> int:
        """Compare the views with some records; return where they end."""
        size = min(CHUNK_BYTES, end - start)
        scan = scan_records(data := self._store.log.read(start, size), start, verify=False)
        while not scan.end:
            size = min(size * 2, end - start)
            scan = scan_records(data := self._store.log.read(start, size), start, verify=False)
        keys.take(data[: scan.end], start)
        for view in scan.views:
            if view.has_unit:
                self._tell(view, queues.take(view))
                self._tell(view, metaq.take(view, data))
        return start + scan.end

    def _tell_progress(self, progress: CheckProgress) -> None:
        if self._progress is not None:
            self._progress(progress)

    def _tell(self, view: RecordView, problem: str) -> None:
        if problem:
            self._log.tell(view, problem)
