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
    from collections.abc import Callable, Mapping

    from imago_log.commitlog.epochs import Epochs
    from imago_log.components import Components
    from imago_log.config import StoreConfig
    from imago_log.disk.pressure import DiskLevel
    from imago_log.disk.vfs import Vfs
    from imago_log.disk.worker import Worker
    from imago_log.lifecycle.claims import Claims
    from imago_log.metadata.changes import JSON
    from imago_log.metadata.producers import Producers
    from imago_log.reading.remote import Remote
    from imago_log.results import DamagedRange, StoreHealth


class MessageStore:
    """One shard's messages, topics and offsets in one data folder. Made by `open`.

    Everything is done by the components; this is their one face, whose calls are theirs: their
    documentation is there. `on_…`: see `StoreEvents`.
    """

    def __init__(self, components: Components) -> None:
        storage, events = components.storage, components.events
        self._log, self._metadata, self._epochs = storage.log, storage.metadata, storage.epochs
        self._damage, self._folder, self._status = storage.damage, storage.folder, storage.status
        self.config, self.components = storage.config, components
        self.on_durable, self.on_damage = events.on_durable, events.on_damage
        self.on_append, self.on_failure = events.on_append, events.on_failure
        self.on_metadata, self.on_forced = events.on_metadata, events.on_forced
        self.identities = components.metadata_log.identities
        self.forced = components.deleter.forced
        self.request_sync = components.flusher.request
        self.heal = components.healer.heal
        self.verify = storage.inspector.read_through
        self.close = components.closing.run
        self._name_calls(components)
        self._name_calls_of_members(components)

    def _name_calls(self, components: Components) -> None:
        appender, metadata = components.appender, components.metadata_log
        reader, by_position = components.reader, components.position_reader
        self.append = appender.append
        self.take_metaq_id = appender.take_metaq_id
        self.tail = components.directory.tail
        self.queues = components.directory.numbers
        self.queue_range = reader.queue_range
        self.read = reader.read
        self.record_at = reader.record_at
        self.offset_by_time = reader.offset_by_time
        self.placed = reader.placed
        self.units = reader.units
        self.store_time = reader.store_time
        self.find_key = reader.find_key
        self.read_positions = by_position.read
        self.position_range = by_position.position_range
        self.position_of = by_position.position_of
        self.offset_of = by_position.offset_of
        self.create_topics = metadata.create_topics
        self.topics = metadata.topics
        self.put_meta = metadata.put_meta
        self.meta = metadata.meta
        self.set_materialised = metadata.set_materialised

    def _name_calls_of_members(self, components: Components) -> None:
        member, realigner, log_bytes = components.member, components.realigner, components.log_bytes
        self.set_high_watermark = components.storage.watermark.raise_to
        self.keep_whole = components.storage.watermark.keep_whole
        self.lead = member.lead
        self.follow = member.follow
        self.append_replica = member.append_replica
        self.truncate = realigner.truncate
        self.reset = realigner.reset
        self.install_metadata = realigner.install_metadata
        self.read_log = log_bytes.read
        self.log_slice = log_bytes.slice
        self.record_border = log_bytes.is_border
        self.may_lend_from = log_bytes.may_lend_from
        self.keep_from, self.keep = components.deleter.keep_from, components.deleter.keep

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

    def read_remote(self, remote: Remote) -> None:
        """Have readers find there what comes before the log's start."""
        self.components.reader.read_remote(remote)
        self.components.position_reader.read_remote(remote)

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

    # Metadata

    def create_topic(self, name: str, value: Mapping[str, JSON]) -> None:
        """Create a topic, or replace the value of an existing one; see `create_topics`."""
        self.components.metadata_log.create_topics({name: value})

    def delete_topic(self, *names: str) -> None:
        """Forget topics and their queues. KeyError when one is unknown: none is forgotten."""
        self.components.metadata_log.delete_topics(names)

    def incarnation(self, topic: str) -> int | None:
        """Return what tells a topic from earlier ones of its name, on all members of the shard."""
        found = self._metadata.topics.get(topic)
        return None if found is None else found.incarnation

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

    # Damage and housekeeping

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
