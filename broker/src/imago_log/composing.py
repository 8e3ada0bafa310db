"""Opening a store: its parts are made here, each with the parts that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_log.commitlog.commit_log import at_once
from imago_log.commitlog.flusher import InlineFlusher, ThreadFlusher
from imago_log.components import Components, StoreEvents
from imago_log.disk.folder import DataFolder
from imago_log.disk.pressure import DiskPressure, DiskRatios
from imago_log.disk.space import Space
from imago_log.disk.worker import Background, InlineWorker, ThreadWorker
from imago_log.lifecycle.closing import StoreClosing
from imago_log.lifecycle.housekeeping import Housekeeper
from imago_log.lifecycle.log_deleter import LogDeleter
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
from imago_log.status import StoreStatus
from imago_log.views.directory import QueueDirectory
from imago_log.views.reindexing import Reindexer, TailFinder
from imago_log.views.write_behind import WriteBehind
from imago_log.writing.appender import Appender
from imago_log.writing.metadata_log import MetadataLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log.commitlog.flusher import Flusher
    from imago_log.config import StoreConfig
    from imago_log.disk.folder import LastStop
    from imago_log.disk.vfs import Vfs
    from imago_log.disk.worker import Worker
    from imago_log.lifecycle.opening import Opened


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


@dataclass(frozen=True, slots=True)
class _Core:
    """What the other parts are made of: the put path, and whatever it needs."""

    storage: StoreState
    events: StoreEvents
    status: StoreStatus
    clock: Callable[[], int]
    monotonic: Callable[[], int]
    pressure: DiskPressure
    directory: QueueDirectory
    write_behind: WriteBehind
    appender: Appender
    metadata_log: MetadataLog


def _core(
    s: StoreState,
    events: StoreEvents,
    status: StoreStatus,
    *,
    clock: Callable[[], int],
    monotonic: Callable[[], int],
) -> _Core:
    config, log, metadata, keys, space = s.config, s.log, s.metadata, s.keys, s.space
    ratios = DiskRatios(
        clean=config.disk_clean_ratio, force=config.disk_force_ratio, full=config.disk_full_ratio
    )
    pressure = DiskPressure(s.vfs, s.folder.root, space, ratios)
    directory = QueueDirectory(
        log, metadata, s.queues, s.queue_folders, s.materialiser, s.background
    )
    write_behind = WriteBehind(
        log,
        s.queue_writer,
        keys,
        s.materialiser,
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
    return _Core(
        storage=s,
        events=events,
        status=status,
        clock=clock,
        monotonic=monotonic,
        pressure=pressure,
        directory=directory,
        write_behind=write_behind,
        appender=appender,
        metadata_log=metadata_log,
    )


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
    log = s.log

    def sync(rest: Callable[[], bool] = at_once) -> None:
        events.on_durable(log.sync(rest))

    core = _core(s, events, status, clock=clock, monotonic=monotonic)
    directory = core.directory
    rereader = Rereader(s.inspector, s.folder)
    scrubber = _scrubber(s)
    view_sync = _view_sync(s, opened.last_stop, monotonic)
    deleter = _deleter(core)
    keeper = _keeper(core, view_sync, deleter, scrubber)
    follower = _follower(core)
    log_bytes = LogByteReader(log, s.recent, s.epochs, s.damage, s.records, directory)
    realigner = _realigner(core, follower, log_bytes, keeper)
    if status.leading:
        core.metadata_log.restate_topics(opened.revived)
    view_sync.keep_found()
    flusher: Flusher = ThreadFlusher(sync, status.fail) if threaded else InlineFlusher(sync)
    return Components(
        storage=s,
        events=events,
        status=status,
        pressure=core.pressure,
        flusher=flusher,
        closing=StoreClosing(s, status, flusher, keeper),
        directory=directory,
        reader=_message_reader(core, rereader),
        position_reader=PositionReader(
            log, s.damage, s.records, directory, s.visibility, s.materialiser, rereader
        ),
        write_behind=core.write_behind,
        appender=core.appender,
        metadata_log=core.metadata_log,
        follower=follower,
        member=_role(core, follower),
        realigner=realigner,
        log_bytes=log_bytes,
        healer=Healer(log, s.damage, s.restorer),
        scrubber=scrubber,
        deleter=deleter,
        keeper=keeper,
    )


def _scrubber(s: StoreState) -> Scrubber:
    return Scrubber(
        s.config,
        s.log,
        s.damage,
        s.witness,
        s.vfs,
        s.folder,
        s.metadata,
        s.queues,
        s.keys,
        s.materialiser,
        s.refiller,
        s.inspector,
        s.background,
    )


def _view_sync(s: StoreState, last_stop: LastStop, monotonic: Callable[[], int]) -> ViewSync:
    return ViewSync(
        s.config,
        monotonic,
        last_stop,
        s.vfs,
        s.folder,
        s.log,
        s.damage,
        s.watermark,
        s.checkpointer,
        s.metadata,
        s.queue_writer,
        s.keys,
        s.materialiser,
        s.space,
        s.background,
    )


def _deleter(core: _Core) -> LogDeleter:
    s = core.storage
    return LogDeleter(
        s.config,
        s.vfs,
        s.log,
        s.damage,
        s.records,
        s.epochs,
        s.stamps,
        s.watermark,
        s.checkpointer,
        core.status,
        s.metadata,
        core.metadata_log,
        s.queues,
        s.keys,
        s.inspector,
        core.pressure,
        s.space,
        s.background,
    )


def _keeper(
    core: _Core, view_sync: ViewSync, deleter: LogDeleter, scrubber: Scrubber
) -> Housekeeper:
    s = core.storage
    return Housekeeper(
        core.clock,
        core.monotonic,
        s.log,
        s.damage,
        s.epochs,
        s.folder,
        s.stamps,
        core.directory,
        s.materialiser,
        core.write_behind,
        view_sync,
        deleter,
        s.inspector,
        scrubber,
        core.pressure,
        s.space,
        s.background,
        s.config.due,
    )


def _follower(core: _Core) -> FollowerLog:
    s, directory = core.storage, core.directory
    find_tail = TailFinder(
        s.log,
        s.damage,
        s.metadata,
        s.queue_folders,
        s.refiller,
        s.materialiser,
        directory.get,
    )
    return FollowerLog(
        s.log,
        s.recent,
        s.epochs,
        s.stamps,
        core.status,
        s.metadata,
        s.keys,
        s.queue_writer,
        directory,
        find_tail,
    )


def _role(core: _Core, follower: FollowerLog) -> ReplicaRole:
    s = core.storage
    return ReplicaRole(
        core.clock,
        core.status,
        core.pressure,
        s.log,
        s.epochs,
        s.watermark,
        core.appender,
        follower,
        core.write_behind,
        core.events.on_metadata,
    )


def _realigner(
    core: _Core, follower: FollowerLog, log_bytes: LogByteReader, keeper: Housekeeper
) -> Realigner:
    s = core.storage
    past = PastMetadata(
        s.vfs, s.folder, s.log, s.damage, s.witness, s.records, s.metadata, s.queues
    )
    cutter = LogCutter(
        s.vfs,
        s.folder,
        s.log,
        s.recent,
        s.damage,
        s.epochs,
        s.watermark,
        s.checkpointer,
        s.metadata,
        s.queue_folders,
        s.queue_loader,
        s.queues,
        s.keys,
        s.materialiser,
    )
    return Realigner(
        core.status,
        s.folder,
        s.log,
        s.damage,
        s.witness,
        s.epochs,
        s.watermark,
        s.checkpointer,
        s.metadata,
        past,
        core.directory,
        Reindexer(s.log, s.damage, s.metadata, s.queues, s.keys, s.refiller),
        cutter,
        follower,
        log_bytes,
        keeper,
        core.events.on_metadata,
    )


def _message_reader(core: _Core, rereader: Rereader) -> MessageReader:
    s, directory = core.storage, core.directory
    references = ReferenceReader(core.status, s.records, directory, s.visibility, rereader)
    return MessageReader(
        s.log,
        s.damage,
        s.records,
        s.watermark,
        directory,
        s.visibility,
        s.keys,
        s.inspector,
        rereader,
        references,
    )
