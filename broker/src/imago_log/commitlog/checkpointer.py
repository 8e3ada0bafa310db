"""How far everything is on the device, and the checkpoint that says so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_log.commitlog.checkpoint import Checkpoint

if TYPE_CHECKING:
    from imago_log.commitlog.checkpoint import CheckpointFile
    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.commitlog.epochs import EpochFile
    from imago_log.commitlog.stamps import LogStamps
    from imago_log.commitlog.watermark import HighWatermark


class Checkpointer:
    """Owns the marks of what views, keys and metadata have on the device."""

    def __init__(
        self,
        file: CheckpointFile,
        log: CommitLog,
        epochs: EpochFile,
        stamps: LogStamps,
        watermark: HighWatermark,
    ) -> None:
        self._file, self._log, self._epochs = file, log, epochs
        self._stamps, self._watermark = stamps, watermark
        self.views_synced = 0
        """Queue views: files hold everything below."""
        self.metadata_synced = 0
        """The metadata snapshot holds every change below."""
        self.snapshot_version = -1
        """Version of the metadata that the snapshot holds."""
        self.keys_synced: tuple[int, int] = (0, 0)
        """Log offset and number of entries up to which the key index is there."""

    @property
    def written(self) -> Checkpoint | None:
        """The checkpoint on the device."""
        return self._file.value

    @property
    def safe(self) -> int:
        """The log offset from which a start after power loss may read again."""
        return min(self.views_synced, self.metadata_synced, self.keys_synced[0])

    def now(self) -> Checkpoint:
        """Return the checkpoint of this moment."""
        log = self._log
        return Checkpoint(
            log_start=log.start,
            log_end=log.end,
            durable_end=log.durable_end,
            views_synced=self.views_synced,
            metadata_end=self.metadata_synced,
            keys_end=self.keys_synced[0],
            keys_count=self.keys_synced[1],
            store_ms=self._stamps.store_ms,
            metaq_id=self._stamps.metaq_id,
            epoch=self._epochs.promised,
            high_watermark=self._watermark.visible,
        )

    def write(self, checkpoint: Checkpoint | None = None) -> Checkpoint:
        """Make a checkpoint durable, by default that of now. LogIOError when it cannot be."""
        made = self.now() if checkpoint is None else checkpoint
        self._file.write(made)
        return made

    # Marks

    def begin_views(self, views_synced: int) -> None:
        """Let the queues' files count up to a log offset."""
        self.views_synced = views_synced

    def lower_views(self, end: int) -> None:
        """Promise no more of the queues' files than this."""
        self.views_synced = min(self.views_synced, end)

    def begin_keys(self, end: int, count: int) -> None:
        """Let the key index count up to a log offset and a number of entries."""
        self.keys_synced = (end, count)

    def lower_keys(self, end: int, count: int) -> None:
        """Promise no more of the key index than this."""
        self.keys_synced = min(self.keys_synced, (end, count))

    def begin_metadata(self, end: int, version: int) -> None:
        """Let the snapshot on the device count up to a log offset: it has this version."""
        self.metadata_synced, self.snapshot_version = end, version

    def note_snapshot(self, version: int) -> None:
        """Note the version of the snapshot that was just put on the device."""
        self.snapshot_version = version

    def begin_at(self, start: int) -> None:
        """Nothing is on the device but what is before the log's start."""
        self.views_synced = self.metadata_synced = start
        self.keys_synced = (start, 0)

    def lower_to(self, end: int) -> None:
        """Promise no more than what stays of a log that is about to be cut; durably.

        The views have lowered their own marks.
        """
        self.metadata_synced = min(self.metadata_synced, end)
        durable_end = min(self._log.durable_end, end)
        self._file.write(replace(self.now(), log_end=end, durable_end=durable_end))

    def close(self) -> None:
        """Close the file."""
        self._file.close()
