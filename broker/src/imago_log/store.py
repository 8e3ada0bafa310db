"""The message store: one append-only log and the views made from it.

`append` writes (page cache), `request_sync` makes durable, `on_durable` says how far. Everything
but the log can be rebuilt from it. Called from one thread; the flusher and the background worker
are threads of the store's own and call back only through `on_durable` and `on_failure`.

A store is the only member of its shard and leads from the start, or it is one of several: then it
appends after `lead`, and takes the leader's bytes by `append_replica` after `follow`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.commitlog.flusher import (
    Flusher,
    InlineFlusher,
    InlineWorker,
    ThreadFlusher,
    ThreadWorker,
)
from imago_log.disk.vfs import OsVfs, Vfs
from imago_log.errors import (
    DeadQueueError,
    DiskFullError,
    LogIOError,
    StoreClosedError,
)
from imago_log.lifecycle.opening import open_parts
from imago_log.repair.healing import Healer
from imago_log.repair.scrubbing import Scrubber, ScrubCounts
from imago_log.replica.member_store import MemberStore
from imago_log.results import DamagedRange, DiskLevel, StoreHealth
from imago_wire.hot import RecordBuilder, entries_size_max
from imago_wire.layout import BLANK_SIZE
from imago_wire.record import record_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_log.config import StoreConfig
    from imago_log.lifecycle.parts import Parts
    from imago_wire.record import Entry, Placed


class MessageStore(MemberStore):
    """One shard's messages, topics and offsets in one data folder. Made by `open`."""

    def __init__(
        self,
        parts: Parts,
        clock: Callable[[], int],
        monotonic: Callable[[], int],
        *,
        threaded: bool,
    ) -> None:
        self._monotonic = monotonic
        self.config = parts.config
        self.on_durable: Callable[[int], None] = _ignore
        """Called in the flusher thread with the new durable end; must not block or raise."""
        self.on_damage: Callable[[DamagedRange], None] = _ignore
        """Called with each new damaged range, in the thread that found it."""
        self.on_append: Callable[[], None] = _nothing
        """Called in the store's thread behind each append, of messages or metadata."""
        self.sequenced = False
        """Set around an append that may hold messages of idempotent producers: see `producers`."""
        self._builder = RecordBuilder(
            self.config.store_host, self.config.metaq_broker_id, parts.metaq_id
        )
        worker = ThreadWorker(self._fail) if threaded else InlineWorker()
        super().__init__(parts, clock, monotonic, worker)
        self._released = False
        self._flusher: Flusher = (
            ThreadFlusher(self._sync, self._fail) if threaded else InlineFlusher(self._sync)
        )
        self._scrubber = Scrubber(parts, self._worker, self._inspector)
        self._healer = Healer(parts)
        parts.damage.save_later = lambda: self._keeper.submit(parts.damage.save)
        parts.damage.on_found = self._found_damage

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
    ) -> MessageStore:
        """Open or make the data folder; recover what a crash left.

        `clock` gives epoch milliseconds, `monotonic` milliseconds that never jump (by default the
        same: then no step of the clock can be told from time that passes). With `lead` the store
        is the only member of its shard: it opens an epoch by itself, and all that is written is
        visible. Without, it is one of several: nothing is appended before `lead` or `follow` is
        called, and visible is what was known to be on all members when the last process wrote it
        down. With `threaded=False` syncs and background work run inside the call that asks for
        them (tests, tools). Raises
        DataFolderLockedError, CorruptLogError, LogIOError.
        """
        parts = open_parts(config, vfs or OsVfs(), clock, lead=lead)
        store = cls(parts, clock, monotonic or clock, threaded=threaded)
        if lead:
            store._say_revived()
        store._keeper.keep_found()
        return store

    def _begin_role(self) -> None:
        self._builder.last_metaq_id = self._parts.metaq_id
        super()._begin_role()

    # Appending

    def append(self, entries: Sequence[Entry]) -> list[Placed]:
        """Write the entries in this order, in one call to the file; they are readable at once.

        DiskFullError, StoreClosedError, NotLeadingError, DeadQueueError: nothing was appended.
        LimitExceededError: a record is larger than a log file; nothing was appended. LogIOError:
        stop the process.
        """
        if self._refusal is not None:
            raise self._refusal
        return self._append(entries, self._log.kept)

    def _append(self, entries: Sequence[Entry], leave: int) -> list[Placed]:
        if self._barred:
            raise self._reason()
        log, parts = self._log, self._parts
        store_ms = self._clock()
        if store_ms < parts.store_ms:
            store_ms = parts.store_ms  # never back, whatever the clock does
        size_max = entries_size_max(entries) + BLANK_SIZE
        if size_max < BLANK_SIZE:
            raise DeadQueueError
        size_left = size_max + leave
        if size_left > log.room and not (log.spares and size_left < log.segment_size):
            log.reserve(self._sizes(entries), leave)
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
                self._sweep(store_ms)
        except LogIOError as error:
            self._fail(error)
            raise
        self.on_append()
        return placed

    def _written(self, start: int, data: bytes) -> None:
        """Let those know that learn from the bytes what was appended."""
        self._recent.add(start, data)
        if self._builder.with_properties:
            self._parts.keys.add(start, data)
        else:
            self._parts.keys.skip(start + len(data))
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

    def request_sync(self) -> None:
        """Ask that everything appended so far becomes durable; never blocks."""
        self._flusher.request()

    def _sync(self) -> None:
        end = self._log.sync()
        self.on_durable(end)

    # Damage and housekeeping

    def heal(self, offset: int, data: bytes) -> int:
        """Put a damaged range back into service with what was lost: log bytes of another copy.

        `offset` is the start of one of `damaged_ranges`. `data` either covers it exactly: whole
        records of these places, with the blank record and the zeros behind it where the range ends
        with its file. Or it is the front of that, and what it has of whole records is put back.
        Returns how many bytes were; 0: they do not fit the range or the queues, or the device
        refuses; nothing has changed. DiskFullError: a missing file cannot be made.
        """
        return self._healer.heal(offset, data)

    def verify(self, start: int, end: int) -> bool:
        """Read the records from a border on now, at most to `end`; true: damage is noted."""
        return self._inspector.read_through(start, end)

    def _found_damage(self, found: DamagedRange) -> None:
        self.on_damage(found)

    @property
    def scrubbed(self) -> ScrubCounts:
        """What the verification in the background has done."""
        return self._scrubber.counts

    @property
    def skipped(self) -> int:
        """How many messages readers were led past because they are lost in damage."""
        return self._parts.damage.skipped

    def damaged_ranges(self) -> tuple[DamagedRange, ...]:
        """Return the parts of the log that are out of service, in order."""
        return self._parts.damage.ranges

    @property
    def damaged(self) -> bool:
        """Whether a part of the log is out of service that readers may have, or soon will.

        What this member knows of the high watermark may be older than what was acknowledged, so
        damage above it counts as well.
        """
        return bool(self._parts.damage.ranges)

    def tick(self) -> StoreHealth:
        """Retention, disk levels, write-behind, checkpoint: call it every second."""
        if self._closed:
            raise StoreClosedError("the store is closed") from self._failure
        self._next_sweep_ms = 0  # the clock may have gone back
        try:
            health = self._keeper.tick()
            with self._keeper.space.awaited():
                self._inspector.poll()
                self._scrubber.tick(self._monotonic())
        except LogIOError as error:
            self._fail(error)
            raise
        if self._keeper.level is DiskLevel.FULL:
            limit = self.config.disk_full_ratio
            self._refusal = DiskFullError(used_ratio=health.disk_used_ratio, limit_ratio=limit)
        else:
            self._refusal = None
            self._look_at_space()
        return health

    def close(self, *, clean: bool = True) -> None:
        """Sync and stop. With `clean` the next start reads nothing again."""
        if self._released:
            return
        self._closed = self._barred = True
        self._flusher.stop()
        if clean and self._failure is None:
            clean = self._keeper.close()
        self._worker.stop()
        if clean and self._failure is None:
            self._log.close()
            self._parts.folder.note_views()
            self._parts.folder.mark_clean()
        self._released = True
        self._parts.release()


def _nothing() -> None:
    """Stands where the owner of the store will put its own."""


def _ignore(_: object) -> None:
    """Stands where the owner of the store will put its own."""
