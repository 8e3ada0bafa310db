"""Materialised MetaQ segments, message by message, against the records of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from imago_log.disk.files import offset_name, offsets_of
from imago_log.offline.findings import START
from imago_log.offline.stopped import file_size, read_part
from imago_log.views.metaq.metaq_archive import is_archive
from imago_log.views.metaq.metaq_segments import ORIGIN, SUFFIX
from imago_wire.crc import crc31
from imago_wire.errors import ProtocolError
from imago_wire.hot import metaq_form
from imago_wire.record_format.layout import METAQ_HEADER, METAQ_HEADER_SIZE

if TYPE_CHECKING:
    from imago_log.metadata.changes import Topic
    from imago_log.offline.findings import Findings
    from imago_log.offline.queues import QueuesCheck
    from imago_log.offline.stopped import StoppedStore
    from imago_wire.records.record import RecordView


def _cure(name: str) -> str:
    return f"remove the folder metaq/{name}: readers are then served from the log"


class Partition:
    """The files of one partition: positions `start` … `end`."""

    def __init__(
        self, store: StoppedStore, findings: Findings, topic: Topic, queue_id: int
    ) -> None:
        self._pool, self._findings, self.topic = store.pool, findings, topic
        self.name = f"{topic.name}-{queue_id}"
        self.folder = store.folder.metaq / self.name
        self._clean = store.clean
        names = store.vfs.names(self.folder)
        self.exists = bool(names)
        self._sizes = {
            start: file_size(store.pool, self.folder / f"{offset_name(start)}{SUFFIX}")
            for start in offsets_of(names, SUFFIX)
        }
        self._starts = sorted(self._sizes)
        self.start = self._starts[0] if self._starts else 0
        self.end = self._starts[-1] + self._sizes[self._starts[-1]] if self._starts else 0
        self.cursor = self.start
        self._behind = False
        known = {f"{offset_name(start)}{SUFFIX}" for start in self._starts}
        archives = {name for name in names if is_archive(name)}
        for name in sorted({*names} - known - archives - {ORIGIN}):
            what = "is not named as a MetaQ file, which is its first position in 20 digits"
            findings.warn(self.folder / name, None, what, "move it out of the folder")
        if self.exists:
            self._check_origin(store.whole(self.folder / ORIGIN))
            self._check_files()

    def _check_origin(self, data: bytes | None) -> None:
        path = self.folder / ORIGIN
        cure = "none needed: a broker makes the files again when the partition is next used"
        try:
            found = orjson.loads(data or b"")
            birth, minimum, synced = int(found["birth"]), int(found["min"]), int(found["synced"])
        except (ValueError, KeyError, TypeError):
            # A power cut takes it from a partition that had files for the first time.
            what = "does not say which topic the files belong to"
            self._findings.warn(path, None if data is None else 0, what, cure)
            self._leave()
            return
        if birth != self.topic.birth:
            what = f"the files are of the topic born at {birth}, this one was at {self.topic.birth}"
            self._findings.warn(path, 0, what, cure)
            self._leave()
            return
        if self._starts and self.start > minimum > 0:
            path = self.folder / f"{offset_name(minimum)}{SUFFIX}"
            self._findings.error(path, None, "the first file is missing", _cure(self.name))
        if self._clean and synced > self.end:
            what = f"says that {synced} is synced, the files end at {self.end}"
            self._findings.error(path, 0, what, _cure(self.name))

    def _leave(self) -> None:
        """Compare nothing with the log: a broker removes these files."""
        self._sizes, self._starts, self.start, self.end, self.cursor = {}, [], 0, 0, 0

    def _check_files(self) -> None:
        for start, following in zip(self._starts, self._starts[1:], strict=False):
            end = start + self._sizes[start]
            if end != following:
                path = self.folder / f"{offset_name(start)}{SUFFIX}"
                what = f"ends at position {end}, the next file begins at {following}"
                self._findings.error(path, self._sizes[start], what, _cure(self.name))

    # Messages

    def _read(self, position: int, size: int) -> bytes:
        start = self._file(position)
        path = self.folder / f"{offset_name(start)}{SUFFIX}"
        return read_part(self._pool, path, position - start, size)

    def _file(self, position: int) -> int:
        """Return where the file begins that holds a position."""
        return max((start for start in self._starts if start <= position), default=self.start)

    def compare(self, position: int, wanted: bytes) -> None:
        """Take the next message of the log, in MetaQ's form."""
        if position < self.start or not self._starts:
            return
        self.walk(position)
        self.cursor = position + len(wanted)
        found = self._read(position, len(wanted))
        if found == wanted:
            return
        if self.cursor > self.end:
            self._lacks(position)
        else:
            pairs = zip(found, wanted, strict=False)
            at = next((at for at, (got, want) in enumerate(pairs) if got != want), len(found))
            part = "header" if at < METAQ_HEADER_SIZE else "body"
            self._tell(position, at, f"{part} differs from the record in the log")

    def _lacks(self, position: int) -> None:
        if self._clean and not self._behind:
            path = self.folder / f"{offset_name(self._starts[-1])}{SUFFIX}"
            what = f"ends at position {self.end}, the log has the message at {position}"
            self._findings.warn(path, self.end - self._starts[-1], what, START)
        self._behind = True

    def walk(self, limit: int) -> None:
        """Check messages up to a position that no record of the log stands for any more."""
        while self.cursor < min(limit, self.end):
            start = self._file(self.cursor)
            end = min(limit, start + self._sizes[start])
            size = self._message(self.cursor, end) if end > self.cursor else 0
            if not size:
                self.cursor = min(limit, self.end)
                return
            self.cursor += size

    def _message(self, position: int, end: int) -> int:
        """Check one message by itself; return its size, 0 when it is not whole."""
        head = self._read(position, METAQ_HEADER_SIZE)
        if len(head) == METAQ_HEADER_SIZE:
            length, checksum, message_id, _ = METAQ_HEADER.unpack(head)
            if message_id and 0 <= length <= end - position - METAQ_HEADER_SIZE:
                body = self._read(position + METAQ_HEADER_SIZE, length)
                if crc31(body) != checksum:
                    self._tell(position, METAQ_HEADER_SIZE, "the checksum does not match")
                return METAQ_HEADER_SIZE + int(length)
        self._tell(position, 0, "no whole message")
        return 0

    def _tell(self, position: int, at: int, what: str) -> None:
        start = self._file(position)
        path = self.folder / f"{offset_name(start)}{SUFFIX}"
        said = f"message at position {position}: {what}"
        self._findings.error(path, position - start + at, said, _cure(self.name))


class MetaqCheck:
    """The MetaQ files of all materialised topics."""

    def __init__(self, store: StoppedStore, findings: Findings, queues: QueuesCheck) -> None:
        self._store, self._findings, self._queues = store, findings, queues
        self._partitions: dict[tuple[bytes, int], Partition | None] = {}
        wanted = set()
        for key, _ in queues.states():
            partition = self._partition(key)
            if partition is not None:
                wanted.add(partition.name)
        for name in store.vfs.names(store.folder.metaq):
            if name not in wanted and store.vfs.names(store.folder.metaq / name):
                what = "belongs to no materialised topic"
                findings.note(store.folder.metaq / name, what, "remove it to free its space")

    def _partition(self, key: tuple[bytes, int]) -> Partition | None:
        if key not in self._partitions:
            state = self._queues.state(*key)
            found = None
            if state is not None and state.topic.materialised:
                found = Partition(self._store, self._findings, state.topic, key[1])
            self._partitions[key] = found if found is not None and found.exists else None
        return self._partitions[key]

    def take(self, view: RecordView, data: bytes) -> str:
        """Take the next record of the log; return what is wrong with the record, or ""."""
        if view.metaq_position < 0:
            return ""
        partition = self._partition((view.topic, view.queue_id))
        if partition is None or view.physical_offset < partition.topic.birth:
            return ""
        try:
            wanted = b"".join(metaq_form(data, view.at))
        except ProtocolError as error:
            return f"has no MetaQ form: {error}"
        partition.compare(view.metaq_position, wanted)
        return ""

    def finish(self) -> None:
        """Check the bytes behind the last record."""
        for partition in self._partitions.values():
            if partition is None:
                continue
            end = partition.cursor
            partition.walk(partition.end)
            if self._store.clean and self._queued_end(partition) < partition.end > end:
                what = f"holds messages from position {end} on that the log does not have"
                self._findings.warn(partition.folder, None, what)

    def _queued_end(self, partition: Partition) -> int:
        name, _, queue_id = partition.name.rpartition("-")
        state = self._queues.state(name.encode(), int(queue_id))
        return partition.end if state is None else state.position_end
