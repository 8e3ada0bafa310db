"""The message store: one append-only log and the views made from it.

`append` writes (page cache), `request_sync` makes durable, `on_durable` says how far. Everything
but the log can be rebuilt from it. Called from one thread; the flusher and the background worker
are threads of the store's own and call back only through `on_durable` and `on_failure`.

A store is the only member of its shard and leads from the start, or it is one of several: then it
appends after `lead`, and takes the leader's bytes by `append_replica` after `follow`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.composing import open_components
from imago_log.disk.vfs import OsVfs
from imago_log.lifecycle.claims import NO_CLAIMS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_log.commitlog.epochs import Epochs
    from imago_log.components import Components
    from imago_log.config import StoreConfig
    from imago_log.disk.pressure import DiskLevel
    from imago_log.disk.vfs import Vfs
    from imago_log.disk.worker import Worker
    from imago_log.lifecycle.claims import Claims
    from imago_log.metadata.changes import JSON, Change
    from imago_log.metadata.producers import Producers
    from imago_log.reading.by_properties import Wanted
    from imago_log.results import DamagedRange, FileSlice, MetaqRead, ReadResult, StoreHealth
    from imago_wire.hot import QueueTail
    from imago_wire.record_format.entries import Entries
    from imago_wire.records.record import Placed


class MessageStore:
    """One shard's messages, topics and offsets in one data folder. Made by `open`.

    Everything is done by the components; this is their one face. `on_…`: see `StoreEvents`.
    """

    def __init__(self, components: Components) -> None:
        self.components = components
        storage, events = components.storage, components.events
        self._log, self._metadata, self._epochs = storage.log, storage.metadata, storage.epochs
        self._damage, self._folder, self._status = storage.damage, storage.folder, components.status
        self._appender, self._reader = components.appender, components.reader
        self._position_reader, self._directory = components.position_reader, components.directory
        self._metadata_log, self._member = components.metadata_log, components.member
        self._realigner, self._log_bytes = components.realigner, components.log_bytes
        self.config = storage.config
        self.on_durable, self.on_damage = events.on_durable, events.on_damage
        self.on_append, self.on_failure = events.on_append, events.on_failure
        self.on_metadata, self.on_forced = events.on_metadata, events.on_forced
        self.identities, self.forced = components.metadata_log.identities, components.deleter.forced

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        *,
        clock: Callable[[], int],
        monotonic: Callable[[], int] | None = None,
        vfs: Vfs | None = None,
        threaded: bool = True,
        lead: bool = True,
        worker: Worker | None = None,
        draw: Callable[[], int] | None = None,
    ) -> MessageStore:
        """Open or make the data folder; recover what a crash left.

        `clock` gives epoch milliseconds, `monotonic` milliseconds that never jump (by default the
        same: then no step of the clock can be told from time that passes). With `lead` the store
        is the only member of its shard: it opens an epoch by itself, and all that is written is
        visible. Without, it is one of several: nothing is appended before `lead` or `follow` is
        called, and visible is what was known to be on all members when the last process wrote it
        down. With `threaded=False` syncs and background work run inside the call that asks for
        them (tests, tools); `worker` stands in for the background one. `draw` gives new topics
        their incarnations. Raises DataFolderLockedError, CorruptLogError, LogIOError.
        """
        return cls(
            open_components(
                config,
                vfs or OsVfs(),
                clock=clock,
                monotonic=monotonic or clock,
                threaded=threaded,
                worker=worker,
                lead=lead,
                draw=draw,
            )
        )

    # Ends

    @property
    def log_start(self) -> int:
        """Log offset of the oldest record that is kept."""
        return self._log.start

    @property
    def log_end(self) -> int:
        """Log offset that the next record gets, unless it needs a new file."""
        return self._log.end

    @property
    def durable_end(self) -> int:
        """Everything below is on the device."""
        return self._log.durable_end

    @property
    def newest_ms(self) -> int:
        """Store time of the newest record; times of the log never go back."""
        return self.components.storage.stamps.store_ms

    @property
    def high_watermark(self) -> int:
        """Everything below is visible to readers; the log's end while there is one member."""
        return self.components.storage.watermark.visible

    def set_high_watermark(self, offset: int) -> None:
        """Make everything below visible, and nothing else; a record border, never goes back.

        Never above the log's end. From the first call on the log has several members: without
        one, all that is written is visible at once.
        """
        self.components.storage.watermark.raise_to(offset)

    # Appending

    def take_metaq_id(self, above: int = 0) -> int:
        """Give out the id of a message that is put later, if ever: no other gets it."""
        return self._appender.take_metaq_id(above)

    def keep_whole(self, start: int, end: int) -> None:
        """Have all that was just appended to this range become visible at once."""
        self.components.storage.watermark.keep_whole(start, end)

    def append(
        self, entries: Entries, *, sequenced: bool = False, whole: bool = False
    ) -> list[Placed]:
        """Write the entries in this order, in one call to the file; they are readable at once.

        `sequenced`: there may be messages of idempotent producers among them, see `producers`.
        `whole`: all of it is in one file, so that retention takes it at once.
        DiskFullError, StoreClosedError, NotLeadingError, DeadQueueError: nothing was appended.
        LimitExceededError: a record, or what stays whole, is larger than a log file; nothing was
        appended. LogIOError: stop the process.
        """
        return self._appender.append(entries, sequenced=sequenced, whole=whole)

    def request_sync(self, *, urgent: bool = True) -> None:
        """Ask that all appended so far becomes durable; not `urgent`: leave others the CPU."""
        self.components.flusher.request(urgent=urgent)

    def tail(self, topic: str, queue_id: int) -> QueueTail:
        """Return the handle that entries of this queue carry; KeyError for an unknown topic.

        The queue is made when it does not exist. A handle dies with its topic: take a new one.
        """
        return self._directory.tail(topic, queue_id)

    # Reading

    def queues(self, topic: str) -> list[int]:
        """Return the numbers of a topic's queues, of those on disk and of those made since."""
        return self._directory.numbers(topic)

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the smallest stored and the visible end queue offset; (0, 0) when unknown."""
        return self._reader.queue_range(topic, queue_id)

    def position_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the smallest stored and the visible end MetaQ position; (0, 0) when unknown."""
        return self._position_reader.position_range(topic, queue_id)

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        messages_max: int,
        bytes_max: int,
        tags: frozenset[int] | None = None,
        wanted: Wanted | None = None,
    ) -> ReadResult:
        """Return records from a queue offset on, at least one if there is one to return.

        `tags`: signed 32-bit hashes of the wanted tags; None wants all. `wanted`, instead: which
        messages by their properties. Messages lost in damage of the log are passed over.
        """
        limits = {"messages_max": messages_max, "bytes_max": bytes_max}
        return self._reader.read(topic, queue_id, offset, **limits, tags=tags, wanted=wanted)

    def read_positions(self, topic: str, queue_id: int, position: int, bytes_max: int) -> MetaqRead:
        """Return messages in MetaQ's form from a position on.

        A position inside a message stands for the next message, so nothing is skipped.
        """
        return self._position_reader.read(topic, queue_id, position, bytes_max)

    def record_at(self, log_offset: int) -> bytes | None:
        """Return the whole record that starts there, or None: there is none, or not visible."""
        return self._reader.record_at(log_offset)

    def offset_by_time(self, topic: str, queue_id: int, ms: int, *, upper: bool = False) -> int:
        """Return the first offset stored at or after `ms`; `upper`: the last at or before it."""
        return self._reader.offset_by_time(topic, queue_id, ms, upper=upper)

    def position_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the MetaQ position of a queue offset, both clamped to what is stored."""
        return self._position_reader.position_of(topic, queue_id, offset)

    def offset_of(self, topic: str, queue_id: int, position: int) -> int:
        """Return the queue offset of the first message at or after a MetaQ position."""
        return self._position_reader.offset_of(topic, queue_id, position)

    def placed(self, topic: str, queue_id: int, offset: int, count: int) -> list[Placed]:
        """Return where `count` stored messages from a queue offset on are, as `append` told it.

        Without their MetaQ positions and ids; empty where the queue no longer knows all of them.
        """
        return self._reader.placed(topic, queue_id, offset, count)

    def units(self, topic: str, queue_id: int, offset: int, count: int) -> bytes:
        """Return up to `count` visible units from a queue offset on, 20 bytes each (`UNIT`)."""
        return self._reader.units(topic, queue_id, offset, count)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Return the store time of one message in epoch milliseconds, or None."""
        return self._reader.store_time(topic, queue_id, offset)

    def find_key(
        self,
        topic: str,
        key: str,
        begin_ms: int,
        end_ms: int,
        count_max: int,
        *,
        bytes_max: int | None = None,
    ) -> list[bytes]:
        """Return whole records with the key, the newest that fit both limits, oldest first."""
        return self._reader.find_key(topic, key, begin_ms, end_ms, count_max, bytes_max=bytes_max)

    # Metadata

    def create_topic(self, name: str, value: Mapping[str, JSON]) -> None:
        """Create a topic, or replace the value of an existing one; see `create_topics`."""
        self._metadata_log.create_topics({name: value})

    def create_topics(self, values: Mapping[str, Mapping[str, JSON]]) -> None:
        """Create topics, or replace values of existing ones; see `MetadataLog.create_topics`."""
        self._metadata_log.create_topics(values)

    def delete_topic(self, *names: str) -> None:
        """Forget topics and their queues. KeyError when one is unknown: none is forgotten."""
        self._metadata_log.delete_topics(names)

    def topics(self) -> Mapping[str, dict[str, JSON]]:
        """Values by name, as given to `create_topic`; a live read-only view."""
        return self._metadata_log.topics()

    def incarnation(self, topic: str) -> int | None:
        """Return what tells a topic from earlier ones of its name, on all members of the shard."""
        found = self._metadata.topics.get(topic)
        return None if found is None else found.incarnation

    def put_meta(self, changes: Sequence[Change]) -> int:
        """Record (kind, key, value) changes in the log, None removes; return the end offset.

        ChangeTooLargeError: one has more than `CHANGE_BYTES_MAX` bytes; none was recorded.
        """
        return self._metadata_log.put_meta(changes)

    def meta(self, kind: str) -> Mapping[str, JSON]:
        """Current values of one kind by key; a live read-only view."""
        return self._metadata_log.meta(kind)

    def set_materialised(self, topic: str) -> None:
        """Keep MetaQ's own files for this topic from now on; a replicated topic attribute.

        KeyError: unknown topic. ValueError: the topic has no MetaQ positions.
        """
        self._metadata_log.set_materialised(topic)

    @property
    def producers(self) -> Producers:
        """What idempotent producers have sent, at the log's end. Only to be asked."""
        return self._metadata.producers

    # Leading and following

    @property
    def leading(self) -> bool:
        """Whether this store appends."""
        return self._status.leading

    @property
    def epochs(self) -> Epochs:
        """(epoch, first log offset) of all that is in the log, the oldest may begin before it."""
        return self._epochs.epochs

    @property
    def epoch_seen(self) -> int:
        """The highest epoch ever led, followed or promised, as the device has it; the leader's."""
        return self._epochs.promised

    @property
    def unclean(self) -> bool:
        """Whether a member's log may lack records that were acknowledged, as the folder notes.

        Noted when power was lost under a running member, and by `mark_unclean`.
        """
        return self._folder.unclean

    def mark_unclean(self, unclean: bool) -> None:
        """Note on the device that the log may lack acknowledged records, or that it does not."""
        with self._status.failing():
            self._folder.mark_unclean(unclean)

    def lead(self, epoch: int) -> None:
        """Begin to append, in an epoch of its own: see `ReplicaRole.lead`."""
        self._member.lead(epoch)

    def follow(self, epoch: int) -> None:
        """Stop appending, and take nothing of an older epoch: see `ReplicaRole.follow`."""
        self._member.follow(epoch)

    def append_replica(
        self, offset: int, data: bytes | memoryview, *, epoch: int, epoch_start: int
    ) -> int:
        """Take bytes of the leader's log that continue this one; return the new log end.

        See `ReplicaRole.append_replica` for what is refused and what was taken then.
        """
        return self._member.append_replica(offset, data, epoch=epoch, epoch_start=epoch_start)

    def truncate(self, end: int) -> None:
        """Cut the log and everything derived from what is cut: see `Realigner.truncate`."""
        self._realigner.truncate(end)

    def reset(self, start: int) -> None:
        """Drop everything and begin at `start`, empty: see `needs_metadata`."""
        self._realigner.reset(start)

    @property
    def needs_metadata(self) -> bool:
        """Whether the leader must send `metadata_snapshot` before it sends log bytes.

        After a reset the log lacks what its deleted part said of topics, groups and queues. A
        snapshot is of the leader's log end; until the log is there, another leader sends its own.
        """
        return self.components.follower.needs_metadata

    def metadata_snapshot(self) -> bytes:
        """Return topics, groups, offsets … as they are at the log's end, which it names."""
        return self._metadata.snapshot_at(max(self._log.end, self._metadata.end))

    def install_metadata(self, data: bytes) -> None:
        """Take over the leader's snapshot, durably. ValueError: it is damaged, nothing changed."""
        self._realigner.install_metadata(data)

    def read_log(self, offset: int, bytes_max: int) -> bytes | memoryview:
        """Return log bytes from an offset on: see `LogByteReader.read`."""
        return self._log_bytes.read(offset, bytes_max)

    def keep_from(self, offset: int | None) -> None:
        """Keep the files that a follower reads, those from an offset on; None: nobody reads."""
        self.components.deleter.keep_from(offset)

    def log_slice(self, offset: int, bytes_max: int) -> FileSlice:
        """Return the same bytes as a part of a file, for sendfile."""
        return self._log_bytes.slice(offset, bytes_max)

    def record_border(self, offset: int) -> bool:
        """Whether a record or a file of the log begins there, or the log ends there."""
        return self._log_bytes.is_border(offset)

    def may_lend_from(self, offset: int) -> bool:
        """Whether a healer may ask for bytes from there: at a border, as `record_border` says."""
        return self._log_bytes.may_lend_from(offset)

    # Damage and housekeeping

    def heal(self, offset: int, data: bytes) -> int:
        """Put log bytes of another copy into a damaged range; return how many: see `Healer`."""
        return self.components.healer.heal(offset, data)

    def verify(self, start: int, end: int) -> bool:
        """Read the records from a border on now, at most to `end`; true: damage is known there."""
        return self.components.storage.inspector.read_through(start, end)

    def damaged_ranges(self) -> tuple[DamagedRange, ...]:
        """Return the parts of the log that are out of service, in order."""
        return self._damage.ranges

    @property
    def damaged(self) -> bool:
        """Whether a part of the log is out of service, above what is known as committed, too."""
        return bool(self._damage.ranges)

    @property
    def disk_level(self) -> DiskLevel:
        """How full the disk is, as of the last tick."""
        return self.components.keeper.level

    def tick(self, claims: Claims = NO_CLAIMS) -> StoreHealth:
        """Do what is due: call it every second. `claims`: see `LogDeleter.delete_old`."""
        self._status.check_open()
        with self._status.failing():
            return self.components.keeper.tick(claims)

    def close(self, *, clean: bool = True) -> None:
        """Sync and stop. With `clean` the next start reads nothing again."""
        self.components.closing.run(clean=clean)
