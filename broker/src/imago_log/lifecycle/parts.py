"""The parts of one open store, together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_log.commitlog.checkpoint import Checkpoint, CheckpointFile
from imago_log.commitlog.commit_log import CommitLog
from imago_log.commitlog.damage import Damage
from imago_log.commitlog.epochs import EpochFile
from imago_log.commitlog.recent import RecentLog
from imago_log.commitlog.records import LogRecords
from imago_log.disk.files import FilePool
from imago_log.disk.folder import DataFolder, LastStop
from imago_log.metadata.state import Metadata
from imago_log.views.key_index import KeyIndex
from imago_log.views.materialiser import Materialiser
from imago_log.views.queues import Queues
from imago_log.views.witness import UnitWitness, noted_borders

if TYPE_CHECKING:
    from imago_log.config import StoreConfig
    from imago_log.disk.vfs import Vfs
    from imago_log.views.consume_queue import ConsumeQueue

RECENT_BYTES_MAX = 8 << 20
ALL_VISIBLE = (1 << 63) - 1
"""The high watermark of a log that has one member: everything written is visible."""


@dataclass(slots=True)
class Parts:
    """What stands on what: log ← records ← queues, keys, materialised files; metadata apart."""

    config: StoreConfig
    vfs: Vfs
    folder: DataFolder
    pool: FilePool
    log: CommitLog
    damage: Damage
    recent: RecentLog
    records: LogRecords
    queues: Queues
    keys: KeyIndex
    materialiser: Materialiser
    checkpoint: CheckpointFile
    epochs: EpochFile
    witness: UnitWitness
    """Confirms borders of records behind damage."""
    metadata: Metadata = field(default_factory=Metadata)
    last_stop: LastStop = LastStop.CLEAN
    leading: bool = False
    """Whether this member writes the log; a follower takes it from the leader."""
    watermark: int = ALL_VISIBLE
    """Records below this log offset are visible; what readers see of it ends at the log's end."""
    store_ms: int = 0
    """Newest store timestamp in the log."""
    metaq_id: int = 0
    """Highest MetaQ id in the log."""
    views_synced: int = 0
    metadata_synced: int = 0
    """The metadata snapshot on the device holds every change below."""
    metadata_unsure: bool = False
    """Changes of metadata may be lost in damage of the log."""
    revived: set[str] = field(default_factory=set)
    """Topics that the log must be told of again: their creation is lost in damage."""
    snapshot_version: int = -1
    """Version of the metadata that the snapshot on the device holds."""
    keys_synced: tuple[int, int] = (0, 0)
    """Log offset and number of entries up to which the key index is on the device."""

    @classmethod
    def make(cls, config: StoreConfig, vfs: Vfs, folder: DataFolder) -> Parts:
        """Put the parts together; nothing is read yet but checkpoint and epochs."""
        pool = FilePool(vfs, config.files_open_max)
        log = CommitLog(vfs, folder.log, config.segment_bytes_max)
        recent = RecentLog(RECENT_BYTES_MAX)
        damage = Damage(vfs, folder.damage, log)
        records = LogRecords(log, recent, damage)
        checkpoint = CheckpointFile(vfs, folder.checkpoint)
        epochs = EpochFile(vfs, folder.epochs)
        parts = cls(
            config=config,
            vfs=vfs,
            folder=folder,
            pool=pool,
            log=log,
            damage=damage,
            recent=recent,
            records=records,
            queues=Queues(folder, pool, config.view_pending_bytes_max),
            keys=KeyIndex(pool, folder.keys),
            materialiser=Materialiser(pool, folder.metaq, config, log, damage),
            checkpoint=checkpoint,
            epochs=epochs,
            witness=UnitWitness(
                vfs, folder.queues, lambda: noted_borders(checkpoint.value, epochs.epochs)
            ),
        )
        parts.materialiser.visible_end = parts.visible_end
        return parts

    def visible_end(self, queue: ConsumeQueue) -> int:
        """Return the offset behind a queue's last message below the high watermark."""
        if self.watermark < self.log.end:
            return queue.end_below(self.watermark)
        return queue.end

    def checkpoint_now(self) -> Checkpoint:
        """Return the checkpoint of this moment."""
        return Checkpoint(
            log_start=self.log.start,
            log_end=self.log.end,
            durable_end=self.log.durable_end,
            views_synced=self.views_synced,
            metadata_end=self.metadata_synced,
            keys_end=self.keys_synced[0],
            keys_count=self.keys_synced[1],
            store_ms=self.store_ms,
            metaq_id=self.metaq_id,
            epoch=self.epochs.promised,
            high_watermark=min(self.watermark, self.log.end),
        )

    def release(self) -> None:
        """Close all files and give the folder back."""
        self.materialiser.forget()
        self.pool.close()
        self.checkpoint.close()
        self.folder.release()
