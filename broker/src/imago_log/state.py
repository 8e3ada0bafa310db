"""What a store is made of, put together once: nothing here is ever replaced.

log ← damage, records ← queues, keys, MetaQ's files; metadata apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

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
from imago_log.views.keys_view import KeysView
from imago_log.views.metaq.materialiser import Materialiser
from imago_log.views.metaq.metaq_segments import MetaqFolder
from imago_log.views.metaq.metaq_view import MetaqView
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

RECENT_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a store stands on: its folder on a disk, the worker, and clocks in milliseconds."""

    vfs: Vfs
    folder: DataFolder
    background: Background
    space: Space
    clock: Callable[[], int]
    """The wall's, since the epoch."""
    monotonic: Callable[[], int]
    """One that never jumps."""


class Views(NamedTuple):
    """All that is derived from the log: whoever changes it goes through them, in this order.

    Units first, then what is made from them. What is undone goes through them the other way round.
    """

    queues: QueuesView
    metaq: MetaqView
    keys: KeysView


class StoreState:
    """The parts that hold a store's state, for who opens it and who puts the rest together."""

    def __init__(
        self,
        config: StoreConfig,
        ground: Ground,
        status: StoreStatus,
        on_damage: Signal[DamagedRange],
    ) -> None:
        """Put the parts together; nothing is read yet but checkpoint and epochs."""
        self.config, self.status = config, status
        self.clock, self.monotonic, self.space = ground.clock, ground.monotonic, ground.space
        vfs, folder, background = ground.vfs, ground.folder, ground.background
        self.vfs, self.folder, self.background = vfs, folder, background
        self.pressure: Final = DiskPressure(vfs, folder.root, self.space, DiskRatios.of(config))
        self.pool: Final = FilePool(vfs, config.files_open_max)
        log = self.log = CommitLog(vfs, folder.log, config.segment_bytes_max)
        self.recent: Final = RecentLog(RECENT_BYTES_MAX)
        damage = self.damage = Damage(
            vfs=vfs,
            path=folder.damage,
            log=log,
            clock=ground.clock,
            background=background,
            on_found=on_damage,
            others=not status.leading,
        )
        self.records: Final = LogRecords(log, self.recent, damage)
        epochs = self.epochs = EpochFile(vfs, folder.epochs)
        self.stamps: Final = LogStamps()
        self.watermark: Final = HighWatermark(log)
        self.checkpointer: Final = Checkpointer(
            CheckpointFile(vfs, folder.checkpoint), log, epochs, self.stamps, self.watermark
        )
        self.metadata: Final = Metadata()
        # What confirms borders of records behind damage.
        witness = self.witness = UnitWitness(
            vfs, folder.queues, lambda: noted_borders(self.checkpointer.written, epochs.epochs)
        )
        proof = UnitProof(log, damage, witness)
        self.queue_folders: Final = QueueFolders(folder, self.pool)
        self.refiller: Final = Refiller(self.queue_folders, self.metadata, proof)
        self.queue_loader: Final = QueueLoader(
            log, self.queue_folders, witness, proof, self.refiller
        )
        self.queues: Final = Queues(
            self.queue_folders, self.queue_loader, FirstFiles(vfs, background)
        )
        self.keys: Final = KeyIndex(self.pool, folder.keys)
        self.queue_writer: Final = QueueWriter(self.queues, config.view_pending_bytes_max)
        self.inspector: Final = Inspector(
            proof, self.recent, self.queues, self.queue_writer, background
        )
        self.visibility: Final = Visibility(log, self.watermark)
        self.materialiser: Final = Materialiser(
            MetaqFolder(self.pool, folder.metaq, config.metaq_segment_bytes_max),
            log,
            damage,
            background,
            self.visibility,
            self.inspector.explained,
        )
        self.refiller.refilled.add(self.materialiser.make_again)
        self.views: Final = Views(
            QueuesView(
                self.queues,
                self.queue_writer,
                self.queue_loader,
                self.refiller,
                self.checkpointer,
                self.inspector.put_right,
            ),
            MetaqView(self.materialiser, vfs),
            KeysView(self.keys, log, folder, self.checkpointer),
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
