"""The parts of an open store and how they are put together, and its events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from imago_log.commitlog.commit_log import at_once
from imago_log.commitlog.flusher import InlineFlusher, ThreadFlusher
from imago_log.lifecycle.closing import StoreClosing
from imago_log.lifecycle.forced import ForcedDeletions
from imago_log.lifecycle.housekeeping import Housekeeper
from imago_log.lifecycle.log_deleter import LogDeleter
from imago_log.lifecycle.scrubbing import Scrubber
from imago_log.lifecycle.view_sync import ViewSync
from imago_log.reading.by_reference import ReferenceReader
from imago_log.reading.position_reader import PositionReader
from imago_log.reading.reader import MessageReader
from imago_log.reading.rereading import Rereader
from imago_log.repair.healing import Healer
from imago_log.replica.follower_log import FollowerLog
from imago_log.replica.log_bytes import LogByteReader
from imago_log.replica.realigning import Realigner
from imago_log.replica.reindexing import TailFinder
from imago_log.replica.role import ReplicaRole
from imago_log.signals import Signal
from imago_log.views.directory import QueueDirectory
from imago_log.writing.appender import Appender
from imago_log.writing.metadata_log import MetadataLog
from imago_log.writing.write_behind import WriteBehind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from imago_log.commitlog.flusher import Flusher
    from imago_log.errors import StoreError
    from imago_log.lifecycle.forced import ForcedRange
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
    on_forced: Signal[ForcedRange, int]
    """In the store's thread with what goes for want of room before it has expired, and how many
    messages that are."""

    @classmethod
    def make(cls) -> StoreEvents:
        """Return events that nobody listens to."""
        return cls(Signal(), Signal(), Signal(), Signal(), Signal(), Signal())


class Components:
    """The components behind the facade, each made with the parts that it needs."""

    def __init__(
        self,
        opened: Opened,
        events: StoreEvents,
        *,
        threaded: bool,
        draw: Callable[[], int] | None,
    ) -> None:
        s = self.storage = opened.storage
        self.events: Final = events
        self.status: Final = s.status
        self.pressure: Final = s.pressure
        directory = self.directory = QueueDirectory(
            s.metadata, s.queues, s.queue_folders, s.materialiser, s.background
        )
        self.write_behind: Final = WriteBehind(s)
        self.appender: Final = Appender(s, self.write_behind, events.on_append)
        self.metadata_log: Final = MetadataLog(s, self.appender, directory, draw)
        self.scrubber: Final = Scrubber(s)
        view_sync = ViewSync(s, opened.last_stop)
        forced = ForcedDeletions(s.queues, s.metadata, s.log, events.on_forced)
        self.deleter: Final = LogDeleter(s, self.metadata_log, forced)
        self.keeper: Final = Housekeeper(
            s, directory, self.write_behind, view_sync, self.deleter, self.scrubber
        )
        self.follower: Final = FollowerLog(s, directory, TailFinder(s, directory.get))
        self.log_bytes: Final = LogByteReader(s, directory)
        self.realigner: Final = Realigner(
            s, directory, self.follower, self.log_bytes, self.keeper, events.on_metadata
        )
        if s.status.leading:
            self.metadata_log.restate_topics(opened.revived)
        view_sync.keep_found()

        def sync(rest: Callable[[], bool] = at_once) -> None:
            events.on_durable(s.log.sync(rest))

        self.flusher: Final[Flusher] = (
            ThreadFlusher(sync, s.status.fail) if threaded else InlineFlusher(sync)
        )
        self.closing: Final = StoreClosing(s, self.flusher, self.keeper)
        rereader = Rereader(s.inspector, s.folder)
        references = ReferenceReader(s.status, s.records, directory, s.visibility, rereader)
        self.reader: Final = MessageReader(s, directory, rereader, references)
        self.position_reader: Final = PositionReader(s, directory, rereader)
        self.member: Final = ReplicaRole(
            s, self.appender, self.follower, self.write_behind, events.on_metadata
        )
        self.healer: Final = Healer(s.log, s.damage, s.restorer)
