"""The message store: one append-only log and the views made from it.

`append` writes (page cache), `request_sync` makes durable, `on_durable` says how far. Everything
but the log can be rebuilt from it. Called from one thread; the flusher and the background worker
are threads of the store's own and call back only through `on_durable` and `on_failure`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_log.vfs import OsVfs, Vfs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_wire.record import Entry, Placed, QueueTail

    from imago_log.config import StoreConfig
    from imago_log.errors import LogIOError
    from imago_log.results import MetaqRead, ReadResult, StoreHealth

JSON = Any
"""A value that JSON can hold: the store keeps it, its owner knows what it means."""


class MessageStore:
    """One shard's messages, topics and offsets in one data folder."""

    config: StoreConfig
    log_start: int
    log_end: int
    durable_end: int
    high_watermark: int
    epoch: int
    unclean: bool
    """The last process left no clean mark and the machine was started anew since."""
    on_durable: Callable[[int], None]
    """Called in the flusher thread with the new durable end; must not block or raise."""
    on_failure: Callable[[LogIOError], None]
    """Called in the thread that saw it, once: the process must stop (exit 4)."""

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
        raise NotImplementedError((cls, config, clock, vfs or OsVfs(), threaded))

    def set_high_watermark(self, offset: int) -> None:
        """Everything below is visible; never goes back, at most `log_end`."""
        raise NotImplementedError

    def create_topic(self, name: str, value: Mapping[str, JSON]) -> None:
        """Create a topic, or replace the value of an existing one (same incarnation).

        Whether a topic has MetaQ positions is fixed when it is created: `value["dual"]` if it is
        there, else true unless its attribute `dialects` is `rocketmq` or it is a system topic.
        """
        raise NotImplementedError

    def delete_topic(self, name: str) -> None:
        """Forget a topic and its queues. KeyError when unknown."""
        raise NotImplementedError

    def topics(self) -> Mapping[str, dict[str, JSON]]:
        """Values by name, as given to `create_topic`; a live read-only view."""
        raise NotImplementedError

    def put_meta(self, changes: Sequence[tuple[str, str, JSON | None]]) -> int:
        """Record (kind, key, value) changes in the log, None removes; return the end offset."""
        raise NotImplementedError

    def meta(self, kind: str) -> Mapping[str, JSON]:
        """Current values of one kind by key; a live read-only view."""
        raise NotImplementedError

    def tail(self, topic: str, queue_id: int) -> QueueTail:
        """Return the handle that entries of this queue carry; KeyError for an unknown topic.

        A handle dies with its topic: take a new one after delete and create.
        """
        raise NotImplementedError

    def append(self, entries: Sequence[Entry]) -> list[Placed]:
        """Write the entries in this order, in one call to the file; they are readable at once.

        DiskFullError, StoreClosedError: nothing was appended. LogIOError: stop the process.
        """
        raise NotImplementedError

    def request_sync(self) -> None:
        """Ask that everything appended so far becomes durable; never blocks."""
        raise NotImplementedError

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the smallest stored and the visible end queue offset; (0, 0) when unknown."""
        raise NotImplementedError

    def position_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the smallest stored and the visible end MetaQ position; (0, 0) when unknown."""
        raise NotImplementedError

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        messages_max: int,
        bytes_max: int,
        tags: frozenset[int] | None = None,
    ) -> ReadResult:
        """Return records from a queue offset on, at least one if there is one to return.

        `tags`: signed 32-bit hashes of the wanted tags; None wants all.
        """
        raise NotImplementedError

    def read_positions(self, topic: str, queue_id: int, position: int, bytes_max: int) -> MetaqRead:
        """Return messages in MetaQ's form from a position on."""
        raise NotImplementedError

    def record_at(self, physical_offset: int) -> bytes | None:
        """Return the whole record that starts there, or None."""
        raise NotImplementedError

    def offset_by_time(self, topic: str, queue_id: int, ms: int, *, upper: bool = False) -> int:
        """Return the first offset stored at or after `ms`; `upper`: the last at or before it."""
        raise NotImplementedError

    def position_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the MetaQ position of a queue offset, both clamped to what is stored."""
        raise NotImplementedError

    def offset_of(self, topic: str, queue_id: int, position: int) -> int:
        """Return the queue offset of the first message at or after a MetaQ position."""
        raise NotImplementedError

    def store_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Return the store time of one message in epoch milliseconds, or None."""
        raise NotImplementedError

    def find_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int
    ) -> list[bytes]:
        """Return whole records whose KEYS or UNIQ_KEY holds the key, oldest first."""
        raise NotImplementedError

    def set_materialised(self, topic: str) -> None:
        """Keep MetaQ's own files for this topic from now on; a replicated topic attribute."""
        raise NotImplementedError

    def tick(self) -> StoreHealth:
        """Retention, disk levels, write-behind, checkpoint: call it every second."""
        raise NotImplementedError

    def close(self, *, clean: bool = True) -> None:
        """Sync and stop. With `clean` the next start reads nothing again."""
        raise NotImplementedError
