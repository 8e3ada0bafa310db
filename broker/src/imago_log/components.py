"""The parts of an open store, and its events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_log.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_log.commitlog.flusher import Flusher
    from imago_log.disk.pressure import DiskPressure
    from imago_log.errors import StoreError
    from imago_log.lifecycle.closing import StoreClosing
    from imago_log.lifecycle.housekeeping import Housekeeper
    from imago_log.lifecycle.log_deleter import LogDeleter
    from imago_log.lifecycle.store_state import StoreState
    from imago_log.reading.position_reader import PositionReader
    from imago_log.reading.reader import MessageReader
    from imago_log.repair.healing import Healer
    from imago_log.repair.scrubbing import Scrubber
    from imago_log.replica.follower_log import FollowerLog
    from imago_log.replica.log_bytes import LogByteReader
    from imago_log.replica.realigning import Realigner
    from imago_log.replica.role import ReplicaRole
    from imago_log.results import DamagedRange
    from imago_log.status import StoreStatus
    from imago_log.views.directory import QueueDirectory
    from imago_log.views.write_behind import WriteBehind
    from imago_log.writing.appender import Appender
    from imago_log.writing.metadata_log import MetadataLog


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
    deleter: LogDeleter
    keeper: Housekeeper
