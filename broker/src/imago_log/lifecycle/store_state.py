"""What a store is made of, put together once: nothing here is ever replaced.

log ← damage, records ← queues, keys, MetaQ's files; metadata apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_log.commitlog.checkpoint import CheckpointFile
from imago_log.commitlog.checkpointer import Checkpointer
from imago_log.commitlog.commit_log import CommitLog
from imago_log.commitlog.damage import Damage
from imago_log.commitlog.epochs import EpochFile
from imago_log.commitlog.recent import RecentLog
from imago_log.commitlog.records import LogRecords
from imago_log.commitlog.stamps import LogStamps
from imago_log.commitlog.watermark import HighWatermark
from imago_log.disk.files import FilePool
from imago_log.metadata.state import Metadata
from imago_log.repair.inspecting import Inspector
from imago_log.repair.restoring import ViewRestorer
from imago_log.views.first_files import FirstFiles
from imago_log.views.key_index import KeyIndex
from imago_log.views.materialiser import Materialiser
from imago_log.views.queue_folders import QueueFolders
from imago_log.views.queue_loading import QueueLoader
from imago_log.views.queue_writing import QueueWriter
from imago_log.views.queues import Queues
from imago_log.views.refilling import Refiller
from imago_log.views.unit_proof import UnitProof
from imago_log.views.visibility import Visibility
from imago_log.views.witness import UnitWitness, noted_borders

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log.config import StoreConfig
    from imago_log.disk.folder import DataFolder
    from imago_log.disk.space import Space
    from imago_log.disk.vfs import Vfs
    from imago_log.disk.worker import Background
    from imago_log.results import DamagedRange
    from imago_log.signals import Signal

RECENT_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """The parts that hold a store's state, for who opens it and who puts the rest together."""

    config: StoreConfig
    vfs: Vfs
    folder: DataFolder
    pool: FilePool
    background: Background
    space: Space
    log: CommitLog
    damage: Damage
    recent: RecentLog
    records: LogRecords
    epochs: EpochFile
    witness: UnitWitness
    """Confirms borders of records behind damage."""
    stamps: LogStamps
    watermark: HighWatermark
    checkpointer: Checkpointer
    metadata: Metadata
    queue_folders: QueueFolders
    refiller: Refiller
    queue_loader: QueueLoader
    queues: Queues
    queue_writer: QueueWriter
    keys: KeyIndex
    inspector: Inspector
    visibility: Visibility
    materialiser: Materialiser
    restorer: ViewRestorer

    @classmethod
    def make(
        cls,
        config: StoreConfig,
        vfs: Vfs,
        folder: DataFolder,
        background: Background,
        space: Space,
        *,
        clock: Callable[[], int],
        on_damage: Signal[DamagedRange],
        others: bool,
    ) -> StoreState:
        """Put the parts together; nothing is read yet but checkpoint and epochs."""
        pool = FilePool(vfs, config.files_open_max)
        log = CommitLog(vfs, folder.log, config.segment_bytes_max)
        recent = RecentLog(RECENT_BYTES_MAX)
        damage = Damage(
            vfs,
            folder.damage,
            log,
            clock=clock,
            background=background,
            on_found=on_damage,
            others=others,
        )
        records = LogRecords(log, recent, damage)
        epochs = EpochFile(vfs, folder.epochs)
        stamps, watermark = LogStamps(), HighWatermark(log)
        checkpoint = CheckpointFile(vfs, folder.checkpoint)
        checkpointer = Checkpointer(checkpoint, log, epochs, stamps, watermark)
        metadata = Metadata()
        witness = UnitWitness(
            vfs, folder.queues, lambda: noted_borders(checkpoint.value, epochs.epochs)
        )
        proof = UnitProof(log, damage, witness)
        queue_folders = QueueFolders(folder, pool)
        refiller = Refiller(log, damage, queue_folders, metadata, witness, proof)
        queue_loader = QueueLoader(log, queue_folders, witness, proof, refiller)
        first_files = FirstFiles(vfs, background)
        queues = Queues(queue_folders, queue_loader, first_files)
        keys = KeyIndex(pool, folder.keys)
        queue_writer = QueueWriter(queues, first_files, config.view_pending_bytes_max)
        inspector = Inspector(log, recent, damage, witness, queues, queue_writer, background)
        visibility = Visibility(log, watermark)
        return cls(
            config=config,
            vfs=vfs,
            folder=folder,
            pool=pool,
            background=background,
            space=space,
            log=log,
            damage=damage,
            recent=recent,
            records=records,
            epochs=epochs,
            witness=witness,
            stamps=stamps,
            watermark=watermark,
            checkpointer=checkpointer,
            metadata=metadata,
            queue_folders=queue_folders,
            refiller=refiller,
            queue_loader=queue_loader,
            queues=queues,
            queue_writer=queue_writer,
            keys=keys,
            inspector=inspector,
            visibility=visibility,
            materialiser=Materialiser(
                pool,
                folder.metaq,
                config.metaq_segment_bytes_max,
                log,
                damage,
                background,
                visibility,
                inspector.explained,
            ),
            restorer=ViewRestorer(
                log, records, folder, metadata, queues, keys, refiller, checkpointer
            ),
        )

    def release(self) -> None:
        """Close all files and give the folder back."""
        self.materialiser.forget()
        self.pool.close()
        self.checkpointer.close()
        self.folder.release()
