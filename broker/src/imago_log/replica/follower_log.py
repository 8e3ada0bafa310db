"""A follower's copy of the log: the leader's bytes, and everything derived from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_log.commitlog.epochs import last_of
from imago_log.errors import CorruptRecordError, ReplicaGapError, StaleEpochError
from imago_log.metadata.changes import META_TOPIC, TOPIC_KIND, decode_changes
from imago_log.views.queues.refilling import begin_empty_queues
from imago_wire.hot import index_records, view_record, whole_records
from imago_wire.record_format.layout import BLANK_SIZE
from imago_wire.record_format.sequences import MARK
from imago_wire.records.record import ScanStop

if TYPE_CHECKING:
    from imago_log.commitlog.epochs import Epochs
    from imago_log.metadata.changes import Change
    from imago_log.replica.reindexing import TailFinder
    from imago_log.state import StoreState
    from imago_log.views.directory import QueueDirectory

_META = META_TOPIC.encode()


class _Piece(NamedTuple):
    """Whole records of one file."""

    start: int
    end: int
    closes: bool
    """The rest of the file, blank record and zeros, follows in full."""


class FollowerLog:
    """Takes the leader's bytes, and knows which of the leader's metadata must come first."""

    def __init__(self, s: StoreState, directory: QueueDirectory, find_tail: TailFinder) -> None:
        self._log, self._recent, self._epochs, self._stamps = s.log, s.recent, s.epochs, s.stamps
        self._status, self._metadata, self._keys = s.status, s.metadata, s.keys
        self._queues = s.queue_writer
        self._directory, self._find_tail = directory, find_tail
        self._changed: list[tuple[str, str]] = []
        self._catching_up = s.metadata.end > s.log.end
        """The metadata are of a later log end than this one."""
        self._metadata_missing = (
            self._catching_up or 0 < s.log.start == s.log.end or s.metadata.unsure
        )
        """Topics and queues of the deleted or damaged part of the log come first."""

    @property
    def needs_metadata(self) -> bool:
        """Whether the leader's metadata must come before its bytes."""
        return self._metadata_missing or self._catching_up

    def begin_leading(self) -> None:
        """Take the metadata as they are: nobody sends what is between."""
        if self._catching_up:
            self._caught_up()
            self._metadata.reach(self._log.end)

    def begin_following(self, *, lost: bool = False) -> None:
        """Ask for metadata where they may lack something; `lost`: the cut took some away."""
        self._metadata_missing |= self._catching_up or lost or self._metadata.unsure

    def begin_empty(self) -> None:
        """The log is empty: behind what was deleted, only the leader's metadata tell the rest."""
        self._catching_up = False
        self._metadata_missing = self._log.start > 0

    def take_metadata(self, end: int) -> None:
        """The leader's metadata have come, as they are at a log offset."""
        self._metadata_missing = False
        self._catching_up = end > self._log.end
        if not self._catching_up:
            self._caught_up()

    def take(self, offset: int, data: bytes | memoryview, epoch: int, epoch_start: int) -> None:
        """Append what is whole: see `MessageStore.append_replica`."""
        self._check(offset, epoch, epoch_start)
        if not self._log.room:
            self._log.roll(b"")
        pieces = self._whole_pieces(memoryview(data))
        if not pieces:
            return
        files = sum(piece.closes for piece in pieces)
        while self._log.spares < files:  # before anything is written: the disk may be full
            self._log.add_spare(files)
        self._begin_epoch(epoch, epoch_start)
        changes = len(self._changed)
        for piece in pieces:
            self._take(_owned(data, piece))
            if piece.closes:
                self._log.roll(b"")
        if len(self._changed) > changes:
            self._queues.write_now(META_TOPIC)
        if self._catching_up and self._log.end >= self._metadata.end:
            self._caught_up()

    def _caught_up(self) -> None:
        """The log has reached the leader's metadata: queues that are empty by now stay so."""
        self._catching_up = False
        begin_empty_queues(self._metadata, self._directory.get)

    def changed(self) -> list[tuple[str, str]]:
        """Return kinds and keys of metadata that have changed since the last call."""
        found, self._changed = self._changed, []
        return found

    # Checks

    def _check(self, offset: int, epoch: int, epoch_start: int) -> None:
        log = self._log
        written, promised = self._written_epochs(), self._epochs.promised
        last = last_of(written)
        if self._status.leading or not last <= epoch <= promised:
            raise StaleEpochError(epoch, promised)
        if offset != log.end:
            raise ReplicaGapError(f"log offset {offset}, this log ends at {log.end}")
        if self._metadata_missing:
            raise ReplicaGapError("the metadata of the log's deleted or damaged part come first")
        starts = {epoch_start}
        if epoch == last:
            starts = {written[-1][1]}
        elif log.end > log.start:
            starts = {log.end}
        if epoch_start not in starts or epoch_start > offset:
            raise ReplicaGapError(
                f"epoch {epoch} starts at {epoch_start} there, epoch {last} ends at {offset} here"
            )

    def _written_epochs(self) -> Epochs:
        """Return the epochs of the log's bytes: one that began at its end wrote none of them."""
        log = self._log
        if log.end == log.start:
            return ()
        return tuple((epoch, begin) for epoch, begin in self._epochs.epochs if begin < log.end)

    def _begin_epoch(self, epoch: int, start: int) -> None:
        epochs = self._epochs
        if epoch == epochs.last and epochs.epochs[-1][1] == start:
            return
        epochs.truncate(self._log.end if self._log.end > self._log.start else 0)
        if epoch != epochs.last:
            epochs.begin(epoch, start)

    def _whole_pieces(self, data: memoryview) -> list[_Piece]:
        """Return what can be taken. CorruptRecordError: something in there never can."""
        log, pieces = self._log, list[_Piece]()
        at, offset, room = 0, log.end, log.room
        while at < len(data):
            chunk = data[at : at + room]
            size, stop, reason = whole_records(chunk, offset)
            left = room - size
            head = chunk[size : size + BLANK_SIZE]
            said = int.from_bytes(head[:4], "big") if len(head) == BLANK_SIZE else 0
            if not _may_follow(stop, said, left):
                reason = reason or f"{stop.value} of {said} bytes where {left} are left"
                raise CorruptRecordError(f"log offset {offset + size}: {reason}")
            closes = stop is ScanStop.BLANK and len(chunk) == room
            if size or closes:
                pieces.append(_Piece(at, at + size, closes))
            if not closes:
                break
            at, offset, room = at + room, offset + room, log.segment_size
        return pieces

    # Taking

    def _take(self, data: bytes) -> None:
        """Index the whole records of one file, then write them; metadata in their turn."""
        view = memoryview(data)
        at = written = 0
        numbered = MARK in data
        while at < len(data):
            indexed = index_records(view[at:], self._find_tail, _META)
            self._stamps.observe(indexed.store_ms, indexed.metaq_id)
            record_at, end = at + indexed.stopped_at, at + indexed.end
            place = self._log.end - written
            if numbered:
                self._metadata.producers.take(data[at:end], place + at)
            at = end
            reason = indexed.reason
            if not reason and indexed.stopped_at >= 0:
                changes, reason = _changes_of(data, record_at)
                if self._metadata.ends_topic(changes):
                    # Files go only once the deletion cannot be undone by a power loss.
                    written = self._write(data, written, at)
                    self._log.sync()
                self._apply(changes, place + record_at, at - record_at)
            if reason:
                self._write(data, written, at)
                raise CorruptRecordError(f"log offset {self._log.end}: {reason}")
        self._write(data, written, at)

    def _write(self, data: bytes, start: int, end: int) -> int:
        """Write a part of the data; return its end."""
        part = data if end - start == len(data) else data[start:end]
        if part:
            log_offset = self._log.end
            self._log.write(part)
            self._recent.add(log_offset, part)
            self._keys.add(log_offset, part)
        return end

    def _apply(self, changes: list[Change], place: int, size: int) -> None:
        """Take over the changes of the record at a place."""
        metadata = self._metadata
        if place + size <= metadata.end:
            return  # the leader's snapshot holds them
        for name in metadata.apply(changes, place):
            self._directory.drop_topic(name)
        metadata.reach(place + size)
        for kind, key, _ in changes:
            self._changed.append((kind, key))
            topic = metadata.topics.get(key) if kind == TOPIC_KIND else None
            if topic is not None and topic.materialised:
                self._directory.materialise_once(topic)


def _owned(data: bytes | memoryview, piece: _Piece) -> bytes:
    """Return the bytes of a piece, as an object of their own unless they are one."""
    if isinstance(data, bytes) and piece.end - piece.start == len(data):
        return data
    return bytes(data[piece.start : piece.end])


def _may_follow(stop: ScanStop, said: int, left: int) -> bool:
    """Whether what stopped a scan can become whole where so many bytes of the file are left."""
    if stop is ScanStop.BLANK:
        return said == left
    if stop is ScanStop.SHORT:
        return said + BLANK_SIZE <= left
    return stop is ScanStop.END and left >= BLANK_SIZE


def _changes_of(data: bytes, at: int) -> tuple[list[Change], str]:
    """Return the changes of a metadata record; second: why they cannot be read."""
    view = view_record(data, at)
    try:
        return decode_changes(data[view.body_at : view.body_at + view.body_size]), ""
    except ValueError as error:
        return [], f"a change of metadata that cannot be read: {error}"
