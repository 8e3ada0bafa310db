"""The half of a store that makes it a member of its shard: it leads, or it follows a leader."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from imago_log.commitlog.borders import segment_end
from imago_log.errors import (
    DiskFullError,
    LogIOError,
    NotLeadingError,
    StaleEpochError,
    StoreClosedError,
    StoreError,
)
from imago_log.lifecycle.housekeeping import Housekeeper
from imago_log.lifecycle.parts import ALL_VISIBLE
from imago_log.lifecycle.recovery import survey
from imago_log.metadata.state import Metadata
from imago_log.replica import cutting, log_bytes
from imago_log.replica.replica import Replica
from imago_log.views.reindexing import begin_empty_queues, reindex
from imago_log.writing.metadata_store import MetadataStore
from imago_wire.hot import view_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from imago_log.commitlog.epochs import Epochs
    from imago_log.commitlog.flusher import Worker
    from imago_log.lifecycle.parts import Parts
    from imago_log.results import FileSlice

SWEEPS_PER_DELAY = 10


class MemberStore(MetadataStore):
    """What leading and following have in common, and following itself."""

    def __init__(
        self,
        parts: Parts,
        clock: Callable[[], int],
        monotonic: Callable[[], int],
        worker: Worker,
    ) -> None:
        self.on_failure: Callable[[StoreError], None] = _ignore
        """Called once, in the thread that saw it: the process must stop (exit 4)."""
        self.on_metadata: Callable[[Iterable[tuple[str, str]]], None] = _ignore
        """Called in the store's thread with the kinds and keys that changed by something else than
        a call of `put_meta` or of the topics' methods: topics, groups, offsets … of the leader."""
        super().__init__(parts, clock, worker)
        self._failure: StoreError | None = None
        self._refusal: DiskFullError | None = None
        self._closed = False
        self._keeper = Housekeeper(parts, worker, clock, monotonic)
        self._keeper.put_meta = partial(self._put_changes, frees=True)
        self._next_sweep_ms = 0
        self._sweep_interval_ms = max(1, parts.config.view_delay_ms // SWEEPS_PER_DELAY)
        self._replica = Replica(
            parts,
            queue=self._queue_to_fill,
            drop_topic=self._drop_topic,
            open_materialised=self._open_materialised_once,
        )
        self._begin_role()

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

    @property
    def unclean(self) -> bool:
        """Whether a member's log may lack records that were acknowledged, as the folder notes.

        Noted when power was lost under a running member, and by `mark_unclean`.
        """
        return self._parts.folder.unclean

    def mark_unclean(self, unclean: bool) -> None:
        """Note on the device that the log may lack acknowledged records, or that it does not."""
        with self._failing():
            self._parts.folder.mark_unclean(unclean)

    def lead(self, epoch: int) -> None:
        """Begin to append, in an epoch of its own that starts at the log's end.

        When it returns, the epoch is on the device. StaleEpochError: it is not above every epoch
        seen; nothing has changed.
        """
        parts = self._parts
        if epoch <= parts.epochs.promised:
            raise StaleEpochError(epoch, parts.epochs.promised)
        with self._failing():
            parts.epochs.lead(epoch, parts.log.start, parts.log.end)
        if self._replica.catching_up:
            self._replica.caught_up()
            parts.metadata.end = parts.log.end
        parts.leading = True
        self._begin_role()

    def _say_revived(self) -> None:
        """Say in the log again which topics exist whose creation is lost in damage."""
        topics, revived = self._metadata.topics, self._parts.revived
        self._put_changes(
            [topics[name].change(topics[name].value) for name in revived if name in topics]
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
        self._begin_role()
        with self._failing():
            parts.epochs.promise(epoch)
        parts.watermark = min(parts.watermark, parts.log.end)
        self._replica.metadata_missing |= self._replica.catching_up or parts.metadata_unsure

    def _begin_role(self) -> None:
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
        self._check_open()
        if self._refusal is not None:
            raise self._refusal
        with self._failing():
            try:
                self._replica.take(offset, data, epoch, epoch_start)
            finally:
                self._tell_metadata(self._replica.changed())
            self._sweep(self._clock())
        return self._log.end

    def truncate(self, end: int) -> None:
        """Cut the log, and everything that came of what is cut: views, metadata, epochs.

        A crash leaves the old end, the new one or a record border between them. Within damage
        any place may be a border: who asks has a log that is whole there. ValueError: `end` is no
        record border, or this store leads; nothing was cut.
        """
        self._check_follows()
        if not self._may_cut(end):
            raise ValueError(f"{end} is no record border of a log that ends at {self._log.end}")
        with self._failing():
            if end == self._log.end:
                self._parts.epochs.truncate(end)
            else:
                self._keeper.settle()
                self._check_open()
                self._cut(end)

    def _may_cut(self, end: int) -> bool:
        parts, log = self._parts, self._parts.log
        if self.record_border(end):
            return True
        if parts.damage.at(end) is None and log.start < end < log.end:
            # Perhaps nobody has seen yet what is damaged in its file.
            start = max(log.start, end - end % log.segment_size)
            limit = min(segment_end(log, end), log.end)
            for found in survey(log, start, limit, parts.witness):
                parts.damage.add(*found)
        return parts.damage.at(end) is not None or self.record_border(end)

    def _cut(self, end: int) -> None:
        parts = self._parts
        # Below the high watermark, where only a loss of data leads, the changes may go that said
        # again what deleted files had told.
        lost = parts.log.start > 0 and (end < parts.watermark or end == parts.log.start)
        state = cutting.metadata_at(parts, end)
        back = frozenset[str]() if state is None else parts.metadata.unknown_topics(state, end)
        if back:
            parts.folder.forget_views()
        made = cutting.cut(parts, end, state)
        self._replica.metadata_missing |= self._replica.catching_up or lost or parts.metadata_unsure
        self._take_over(made, back)
        if back:
            cutting.trust_views(parts)
        self._tell_metadata([change[:2] for change in made.changes])

    def _take_over(self, made: cutting.Cut, back: frozenset[str]) -> None:
        """Drop the queues of topics that are gone, fill those of topics that are back."""
        parts = self._parts
        for name in made.ended:
            self._drop_topic(name)
        if back:
            parts.views_synced = parts.log.start
            reindex(parts, back)
            if parts.metadata.end <= parts.log.end:
                begin_empty_queues(parts.metadata, self._queue_to_fill)
        for name in back:
            if parts.metadata.topics[name].materialised:
                self._open_materialised(parts.metadata.topics[name])

    def reset(self, start: int) -> None:
        """Let everything go and begin at `start`, empty: see `needs_metadata`."""
        self._check_follows()
        parts = self._parts
        with self._failing():
            self._keeper.settle()
            self._check_open()
            self._tails.clear()
            made = cutting.empty(parts, start)
            self._replica.catching_up = False
            self._replica.metadata_missing = start > 0
            parts.metadata_unsure = False
            if not start:
                cutting.save_metadata(parts, 0)
                cutting.trust_views(parts)
            self._worker.submit(self._queues.empty_trash)
        self._tell_metadata([change[:2] for change in made.changes])

    @property
    def needs_metadata(self) -> bool:
        """Whether the leader must send `metadata_snapshot` before it sends log bytes.

        After a reset the log lacks what its deleted part said of topics, groups and queues. A
        snapshot is of the leader's log end; until the log is there, another leader sends its own.
        """
        return self._replica.metadata_missing or self._replica.catching_up

    def metadata_snapshot(self) -> bytes:
        """Return topics, groups, offsets … as they are at the log's end, which it names."""
        return self._metadata.snapshot_at(max(self._log.end, self._metadata.end))

    def install_metadata(self, data: bytes) -> None:
        """Take over the leader's snapshot, durably. ValueError: it is damaged, nothing changed."""
        self._check_follows()
        parts, replica = self._parts, self._replica
        try:
            state = Metadata.from_snapshot(data)
        except (KeyError, TypeError) as error:
            raise ValueError(f"no metadata snapshot: {error}") from error
        if state.end < parts.log.end:
            raise ValueError(f"a snapshot of {state.end}, the log ends at {parts.log.end}")
        with self._failing():
            self._keeper.settle()
            self._check_open()
            parts.folder.forget_views()
            back = parts.metadata.unknown_topics(state, parts.log.end)
            made = cutting.Cut(*parts.metadata.become(state))
            parts.metadata.take_producers(state)
            self._take_over(made, back)
            cutting.save_metadata(parts, state.end)
            cutting.trust_views(parts)
            parts.metadata_unsure = replica.metadata_missing = False
            replica.catching_up = state.end > parts.log.end
            if not replica.catching_up:
                replica.caught_up()
        self._tell_metadata([change[:2] for change in made.changes])

    def _check_follows(self) -> None:
        self._check_open()
        if self._parts.leading:
            raise ValueError("a leader's log is never cut")

    def _check_open(self) -> None:
        if self._closed:
            raise self._reason()

    def _tell_metadata(self, changed: Sequence[tuple[str, str]]) -> None:
        if changed:
            self.on_metadata(changed)

    def read_log(self, offset: int, bytes_max: int) -> bytes | memoryview:
        """Return log bytes from an offset on, up to the end of its file, its epoch or the log.

        From memory where they are recent. A file's unused rest is part of the log: the next offset
        is always `offset` + size. ReplicaGapError: the log does not hold this offset (any more).
        CorruptLogError: its file is out of service.
        """
        return log_bytes.read_log(self._parts, offset, bytes_max)

    def keep_from(self, offset: int | None) -> None:
        """Keep the files from an offset on, which a follower still reads; None: nobody does.

        Retention by age and size waits for it; a disk above `disk_force_ratio` does not.
        """
        self._keeper.needed_from = ALL_VISIBLE if offset is None else offset

    def log_slice(self, offset: int, bytes_max: int) -> FileSlice:
        """Return the same bytes as a part of a file, for sendfile."""
        return log_bytes.log_slice(self._parts, offset, bytes_max)

    def record_border(self, offset: int) -> bool:
        """Whether a record or a file of the log begins there, or the log ends there."""
        record = self._parts.records.whole(offset)
        if record is not None and self._is_named(view_record(record)):
            return True
        return log_bytes.is_border(self._parts, offset)

    # What stops a store

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Stop the store when the operating system refuses something."""
        try:
            yield
        except LogIOError as error:
            self._fail(error)
            raise

    def _fail(self, error: StoreError) -> None:
        first = self._failure is None
        self._failure = self._failure or error
        self._closed = self._barred = True
        if first:
            self.on_failure(error)

    def _reason(self) -> StoreError:
        """Return why nothing is appended."""
        if not self._closed:
            return NotLeadingError("this member of the shard does not lead")
        error = StoreClosedError("the store is closed")
        error.__cause__ = self._failure
        return error

    def _sweep(self, now_ms: int) -> None:
        if now_ms >= self._next_sweep_ms:
            self._next_sweep_ms = now_ms + self._sweep_interval_ms
            self._keeper.sweep()
            self._look_at_space()

    def _look_at_space(self) -> None:
        """Refuse messages while views find no room: memory must hold what their files cannot."""
        if self._keeper.space.short and self._refusal is None:
            used_ratio = self._keeper.used_ratio
            self._refusal = DiskFullError(used_ratio=used_ratio, limit_ratio=1.0)


def _ignore(_: object) -> None:
    """Stands where the owner of the store will put its own."""
