"""MetaQ's own files as a view of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.views.metaq.metaq_comparison import FoundFiles, MetaqComparison
from imago_log.views.view import SyncPlan

if TYPE_CHECKING:
    from imago_log.disk.vfs import Vfs
    from imago_log.views.metaq.materialiser import Materialiser
    from imago_wire.records.record import RecordView


class MetaqView:
    """The files follow the units: what these do for themselves, they do for the files."""

    def __init__(self, materialiser: Materialiser, vfs: Vfs) -> None:
        self._materialiser, self._vfs = materialiser, vfs
        self.truncate, self.drop_topic = materialiser.truncate, materialiser.drop_topic
        self.reset, self.write_all = materialiser.reset, materialiser.write_all

    def add(self, _data: bytes, _log_offset: int, _records: list[RecordView]) -> None:
        """Wait: the files follow the units."""

    def drop_before(self, _start: int) -> None:
        """Keep them: each topic says how long its files stay, see `Materialiser.expire`."""

    def rebuild(self, _start: int) -> None:
        """Check all files that are found: they are of another life of the queues."""
        self._materialiser.verify_found()

    def lower_mark(self, _end: int) -> None:
        """Keep it: the files say themselves how far they are on the device."""

    def is_synced(self, _end: int) -> bool:
        """Whether all files are on the device, and say so."""
        return all(each.segments.synced == each.segments.end for each in self._materialiser)

    def plan_sync(self, _end: int) -> SyncPlan:
        """Return the files to sync; those that begin a partition say how far it then is."""
        behind = [
            (segments, segments.end)
            for segments in (partition.segments for partition in self._materialiser)
            if segments.synced < segments.end
        ]

        def mark() -> None:
            for segments, end in behind:
                segments.mark_synced(end)

        return SyncPlan([file for segments, _ in behind for file in segments.unsynced()], mark)

    def compare(self) -> MetaqComparison | None:
        """Return what compares the files with the records they are made of."""
        files = {
            (partition.queue.tail.topic, partition.queue.tail.queue_id): FoundFiles(
                partition.segments.starts(), partition.segments.end, partition.segments
            )
            for partition in self._materialiser
            if partition.segments.exists
        }
        again = self._materialiser.make_again
        return MetaqComparison(self._vfs, files, again) if files else None
