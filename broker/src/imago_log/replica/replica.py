"""A follower's copy of the log: bytes of the leader become bytes here, and what follows of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_log.commitlog.epochs import last_of
from imago_log.errors import CorruptRecordError, ReplicaGapError, StaleEpochError
from imago_log.metadata.state import META_TOPIC, TOPIC_KIND, decode_changes
from imago_log.views.reindexing import TailFinder, begin_empty_queues
from imago_wire.hot import index_records, view_record, whole_records
from imago_wire.layout import BLANK_SIZE
from imago_wire.record import ScanStop
from imago_wire.sequences import MARK

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log.commitlog.epochs import Epochs
    from imago_log.lifecycle.parts import Parts
    from imago_log.metadata.state import Change, Topic
    from imago_log.views.consume_queue import ConsumeQueue

_META = META_TOPIC.encode()


class _Piece(NamedTuple):
    """Whole records of one file."""

    start: int
    end: int
    closes: bool
    """The rest of the file, blank record and zeros, follows in full."""


class Replica:
    """Takes the leader's bytes. What is needed of the store is handed in."""

    def __init__(
        self,
        parts: Parts,
        *,
        queue: Callable[[str, int], ConsumeQueue],
        drop_topic: Callable[[str], None],
        open_materialised: Callable[[Topic], None],
    ) -> None:
        self._parts, self._log = parts, parts.log
        self._queue, self._drop_topic = queue, drop_topic
        self._open_materialised = open_materialised
        self._find_tail = TailFinder(parts, queue)
        self._changed: list[tuple[str, str]] = []
        self._unwritten = b""
        self.catching_up = parts.metadata.end > parts.log.end
        """The metadata are of a later log end than this one."""
        self.metadata_missing = (
            self.catching_up or 0 < parts.log.start == parts.log.end or parts.metadata_unsure
        )
        """What the deleted or damaged part of the log said of topics and queues comes first."""

    def take(self, offset: int, data: bytes | memoryview, epoch: int, epoch_start: int) -> None:
        """Append what is whole: see `MessageStore.append_replica`."""
        self._check(offset, epoch, epoch_start)
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
            self._parts.queues.write_now(META_TOPIC)
        if self.catching_up and self._log.end >= self._parts.metadata.end:
            self.caught_up()

    def caught_up(self) -> None:
        """The log has reached the leader's metadata: queues that are empty by now stay so."""
        self.catching_up = False
        begin_empty_queues(self._parts.metadata, self._queue)

    def changed(self) -> list[tuple[str, str]]:
        """Return kinds and keys of metadata that have changed since the last call."""
        found, self._changed = self._changed, []
        return found

    # Checks

    def _check(self, offset: int, epoch: int, epoch_start: int) -> None:
        parts, log = self._parts, self._log
        written, promised = self._written_epochs(), parts.epochs.promised
        last = last_of(written)
        if parts.leading or not last <= epoch <= promised:
            raise StaleEpochError(epoch, promised)
        if offset != log.end:
            raise ReplicaGapError(f"log offset {offset}, this log ends at {log.end}")
        if self.metadata_missing:
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
        return tuple(pair for pair in self._parts.epochs.epochs if pair[1] < log.end)

    def _begin_epoch(self, epoch: int, start: int) -> None:
        epochs = self._parts.epochs
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
        parts, view = self._parts, memoryview(data)
        at = written = 0
        numbered = MARK in data
        while at < len(data):
            indexed = index_records(view[at:], self._find_tail, _META)
            parts.store_ms = max(parts.store_ms, indexed.store_ms)
            parts.metaq_id = max(parts.metaq_id, indexed.metaq_id)
            record_at, end = at + indexed.stopped_at, at + indexed.end
            place = self._log.end - written
            if numbered:
                parts.metadata.producers.take(data[at:end], place + at)
            at = end
            reason = indexed.reason
            if not reason and indexed.stopped_at >= 0:
                changes, reason = _changes_of(data, record_at)
                if parts.metadata.ends_topic(changes):
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
            self._parts.recent.add(log_offset, part)
            self._parts.keys.add(log_offset, part)
        return end

    def _apply(self, changes: list[Change], place: int, size: int) -> None:
        """Take over the changes of the record at a place."""
        metadata = self._parts.metadata
        if place + size <= metadata.end:
            return  # the leader's snapshot holds them
        for name in metadata.apply(changes, place):
            self._drop_topic(name)
        metadata.end = place + size
        for kind, key, _ in changes:
            self._changed.append((kind, key))
            topic = metadata.topics.get(key) if kind == TOPIC_KIND else None
            if topic is not None and topic.materialised:
                self._open_materialised(topic)


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
