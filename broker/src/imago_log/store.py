"""The message store: one append-only log and the views made from it.

`append` writes (page cache), `request_sync` makes durable, `on_durable` says how far. Everything
but the log can be rebuilt from it. Called from one thread; the flusher and the background worker
are threads of the store's own and call back only through `on_durable` and `on_failure`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from imago_log.errors import DiskFullError, LogIOError, StoreClosedError, StoreError
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
from imago_log.metadata import (
    JSON,
    META_TOPIC,
    TOPIC_KIND,
    Change,
    Topic,
    check_topic_name,
    encode_changes,
    is_dual,
)
from imago_log.opening import open_parts
from imago_log.queue_reader import QueueReader
from imago_log.results import DiskLevel, StoreHealth
from imago_log.vfs import OsVfs, Vfs
from imago_wire.hot import RecordBuilder, entries_size_max, make_entry
from imago_wire.layout import BLANK_SIZE
from imago_wire.record import record_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_log.config import StoreConfig
    from imago_log.parts import Parts
    from imago_wire.record import Entry, Placed

SWEEPS_PER_DELAY = 10


class MessageStore(QueueReader):
    """One shard's messages, topics and offsets in one data folder. Made by `open`."""

    def __init__(self, parts: Parts, clock: Callable[[], int], *, threaded: bool) -> None:
        self.config = parts.config
        self.epoch = parts.epochs.last
        self.unclean = parts.last_stop is LastStop.POWER_LOST
        """The last process left no clean mark and the machine was started anew since."""
        self.on_durable: Callable[[int], None] = _ignore
        """Called in the flusher thread with the new durable end; must not block or raise."""
        self.on_failure: Callable[[StoreError], None] = _ignore
        """Called once, in the thread that saw it: the process must stop (exit 4)."""
        super().__init__(parts)
        self._clock = clock
        self._builder = RecordBuilder(
            self.config.store_host, self.config.metaq_broker_id, parts.metaq_id
        )
        self._refusal: DiskFullError | None = None
        self._failure: StoreError | None = None
        self._closed = self._released = False
        self._next_sweep_ms = 0
        self._sweep_interval_ms = max(1, self.config.view_delay_ms // SWEEPS_PER_DELAY)
        self._flusher: Flusher = (
            ThreadFlusher(self._sync, self._fail) if threaded else InlineFlusher(self._sync)
        )
        self._worker: Worker = ThreadWorker(self._fail) if threaded else InlineWorker()
        self._keeper = Housekeeper(parts, self._worker, clock)
        self._keeper.put_meta = self._put_changes

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        *,
        clock: Callable[[], int],
        vfs: Vfs | None = None,
        threaded: bool = True,
    ) -> MessageStore:
        """Open or make the data folder; recover what a crash left.

        `clock` gives epoch milliseconds. With `threaded=False` syncs and background work run
        inside the call that asks for them (tests, tools). Raises DataFolderLockedError,
        CorruptLogError, LogIOError.
        """
        return cls(open_parts(config, vfs or OsVfs()), clock, threaded=threaded)

    # Topics and other metadata

    def create_topic(self, name: str, value: Mapping[str, JSON]) -> None:
        """Create a topic, or replace the value of an existing one (same incarnation).

        Whether a topic has MetaQ positions is fixed when it is created: `value["dual"]` if it is
        there, else true unless its attribute `dialects` is `rocketmq` or it is a system topic.
        ValueError: the name cannot be stored.
        """
        check_topic_name(name)
        if name == META_TOPIC:
            raise ValueError(f"{META_TOPIC} is the store's own")
        old = self._metadata.topics.get(name)
        content = {
            "incarnation": old.incarnation if old else self._log.end + 1,
            "birth": old.birth if old else None,  # None: this record itself
            "dual": old.dual if old else is_dual(name, value),
            "value": dict(value),
        }
        self._put_changes([(TOPIC_KIND, name, content)])
        topic = self._metadata.topics[name]
        if topic.materialised and not (old and self._is_open_materialised(topic)):
            self._open_materialised(topic)

    def delete_topic(self, name: str) -> None:
        """Forget a topic and its queues. KeyError when unknown."""
        if name not in self._metadata.topics:
            raise KeyError(name)
        self._put_changes([(TOPIC_KIND, name, None)])
        # The files go only once the deletion cannot be undone by a power loss.
        self._log.sync()
        for key in [key for key in self._tails if key[0] == name]:
            del self._tails[key]
        self._parts.materialiser.drop_topic(name)
        self._queues.drop_topic(name)
        self._worker.submit(self._queues.empty_trash)

    def topics(self) -> Mapping[str, dict[str, JSON]]:
        """Values by name, as given to `create_topic`; a live read-only view."""
        return MappingProxyType(self._metadata.public)

    def put_meta(self, changes: Sequence[Change]) -> int:
        """Record (kind, key, value) changes in the log, None removes; return the end offset."""
        for kind, _, _ in changes:
            if kind == TOPIC_KIND:
                raise ValueError("topics change through create_topic and delete_topic")
        return self._put_changes(changes)

    def meta(self, kind: str) -> Mapping[str, JSON]:
        """Current values of one kind by key; a live read-only view."""
        return MappingProxyType(self._metadata.kind(kind))

    def set_materialised(self, topic: str) -> None:
        """Keep MetaQ's own files for this topic from now on; a replicated topic attribute.

        KeyError: unknown topic. ValueError: the topic has no MetaQ positions.
        """
        found = self._metadata.topics[topic]
        if not found.dual:
            raise ValueError(f"topic {topic} has no MetaQ positions")
        if not found.materialised:
            attributes = {**found.attributes, "materialised": "true"}
            self.create_topic(topic, {**found.value, "attributes": attributes})

    def _put_changes(self, changes: Sequence[Change]) -> int:
        tail = self.tail(META_TOPIC, 0)
        born_host = self.config.store_host
        entries = [
            make_entry(tail, body, born_ms=self._clock(), born_host=born_host)
            for body in encode_changes(changes)
        ]
        if not entries:
            return self._log.end
        placed = self._append(entries)
        self._metadata.apply(changes, placed[0][1])
        self._metadata.end = self._log.end
        return self._log.end

    def _is_open_materialised(self, topic: Topic) -> bool:
        return any(found.topic is topic for found in self._parts.materialiser)

    def _open_materialised(self, topic: Topic) -> None:
        for queue in list(self._queues):
            if queue.tail.topic == topic.name.encode():
                self._parts.materialiser.open(topic, queue, self._log.start)

    # Appending

    def append(self, entries: Sequence[Entry]) -> list[Placed]:
        """Write the entries in this order, in one call to the file; they are readable at once.

        DiskFullError, StoreClosedError: nothing was appended. LimitExceededError: a record is
        larger than a log file; nothing was appended. LogIOError: stop the process.
        """
        if self._refusal is not None:
            raise self._refusal
        return self._append(entries)

    def _append(self, entries: Sequence[Entry]) -> list[Placed]:
        if self._closed:
            raise StoreClosedError("the store is closed") from self._failure
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
                self._recent.add(start, data)
                parts.keys.add(start, data)
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
                self._recent.add(start, data)
                self._parts.keys.add(start, data)
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

    def _fail(self, error: StoreError) -> None:
        first = self._failure is None
        self._failure = self._failure or error
        self._closed = True
        if first:
            self.on_failure(error)

    # Housekeeping

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
        self._closed = True
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
