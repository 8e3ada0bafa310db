"""The message store: one append-only log and the views made from it.

`append` writes (page cache), `request_sync` makes durable, `on_durable` says how far. Everything
but the log can be rebuilt from it. Called from one thread; the flusher and the background worker
are threads of the store's own and call back only through `on_durable` and `on_failure`.

A store is the only member of its shard and leads from the start, or it is one of several: then it
appends after `lead`, and takes the leader's bytes by `append_replica` after `follow`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log import log_bytes
from imago_log.errors import (
    DiskFullError,
    LogIOError,
    NotLeadingError,
    StaleEpochError,
    StoreClosedError,
    StoreError,
)
from imago_log.flusher import (
    Flusher,
    InlineFlusher,
    InlineWorker,
    ThreadFlusher,
    ThreadWorker,
    Worker,
)
from imago_log.folder import LastStop
from imago_log.housekeeping import Housekeeper
from imago_log.metadata import TOPIC_KIND
from imago_log.metadata_store import MetadataStore
from imago_log.opening import open_parts
from imago_log.results import DiskLevel, StoreHealth
from imago_log.vfs import OsVfs, Vfs
from imago_wire.hot import RecordBuilder, entries_size_max
from imago_wire.layout import BLANK_SIZE
from imago_wire.record import record_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from imago_log.config import StoreConfig
    from imago_log.damage import DamagedRange
    from imago_log.epochs import Epochs
    from imago_log.parts import Parts
    from imago_log.results import FileSlice
    from imago_wire.record import Entry, Placed

SWEEPS_PER_DELAY = 10


class MessageStore(MetadataStore):
    """One shard's messages, topics and offsets in one data folder. Made by `open`."""

    def __init__(self, parts: Parts, clock: Callable[[], int], *, threaded: bool) -> None:
        self.config = parts.config
        self.unclean = parts.last_stop is LastStop.POWER_LOST
        """The last process left no clean mark and the machine was started anew since."""
        self.on_durable: Callable[[int], None] = _ignore
        """Called in the flusher thread with the new durable end; must not block or raise."""
        self.on_failure: Callable[[StoreError], None] = _ignore
        """Called once, in the thread that saw it: the process must stop (exit 4)."""
        self.on_metadata: Callable[[Iterable[tuple[str, str]]], None] = _ignore
        """Called in the store's thread with the kinds and keys that changed by something else than
        a call of `put_meta` or of the topics' methods: topics, groups, offsets … of the leader."""
        self.on_damage: Callable[[DamagedRange], None] = _ignore
        """Called with each new damaged range, in the thread that found it."""
        worker: Worker = ThreadWorker(self._fail) if threaded else InlineWorker()
        super().__init__(parts, clock, worker)
        self.sequenced = False
        """Set around an append that may hold messages of idempotent producers: see `producers`."""
        self._builder = RecordBuilder(
            self.config.store_host, self.config.metaq_broker_id, parts.metaq_id
        )
        self._refusal: DiskFullError | None = None
        self._failure: StoreError | None = None
        self._closed = self._released = False
        self._bar()
        self._next_sweep_ms = 0
        self._sweep_interval_ms = max(1, self.config.view_delay_ms // SWEEPS_PER_DELAY)
        self._flusher: Flusher = (
            ThreadFlusher(self._sync, self._fail) if threaded else InlineFlusher(self._sync)
        )
        self._keeper = Housekeeper(parts, self._worker, clock)
        parts.damage.save_later = lambda: self._worker.submit(parts.damage.save)
        parts.damage.on_found = self._found_damage
        self._keeper.put_meta = self._put_changes

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        *,
        clock: Callable[[], int],
        vfs: Vfs | None = None,
        threaded: bool = True,
        lead: bool = True,
    ) -> MessageStore:
        """Open or make the data folder; recover what a crash left.

        `clock` gives epoch milliseconds. With `lead` the store is the only member of its shard: it
        opens an epoch by itself, and all that is written is visible. Without, it is one of
        several: nothing is appended before `lead` or `follow` is called, and visible is what was
        known to be on all members when the last process wrote it down. With `threaded=False`
        syncs and background work run inside the call that asks for them (tests, tools). Raises
        DataFolderLockedError, CorruptLogError, LogIOError.
        """
        parts = open_parts(config, vfs or OsVfs(), clock, lead=lead)
        store = cls(parts, clock, threaded=threaded)
        if lead:
            store._say_revived()
        return store

    # The shard's members

    @property
    def leading(self) -> bool:
        """Whether this store appends."""
        return self._parts.leading

    @property
    def epoch(self) -> int:
        """The same as `epoch_seen`: that of the leader, this store or another."""
        return self._parts.epochs.promised

    @property
    def epochs(self) -> Epochs:
        """(epoch, first log offset) of all that is in the log, the oldest may begin before it."""
        return self._parts.epochs.epochs

    @property
    def epoch_seen(self) -> int:
        """The highest epoch ever led, followed or promised, as it stands on the device."""
        return self._parts.epochs.promised

    def lead(self, epoch: int) -> None:
        """Begin to append, in an epoch of its own that starts at the log's end.

        When it returns, the epoch is on the device. StaleEpochError: it is not above every epoch
        seen; nothing has changed.
        """
        parts = self._parts
        if epoch <= parts.epochs.promised:
            raise StaleEpochError(epoch, parts.epochs.promised)
        parts.epochs.begin(epoch, parts.log.end)
        self._builder.last_metaq_id = parts.metaq_id
        parts.leading = True
        self._bar()
        self._say_revived()

    def _say_revived(self) -> None:
        """Say in the log again which topics exist whose creation is lost in damage."""
        topics, revived = self._metadata.topics, self._parts.revived
        self._put_changes(
            [(TOPIC_KIND, name, topics[name].to_json()) for name in revived if name in topics]
        )
        revived.clear()

    def follow(self, epoch: int) -> None:
        """Stop to append and take nothing of an epoch below this one any more.

        When it returns, the promise is on the device. StaleEpochError: a higher one was promised.
        """
        parts = self._parts
        if epoch < parts.epochs.promised:
            raise StaleEpochError(epoch, parts.epochs.promised)
        parts.leading = False
        self._bar()
        parts.epochs.promise(epoch)
        if parts.watermark > parts.log.end:
            parts.watermark = parts.log.end

    def _bar(self) -> None:
        """Let appends pass or not."""
        self._barred = self._closed or not self._parts.leading

    def append_replica(
        self, offset: int, data: bytes | memoryview, *, epoch: int, epoch_start: int
    ) -> int:
        """Take bytes of the leader's log that continue this one; return the new log end.

        `epoch` is the one in which these bytes were written, `epoch_start` where it starts: the
        leader sends no two of them together. What is whole is taken: records, and the rest of a
        file from its blank record on; a cut one at the end is not, so the next call begins at the
        returned offset. ReplicaGapError: they do not continue this log. CorruptRecordError: they
        are no records of this place. StaleEpochError: the epoch is below the log's last one, or
        above the promised one. DiskFullError. In each case nothing was taken, but for whole
        records before a record that does not fit its queue: `log_end` says.
        """
        raise NotImplementedError

    def truncate(self, end: int) -> None:
        """Cut the log, and everything that came of what is cut: views, metadata, epochs.

        A crash leaves the old end, the new one or a record border between them. ValueError: `end`
        is no record border, or this store leads; nothing was cut.
        """
        raise NotImplementedError

    def reset(self, start: int) -> None:
        """Let everything go and begin at `start`, empty: see `needs_metadata`."""
        raise NotImplementedError

    @property
    def needs_metadata(self) -> bool:
        """Whether the leader must send `metadata_snapshot` before it sends log bytes.

        After a reset the log lacks what its deleted part said of topics, groups and queues; a
        snapshot is of the leader's log end, so until the log is there a new leader sends its own.
        Asked when a connection begins.
        """
        raise NotImplementedError

    def metadata_snapshot(self) -> bytes:
        """Return topics, groups, offsets … as they are at the log's end, which it names."""
        raise NotImplementedError

    def install_metadata(self, data: bytes) -> None:
        """Take over the leader's snapshot, durably. ValueError: it is damaged, nothing changed."""
        raise NotImplementedError

    def read_log(self, offset: int, bytes_max: int) -> bytes | memoryview:
        """Return log bytes from an offset on, up to the end of its file, its epoch or the log.

        From memory where they are recent. A file's unused rest is part of the log: the next offset
        is always `offset` + size. ReplicaGapError: the log does not hold this offset (any more).
        CorruptLogError: its file is out of service.
        """
        return log_bytes.read_log(self._parts, offset, bytes_max)

    def log_slice(self, offset: int, bytes_max: int) -> FileSlice:
        """Return the same bytes as a part of a file, for sendfile."""
        return log_bytes.log_slice(self._parts, offset, bytes_max)

    def record_border(self, offset: int) -> bool:
        """Whether a record or a file of the log begins there, or the log ends there."""
        return log_bytes.is_border(self._parts, offset)

    # Appending

    def append(self, entries: Sequence[Entry]) -> list[Placed]:
        """Write the entries in this order, in one call to the file; they are readable at once.

        DiskFullError, StoreClosedError, NotLeadingError: nothing was appended.
        LimitExceededError: a record is larger than a log file; nothing was appended. LogIOError:
        stop the process.
        """
        if self._refusal is not None:
            raise self._refusal
        return self._append(entries)

    def _append(self, entries: Sequence[Entry]) -> list[Placed]:
        if self._barred:
            raise self._reason()
        log, parts = self._log, self._parts
        store_ms = self._clock()
        if store_ms < parts.store_ms:
            store_ms = parts.store_ms  # never back, whatever the clock does
        size_max = entries_size_max(entries) + BLANK_SIZE
        if size_max > log.room and not (log.spares and size_max < log.segment_size):
            log.reserve(self._sizes(entries))
        start = log.end
        data, placed = self._builder.build(entries, 0, start, store_ms, log.room)
        parts.store_ms = store_ms
        try:
            if len(placed) == len(entries):
                log.write(data)
                self._written(start, data)
            else:
                self._append_across(entries, data, placed, store_ms)
            parts.metaq_id = self._builder.last_metaq_id
            if store_ms >= self._next_sweep_ms:
                self._next_sweep_ms = store_ms + self._sweep_interval_ms
                self._keeper.sweep()
        except LogIOError as error:
            self._fail(error)
            raise
        return placed

    def _written(self, start: int, data: bytes) -> None:
        """Let those know that learn from the bytes what was appended."""
        self._recent.add(start, data)
        self._parts.keys.add(start, data)
        if self.sequenced:
            self._metadata.producers.take(data, start)

    def _append_across(
        self, entries: Sequence[Entry], data: bytes, placed: list[Placed], store_ms: int
    ) -> None:
        """Write what fits into this file, then go on in the next one, as often as needed."""
        log = self._log
        while True:
            start = log.end
            last = len(placed) == len(entries)
            if last:
                log.write(data)
            else:
                log.roll(data)
            if data:
                self._written(start, data)
            if last:
                return
            data, more = self._builder.build(entries, len(placed), log.end, store_ms, log.room)
            placed += more

    def _sizes(self, entries: Sequence[Entry]) -> list[int]:
        """Return upper bounds of the entries' record sizes."""
        store_host_size = len(self.config.store_host)
        return [
            record_size(
                len(entry[0].topic),
                len(entry[2]),
                len(entry[1]),
                born_host_size=len(entry[6]),
                store_host_size=store_host_size,
            )
            for entry in entries
        ]

    def _reason(self) -> StoreError:
        """Return why nothing is appended."""
        if not self._closed:
            return NotLeadingError("this member of the shard does not lead")
        error = StoreClosedError("the store is closed")
        error.__cause__ = self._failure
        return error

    def request_sync(self) -> None:
        """Ask that everything appended so far becomes durable; never blocks."""
        self._flusher.request()

    def _sync(self) -> None:
        end = self._log.sync()
        self.on_durable(end)

    def _fail(self, error: StoreError) -> None:
        first = self._failure is None
        self._failure = self._failure or error
        self._closed = self._barred = True
        if first:
            self.on_failure(error)

    # Damage and housekeeping

    def _found_damage(self, found: DamagedRange) -> None:
        self.on_damage(found)

    def damaged_ranges(self) -> tuple[DamagedRange, ...]:
        """Return the parts of the log that are out of service, in order."""
        return self._parts.damage.ranges

    def tick(self) -> StoreHealth:
        """Retention, disk levels, write-behind, checkpoint: call it every second."""
        if self._closed:
            raise StoreClosedError("the store is closed") from self._failure
        try:
            health = self._keeper.tick()
        except LogIOError as error:
            self._fail(error)
            raise
        if self._keeper.level is DiskLevel.FULL:
            limit = self.config.disk_full_ratio
            self._refusal = DiskFullError(used_ratio=health.disk_used_ratio, limit_ratio=limit)
        else:
            self._refusal = None
        return health

    def close(self, *, clean: bool = True) -> None:
        """Sync and stop. With `clean` the next start reads nothing again."""
        if self._released:
            return
        self._closed = self._barred = True
        self._flusher.stop()
        if clean and self._failure is None:
            self._keeper.sync_all()
        self._worker.stop()
        if clean and self._failure is None:
            self._log.close()
            self._parts.folder.mark_clean()
        self._released = True
        self._parts.release()


def _ignore(_: object) -> None:
    """Stands where the owner of the store will put its own."""
