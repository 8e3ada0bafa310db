"""Puts a store together: opens the parts that hold state and builds the others around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_log.commitlog.commit_log import at_once
from imago_log.commitlog.flusher import InlineFlusher, ThreadFlusher
from imago_log.disk.folder import DataFolder
from imago_log.disk.pressure import DiskPressure, DiskRatios
from imago_log.disk.space import Space
from imago_log.disk.worker import Background, InlineWorker, ThreadWorker
from imago_log.lifecycle.closing import StoreClosing
from imago_log.lifecycle.housekeeping import Housekeeper
from imago_log.lifecycle.log_retention import LogRetention
from imago_log.lifecycle.opening import StoreOpening
from imago_log.lifecycle.store_state import StoreState
from imago_log.lifecycle.view_sync import ViewSync
from imago_log.reading.by_reference import ReferenceReader
from imago_log.reading.position_reader import PositionReader
from imago_log.reading.reader import MessageReader
from imago_log.reading.rereading import Rereader
from imago_log.repair.healing import Healer
from imago_log.repair.scrubbing import Scrubber
from imago_log.replica.cutting import LogCutter
from imago_log.replica.follower_log import FollowerLog
from imago_log.replica.log_bytes import LogByteReader
from imago_log.replica.past_metadata import PastMetadata
from imago_log.replica.realigning import Realigner
from imago_log.replica.role import ReplicaRole
from imago_log.signals import Signal
from imago_log.status import StoreStatus
from imago_log.views.directory import QueueDirectory
from imago_log.views.reindexing import Reindexer, TailFinder
from imago_log.views.write_behind import WriteBehind
from imago_log.writing.appender import Appender
from imago_log.writing.metadata_log import MetadataLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from imago_log.commitlog.flusher import Flusher
    from imago_log.config import StoreConfig
    from imago_log.disk.vfs import Vfs
    from imago_log.disk.worker import Worker
    from imago_log.errors import StoreError
    from imago_log.lifecycle.opening import Opened
    from imago_log.results import DamagedRange


@dataclass(frozen=True, slots=True)
class StoreEvents:
    """Events of a store for its owner."""

    on_durable: Signal[int]
    """In the flusher thread, with the new durable end; listeners must not block or raise."""
    on_damage: Signal[DamagedRange]
    """With each new damaged range, in the thread that found it."""
    on_append: Signal[[]]
    """In the store's thread behind each append, of messages or metadata."""
    on_failure: Signal[StoreError]
    """Once, in the thread that saw it: the process must stop (exit 4)."""
    on_metadata: Signal[Iterable[tuple[str, str]]]
    """In the store's thread with the kinds and keys that changed other than through a call of
    `put_meta` or of the topics' methods: topics, groups, offsets … of the leader."""

    @classmethod
    def make(cls) -> StoreEvents:
        """Return events that nobody listens to."""
        return cls(Signal(), Signal(), Signal(), Signal(), Signal())


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """The components behind the facade."""

    storage: StoreState
    events: StoreEvents
    status: StoreStatus
    pressure: DiskPressure
    flusher: Flusher
    closing: StoreClosing
    directory: QueueDirectory
    reader: MessageReader
    position_reader: PositionReader
    write_behind: WriteBehind
    appender: Appender
    metadata_log: MetadataLog
    follower: FollowerLog
    member: ReplicaRole
    realigner: Realigner
    log_bytes: LogByteReader
    healer: Healer
    scrubber: Scrubber
    retention: LogRetention
    keeper: Housekeeper


def open_components(
    config: StoreConfig,
    vfs: Vfs,
    *,
    clock: Callable[[], int],
    monotonic: Callable[[], int],
    threaded: bool,
    worker: Worker | None,
    lead: bool,
) -> Components:
    """Open the data folder, then start: see `MessageStore.open`."""
    events = StoreEvents.make()
    status = StoreStatus(events.on_failure, leading=lead)

    def make_worker() -> Worker:
        if worker is not None:
            return worker
        return ThreadWorker(status.fail) if threaded else InlineWorker()

    folder = DataFolder(config.data_dir, vfs)
    space = Space(vfs, folder.probe)
    background = Background(space, make_worker)
    folder.take()
    storage: StoreState | None = None
    try:
        storage = StoreState.make(
            config,
            vfs,
            folder,
            background,
            space,
            clock=clock,
            on_damage=events.on_damage,
            others=not lead,
        )
        opened = StoreOpening(storage, lead=lead).run()
    except BaseException:
        if storage is not None:
            storage.release()
        folder.release()
        raise
    background.start()
    return _compose(opened, events, status, clock=clock, monotonic=monotonic, threaded=threaded)


def _compose(
    opened: Opened,
    events: StoreEvents,
    status: StoreStatus,
    *,
    clock: Callable[[], int],
    monotonic: Callable[[], int],
    threaded: bool,
) -> Components:
    s = opened.storage
    config, vfs, folder, log, damage = s.config, s.vfs, s.folder, s.log, s.damage
    metadata, queues, keys, materialiser = s.metadata, s.queues, s.keys, s.materialiser
    background, space = s.background, s.space

    def sync(rest: Callable[[], bool] = at_once) -> None:
        events.on_durable(log.sync(rest))

    ratios = DiskRatios(
        clean=config.disk_clean_ratio, force=config.disk_force_ratio, full=config.disk_full_ratio
    )
    pressure = DiskPressure(vfs, folder.root, space, ratios)
    directory = QueueDirectory(log, metadata, queues, s.queue_folders, materialiser, background)
    write_behind = WriteBehind(
        log,
        s.queue_writer,
        keys,
        materialiser,
        space,
        pressure,
        monotonic,
        config.view_delay_ms,
    )
    appender = Appender(
        config,
        clock,
        status,
        pressure,
        log,
        s.stamps,
        s.recent,
        keys,
        metadata,
        write_behind,
        events.on_append,
    )
    metadata_log = MetadataLog(
        config.store_host, clock, log, metadata, appender, directory, s.queue_writer
    )
    rereader = Rereader(s.inspector, folder)
    scrubber = Scrubber(
        config,
        log,
        damage,
        s.witness,
        vfs,
        folder,
        metadata,
        queues,
        keys,
        materialiser,
        s.refiller,
        s.inspector,
        background,
    )
    view_sync = ViewSync(
        config,
        monotonic,
        opened.last_stop,
        vfs,
        folder,
        log,
        damage,
        s.watermark,
        s.checkpointer,
        metadata,
        s.queue_writer,
        keys,
        materialiser,
        space,
        background,
    )
    retention = LogRetention(
        config,
        vfs,
        log,
        damage,
        s.records,
        s.epochs,
        s.stamps,
        s.watermark,
        s.checkpointer,
        status,
        metadata,
        metadata_log,
        queues,
        keys,
        s.inspector,
        pressure,
        space,
        background,
    )
    keeper = Housekeeper(
        clock,
        monotonic,
        log,
        damage,
        s.epochs,
        folder,
        s.stamps,
        directory,
        materialiser,
        write_behind,
        view_sync,
        retention,
        s.inspector,
        scrubber,
        pressure,
        space,
        background,
        config.due,
    )
    find_tail = TailFinder(
        log, damage, metadata, s.queue_folders, s.refiller, materialiser, directory.get
    )
    follower = FollowerLog(
        log,
        s.recent,
        s.epochs,
        s.stamps,
        status,
        metadata,
        keys,
        s.queue_writer,
        directory,
        find_tail,
    )
    log_bytes = LogByteReader(log, s.recent, s.epochs, damage, s.records, directory)
    realigner = Realigner(
        status,
        folder,
        log,
        damage,
        s.witness,
        s.epochs,
        s.watermark,
        s.checkpointer,
        metadata,
        PastMetadata(vfs, folder, log, damage, s.witness, s.records, metadata, queues),
        directory,
        Reindexer(log, damage, metadata, queues, keys, s.refiller),
        LogCutter(
            vfs,
            folder,
            log,
            s.recent,
            damage,
            s.epochs,
            s.watermark,
            s.checkpointer,
            metadata,
            s.queue_folders,
            s.queue_loader,
            queues,
            keys,
            materialiser,
        ),
        follower,
        log_bytes,
        keeper,
        events.on_metadata,
    )
    if status.leading:
        metadata_log.restate_topics(opened.revived)
    view_sync.keep_found()
    flusher: Flusher = ThreadFlusher(sync, status.fail) if threaded else InlineFlusher(sync)
    return Components(
        storage=s,
        events=events,
        status=status,
        pressure=pressure,
        flusher=flusher,
        closing=StoreClosing(s, status, flusher, keeper),
        directory=directory,
        reader=MessageReader(
            log,
            damage,
            s.records,
            s.watermark,
            directory,
            s.visibility,
            keys,
            s.inspector,
            rereader,
            ReferenceReader(status, s.records, directory, s.visibility, rereader),
        ),
        position_reader=PositionReader(
            log, damage, s.records, directory, s.visibility, materialiser, rereader
        ),
        write_behind=write_behind,
        appender=appender,
        metadata_log=metadata_log,
        follower=follower,
        member=ReplicaRole(
            clock,
            status,
            pressure,
            log,
            s.epochs,
            s.watermark,
            appender,
            follower,
            write_behind,
            events.on_metadata,
        ),
        realigner=realigner,
        log_bytes=log_bytes,
        healer=Healer(log, damage, s.restorer),
        scrubber=scrubber,
        retention=retention,
        keeper=keeper,
    )
