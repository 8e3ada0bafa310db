"""Bring a follower's log back in line with its leader's: cut it, empty it, take its metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_log.commitlog.borders import segment_end
from imago_log.commitlog.log_reader import find_damage, survey
from imago_log.disk.files import fatal, read_whole, replace_whole
from imago_log.metadata.changes import META_TOPIC, decode_changes
from imago_log.metadata.state import Metadata
from imago_log.replica.reindexing import Reindexer
from imago_log.views.queues.refilling import begin_empty_queues
from imago_log.views.units.lost import is_lost
from imago_wire.errors import WrongError
from imago_wire.hot import view_record
from imago_wire.record_format.layout import UNIT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_log.lifecycle.housekeeping import Housekeeper
    from imago_log.metadata.changes import Change
    from imago_log.replica.follower_log import FollowerLog
    from imago_log.replica.log_bytes import LogByteReader
    from imago_log.signals import Signal
    from imago_log.state import StoreState
    from imago_log.views.directory import QueueDirectory


class Realigner:
    """Removes what the leader's log does not have."""

    def __init__(
        self,
        s: StoreState,
        directory: QueueDirectory,
        follower: FollowerLog,
        log_bytes: LogByteReader,
        keeper: Housekeeper,
        on_metadata: Signal[Iterable[tuple[str, str]]],
    ) -> None:
        self._space = s.space
        self._status, self._folder, self._log = s.status, s.folder, s.log
        self._damage, self._witness = s.damage, s.witness
        self._epochs, self._watermark, self._checkpointer = s.epochs, s.watermark, s.checkpointer
        self._metadata, self._past_metadata = s.metadata, PastMetadata(s)
        self._directory, self._cutter = directory, LogCutter(s)
        self._reindexer = Reindexer(s)
        self._follower, self._log_bytes, self._keeper = follower, log_bytes, keeper
        self._on_metadata = on_metadata

    def truncate(self, end: int) -> None:
        """Cut the log, and everything derived from the part that is cut: views, metadata, epochs.

        A crash leaves the old end, the new one or a record border between them. Within damage
        any place may be a border: who asks has a log that is whole there. ValueError: `end` is no
        record border, or this store leads; DiskFullError: no room to write what stays. Nothing was
        cut.
        """
        self._check_follows()
        if not self._may_cut(end):
            raise WrongError(f"{end} is no record border of a log that ends at {self._log.end}")
        if end != self._log.end:
            self._space.require(self._metadata_size())
        with self._status.failing():
            if end == self._log.end:
                self._epochs.truncate(end)
            else:
                self._keeper.settle()
                self._status.check_open()
                self._cut(end)

    def _may_cut(self, end: int) -> bool:
        log = self._log
        if self._log_bytes.is_border(end):
            return True
        if self._damage.at(end) is None and log.start < end < log.end:
            # Perhaps nobody has seen yet what is damaged in its file.
            start = max(log.start, end - end % log.segment_size)
            limit = min(segment_end(log, end), log.end)
            for found in survey(log, start, limit, self._witness):
                self._damage.add(*found)
        return self._damage.at(end) is not None or self._log_bytes.is_border(end)

    def _cut(self, end: int) -> None:
        # Below the high watermark, where only a loss of data leads, the changes may go that said
        # again what deleted files had told.
        log_start = self._log.start
        lost = log_start > 0 and (end < self._watermark.value or end == log_start)
        state = self._past_metadata.at(end)
        back = frozenset[str]() if state is None else self._metadata.unknown_topics(state, end)
        if back:
            self._folder.forget_views()
        made = self._cutter.cut(end, state)
        self._follower.begin_following(lost=lost)
        self._apply_topics(made, back)
        if back:
            self._cutter.trust_views()
        self._tell(made)

    def _apply_topics(self, made: Cut, back: frozenset[str]) -> None:
        """Drop the queues of topics that are gone and fill those of topics that are back."""
        for name in made.ended:
            self._directory.drop_topic(name)
        if back:
            self._checkpointer.begin_views(self._log.start)
            self._reindexer.reindex(back)
            if self._metadata.end <= self._log.end:
                begin_empty_queues(self._metadata, self._directory.get)
        for name in back:
            if self._metadata.topics[name].materialised:
                self._directory.materialise(self._metadata.topics[name])

    def reset(self, start: int) -> None:
        """Drop everything and begin at `start`, empty: see `MessageStore.needs_metadata`.

        DiskFullError: no room to note it, and nothing was dropped.
        """
        self._check_follows()
        self._space.require(0)
        with self._status.failing():
            self._keeper.settle()
            self._status.check_open()
            self._directory.forget()
            made = self._cutter.empty(start)
            self._follower.begin_empty()
            self._metadata.doubt(False)
            if not start:
                self._cutter.save_metadata(0)
                self._cutter.trust_views()
            self._directory.empty_trash()
        self._tell(made)

    def install_metadata(self, data: bytes) -> None:
        """Take over the leader's snapshot, durably.

        ValueError: it is damaged; DiskFullError. Nothing has changed.
        """
        self._check_follows()
        try:
            state = Metadata.from_snapshot(data)
        except (KeyError, TypeError) as error:
            raise WrongError(f"no metadata snapshot: {error}") from error
        if state.end < self._log.end:
            raise WrongError(f"a snapshot of {state.end}, the log ends at {self._log.end}")
        self._space.require(len(data))
        with self._status.failing():
            self._keeper.settle()
            self._status.check_open()
            self._folder.forget_views()
            back = self._metadata.unknown_topics(state, self._log.end)
            made = Cut(*self._metadata.become(state))
            self._metadata.take_producers(state)
            self._apply_topics(made, back)
            self._cutter.save_metadata(state.end)
            self._cutter.trust_views()
            self._metadata.doubt(False)
            self._follower.take_metadata(state.end)
        self._tell(made)

    def _metadata_size(self) -> int:
        """Return about how many bytes a snapshot has: one more stands beside it for a moment."""
        return len(self._metadata.snapshot())

    def _check_follows(self) -> None:
        self._status.check_open()
        if self._status.leading:
            raise WrongError("a leader's log is never cut")

    def _tell(self, made: Cut) -> None:
        if made.changes:
            self._on_metadata([change[:2] for change in made.changes])


# The metadata as they were at an earlier log offset: what a cut goes back to.
_UNITS_AT_ONCE = 1024


class PastMetadata:
    """Reads the last snapshot, and the changes since."""

    def __init__(self, s: StoreState) -> None:
        self._vfs, self._folder, self._log = s.vfs, s.folder, s.log
        self._damage, self._witness = s.damage, s.witness
        self._records, self._metadata, self._queues = s.records, s.metadata, s.queues

    def at(self, end: int) -> Metadata | None:
        """Return the state at a log offset: the last snapshot, or nothing, and the changes since.

        None: it is that of the log's end, or one that is ahead of the log.
        """
        if self._metadata.end > self._log.end or not self._changes_behind(end):
            return None
        state = self._snapshot()
        if state is None or state.end > end:
            state = Metadata()
        queue = self._queues.get(state.builtin[META_TOPIC], 0)
        start = max(state.end, self._log.start)
        offset = queue.lookup.search(queue.lookup.min_offset(self._log.start), queue.end,
                              lambda at: queue.unit(at)[0] < start)  # fmt: skip
        while offset < queue.end:
            units = queue.units(offset, min(_UNITS_AT_ONCE, queue.end - offset))
            offset += _UNITS_AT_ONCE
            for place, size, _ in UNIT.iter_unpack(units):
                if place < end and is_lost(self._damage, place, size):
                    self._metadata.doubt()
                elif place < end:
                    record = self._records.whole(place)
                    if record is None:
                        self._note_damage(place)
                        continue
                    view = view_record(record)
                    body = record[view.body_at : view.body_at + view.body_size]
                    state.apply(decode_changes(body), place)
        state.reach(end)
        return state

    def _snapshot(self) -> Metadata | None:
        with fatal("read", self._folder.metadata):
            data = read_whole(self._vfs, self._folder.metadata)
        try:
            return None if data is None else Metadata.from_snapshot(data)
        except (ValueError, KeyError, TypeError):
            return None  # damaged: the log has it all

    def _changes_behind(self, end: int) -> bool:
        """Whether a change of metadata is at or behind a log offset."""
        queue = self._queues.get(self._metadata.builtin[META_TOPIC], 0)
        return queue.end > queue.first and queue.unit(queue.end - 1)[0] >= end

    def _note_damage(self, place: int) -> None:
        """Note what keeps a change from being read: the leader is asked for all of them."""
        found = find_damage(self._log, place, self._log.end, self._witness)
        if found is not None:
            self._damage.add(*found)
        self._metadata.doubt()


# Cut a follower's log, and everything derived from the part that is cut.
#
# Order makes a crash harmless: first the checkpoint stops promising what goes, then the views and
# the metadata are cut, then the log, then the epochs. Until the log is cut the cut has not
# happened: a start reads it again to its old end and makes the views again from the lowered
# checkpoint.


class Cut(NamedTuple):
    """What has happened to topics and other metadata."""

    changes: list[Change]
    ended: list[str]
    """Topics whose queues are no longer valid."""


class LogCutter:
    """Cuts, while the worker is idle."""

    def __init__(self, s: StoreState) -> None:
        self._vfs, self._folder, self._log, self._recent = s.vfs, s.folder, s.log, s.recent
        self._damage, self._epochs, self._watermark = s.damage, s.epochs, s.watermark
        self._checkpointer, self._metadata = s.checkpointer, s.metadata
        self._views, self._queues = s.views, s.queues

    def cut(self, end: int, state: Metadata | None) -> Cut:
        """Cut at a record border; `state` is that of the metadata there.

        None: no change of metadata goes.
        """
        self._log.sync()  # the snapshot that is written here must not be ahead of the log
        self._lower_marks(end)
        for view in self._views:
            view.truncate(end)
        self._recent.clear()
        made = Cut(*self._metadata.become(state)) if state is not None else Cut([], [])
        self._cut_producers(end)
        if self._metadata.end <= self._log.end:  # else it is of a snapshot that is still ahead
            self._metadata.reach(min(self._metadata.end, end))
            self.save_metadata(end)
        self._log.truncate(end)
        self._damage.truncate(end)
        self._damage.save()
        self._epochs.truncate(end)
        return made

    def empty(self, start: int) -> Cut:
        """Drop everything and begin at `start`.

        The views are not trusted until the metadata have come. A crash leaves the old log, a part
        of its front, or an empty one that begins where it began or at `start`.
        """
        self._folder.forget_views()
        self._lower_marks(self._log.start)
        # A snapshot beyond the log's end would be the leader's.
        with fatal("remove", self._folder.metadata):
            self._vfs.unlink(self._folder.metadata)
            self._vfs.sync_folder(self._folder.config)
        self._log.remove_all()
        self._epochs.truncate(0)
        nothing = Metadata()
        made = Cut(*self._metadata.become(nothing))
        self._metadata.take_producers(nothing)
        self._damage.truncate(0)
        self._damage.save()
        for view in reversed(self._views):
            view.reset(start)
        self._recent.clear()
        self._log.begin_at(start)
        self._metadata.reach(start)
        self._watermark.begin(start)
        self._checkpointer.begin_at(start)
        self._checkpointer.write()
        return made

    def trust_views(self) -> None:
        """Say that the views on the device are those of the checkpoint."""
        self._checkpointer.write()
        replace_whole(self._vfs, self._folder.views_mark, b"1\n")

    def save_metadata(self, end: int) -> None:
        """Put the state of now, as that of a log offset, in the place of the snapshot."""
        replace_whole(self._vfs, self._folder.metadata, self._metadata.snapshot_at(end))
        self._checkpointer.begin_metadata(end, self._metadata.snapshot_version)

    def _lower_marks(self, end: int) -> None:
        """Promise no more than what stays; durably, before anything goes."""
        self._watermark.lower_to(end)
        for view in self._views:
            view.lower_mark(end)
        self._checkpointer.lower_to(end)

    def _cut_producers(self, end: int) -> None:
        metadata, queues = self._metadata, self._queues
        metadata.producers.truncate(
            end, lambda topic, queue_id: queues.get(metadata.topic(topic), queue_id).end
        )
