"""Bring a follower's log back in line with its leader's: cut it, empty it, take its metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.commitlog.borders import segment_end
from imago_log.commitlog.log_reader import survey
from imago_log.metadata.state import Metadata
from imago_log.replica.cutting import Cut, LogCutter
from imago_log.replica.past_metadata import PastMetadata
from imago_log.replica.reindexing import Reindexer
from imago_log.views.queues.refilling import begin_empty_queues
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_log.lifecycle.housekeeping import Housekeeper
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
        self._take_over(made, back)
        if back:
            self._cutter.trust_views()
        self._tell(made)

    def _take_over(self, made: Cut, back: frozenset[str]) -> None:
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
            self._take_over(made, back)
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
