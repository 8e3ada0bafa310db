"""What a store is made of, put together once: nothing here is ever replaced.

log ← damage, records ← queues, keys, MetaQ's files; metadata apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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
from imago_log.disk.pressure import DiskPressure, DiskRatios
from imago_log.metadata.state import Metadata
from imago_log.repair.inspecting import Inspector
from imago_log.repair.restoring import ViewRestorer
from imago_log.views.key_index import KeyIndex
from imago_log.views.metaq.materialiser import Materialiser
from imago_log.views.queues.first_files import FirstFiles
from imago_log.views.queues.queue_folders import QueueFolders
from imago_log.views.queues.queue_loading import QueueLoader
from imago_log.views.queues.queue_writing import QueueWriter
from imago_log.views.queues.queues import Queues
from imago_log.views.queues.queues_view import QueuesView
from imago_log.views.queues.refilling import Refiller
from imago_log.views.units.unit_proof import UnitProof
from imago_log.views.units.visibility import Visibility
from imago_log.views.units.witness import UnitWitness, noted_borders

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log.config import StoreConfig
    from imago_log.disk.folder import DataFolder
    from imago_log.disk.space import Space
    from imago_log.disk.vfs import Vfs
    from imago_log.disk.worker import Background
    from imago_log.results import DamagedRange
    from imago_log.signals import Signal
    from imago_log.status import StoreStatus
    from imago_log.views.view import View

RECENT_BYTES_MAX = 8 << 20


class StoreState:
    """The parts that hold a store's state, for who opens it and who puts the rest together."""

    def __init__(
        self,
        config: StoreConfig,
        vfs: Vfs,
        folder: DataFolder,
        background: Background,
        space: Space,
        *,
        status: StoreStatus,
        clock: Callable[[], int],
        monotonic: Callable[[], int],
        on_damage: Signal[DamagedRange],
    ) -> None:
        """Put the parts together; nothing is read yet but checkpoint and epochs."""
        self.config, self.vfs, self.folder = config, vfs, folder
        self.background, self.space, self.status = background, space, status
        self.clock, self.monotonic = clock, monotonic
        self.pressure: Final = DiskPressure(vfs, folder.root, space, DiskRatios.of(config))
        self.pool: Final = FilePool(vfs, config.files_open_max)
        log = self.log = CommitLog(vfs, folder.log, config.segment_bytes_max)
        self.recent: Final = RecentLog(RECENT_BYTES_MAX)
        damage = self.damage = Damage(
            vfs,
            folder.damage,
            log,
            clock=clock,
            background=background,
            on_found=on_damage,
            others=not status.leading,
        )
        self.records: Final = LogRecords(log, self.recent, damage)
        epochs = self.epochs = EpochFile(vfs, folder.epochs)
        self.stamps: Final = LogStamps()
        self.watermark: Final = HighWatermark(log)
        checkpoint = CheckpointFile(vfs, folder.checkpoint)
        self.checkpointer: Final = Checkpointer(
            checkpoint, log, epochs, self.stamps, self.watermark
        )
        self.metadata: Final = Metadata()
        # What confirms borders of records behind damage.
        witness = self.witness = UnitWitness(
            vfs, folder.queues, lambda: noted_borders(checkpoint.value, epochs.epochs)
        )
        proof = UnitProof(log, damage, witness)
        self.queue_folders: Final = QueueFolders(folder, self.pool)
        self.refiller: Final = Refiller(
            log, damage, self.queue_folders, self.metadata, witness, proof
        )
        self.queue_loader: Final = QueueLoader(
            log, self.queue_folders, witness, proof, self.refiller
        )
        first_files = FirstFiles(vfs, background)
        self.queues: Final = Queues(self.queue_folders, self.queue_loader, first_files)
        self.keys: Final = KeyIndex(self.pool, folder.keys)
        self.queue_writer: Final = QueueWriter(
            self.queues, first_files, config.view_pending_bytes_max
        )
        self.inspector: Final = Inspector(
            log, self.recent, damage, witness, self.queues, self.queue_writer, background
        )
        self.visibility: Final = Visibility(log, self.watermark)
        self.materialiser: Final = Materialiser(
            self.pool,
            folder.metaq,
            config.metaq_segment_bytes_max,
            log,
            damage,
            background,
            self.visibility,
            self.inspector.explained,
        )
        self.views: Final[tuple[View, ...]] = (
            QueuesView(self.queues, self.queue_writer, self.queue_loader, self.metadata, damage),
            self.materialiser,
            self.keys,
        )
        self.restorer: Final = ViewRestorer(
            log,
            self.records,
            folder,
            self.metadata,
            self.queues,
            self.keys,
            self.refiller,
            self.checkpointer,
        )

    def release(self) -> None:
        """Close all files and give the folder back."""
        self.materialiser.reset(self.log.start)
        self.pool.close()
        self.checkpointer.close()
        self.folder.release()
