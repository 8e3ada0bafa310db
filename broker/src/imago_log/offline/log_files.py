"""First pass over the log: every file, every record, where the log ends, and the metadata in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.commitlog.borders import is_left_by_kill, is_record, known_border, written_end
from imago_log.disk.files import OFFSET_DIGITS
from imago_log.disk.folder import LastStop
from imago_log.offline.findings import RESTORE, START
from imago_log.offline.records import CHUNK_BYTES, blocks, look_behind
from imago_log.views.units.witness import UnitWitness, noted_borders
from imago_wire.crc import crc31
from imago_wire.errors import RecordError
from imago_wire.record_format.layout import BLANK_SIZE, SYS_COMMIT
from imago_wire.record_format.record_fields import read_layout
from imago_wire.records.record import ScanStop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_log.offline.findings import Findings
    from imago_log.offline.metadata import MetadataCheck
    from imago_log.offline.records import Block
    from imago_log.offline.stopped import StoppedStore
    from imago_wire.records.record import RecordView

Extent = tuple[int, int]
"""From one log offset to another."""


class LogCheck:
    """Checks the log of one store. After `run`: `extents`, `damaged` and the ends are known."""

    def __init__(self, store: StoppedStore, findings: Findings, metadata: MetadataCheck) -> None:
        self._store, self._log, self._findings = store, store.log, findings
        self._metadata = metadata
        self.extents: list[Extent] = []
        """Whole records that follow one another, each within one file."""
        self.damaged: list[Extent] = []
        """Where records were and are not whole, or whole files are gone."""
        checkpoint = store.checkpoint
        self.start = checkpoint.log_start if checkpoint else min(self._log.bases(), default=0)
        self.end = self.start
        self.store_ms = self.metaq_id = self.records = 0
        self._witness = UnitWitness(
            store.vfs, store.folder.queues, lambda: noted_borders(store.checkpoint)
        )
        if store.last_stop is LastStop.POWER_LOST:
            self._witness.doubt_from(checkpoint.views_synced if checkpoint else 0)
        self._open: tuple[int, str] | None = None
        """Where the chain broke without a whole record behind it in that file, and why."""

    def is_damaged(self, log_offset: int) -> bool:
        """Whether a log offset lies where records cannot be read."""
        return any(start <= log_offset < end for start, end in self.damaged)

    def run(self) -> Iterator[int]:
        """Check everything; yield the log offset now and then."""
        self._names()
        for base in self._log.bases(self.start):
            if self._open is None and base > self.end:
                self._missing(self.end, base)
                self.end = base
            yield from self._file(base)
        self._ends()

    # Files

    def _names(self) -> None:
        folder, size = self._log.folder, self._log.segment_size
        findings = self._findings
        for name in self._store.vfs.names(folder):
            if len(name) != OFFSET_DIGITS or not name.isdecimal():
                what = "is not named as a file of the log, which is its first offset in 20 digits"
                findings.warn(
                    folder / name, None, what, "move it out of the folder, if it is yours"
                )
            elif int(name) % size:
                what = f"the name is no multiple of the file size {size}: the broker does not start"
                findings.error(folder / name, None, what, "give the file its name back")
            elif int(name) + size <= self.start:
                findings.note(folder / name, f"is below the log's start {self.start}")
        bases = self._log.bases(self.start)
        for base in bases:
            found = self._log.sizes[base]
            if found == size:
                continue
            if base == bases[-1] and base and not any(self._log.read(base, 64)):
                findings.warn(self._log.path(base), found, "was being made when the broker stopped")
            else:
                what = f"{found} bytes, but the files of this log have {size}"
                findings.error(self._log.path(base), min(found, size), what, RESTORE)

    def _missing(self, start: int, end: int) -> None:
        self.damaged.append((start, end))
        size = self._log.segment_size
        for base in range(start - start % size, end, size):
            if base not in self._log.sizes:
                what = f"the file is missing: log offsets {base} to {base + size}"
                self._findings.error(self._log.path(base), None, what, RESTORE)

    def _file(self, base: int) -> Iterator[int]:
        limit = base + self._log.segment_size
        at = base
        if self._open is not None:
            # Without a whole record here, the log ends where it broke.
            place = self._begins(base, limit)
            yield base
            if place is None or self._cut_at_power_loss(self._open[0]):
                return
            self._broken(*self._open, place)
            self._open = None
            at = place
        while at < limit:
            last: Block | None = None
            for block in blocks(self._log, at, limit):
                self._take(block)
                last = block
                yield block.end
            assert last is not None, "there is always a block"
            reason = self._why(last, limit)
            if not reason:
                self._rest(last.end, limit)
                self.end = limit
                return
            place = known_border(self._log, last.end, limit, self._witness)
            if place is None or self._cut_at_power_loss(last.end):
                self._open = (last.end, reason)
                return
            self._broken(last.end, reason, place)
            at = place

    def _begins(self, base: int, limit: int) -> int | None:
        """Return where the first record of a file is that is confirmed."""
        if is_record(self._log, base):
            return base
        return known_border(self._log, base, limit, self._witness)

    def _rest(self, end: int, limit: int) -> None:
        """Look behind the blank record: nothing was ever written there."""
        place = end + BLANK_SIZE
        while place < limit:
            data = self._log.read(place, min(CHUNK_BYTES, limit - place))
            if not data:
                return
            if any(data):
                what = "not zero behind the blank record that closes the file"
                position = place % self._log.segment_size + len(data) - len(data.lstrip(b"\0"))
                self._findings.warn(self._log.path(place), position, what, "none needed")
                return
            place += len(data)

    def _why(self, block: Block, limit: int) -> str:
        """Return what is wrong behind a block, "" for the blank record that belongs there."""
        if block.stop is ScanStop.BLANK:
            at = block.end - block.offset
            said = int.from_bytes(block.data[at : at + 4], "big")
            if said == limit - block.end:
                return ""
            return f"blank record of {said} bytes where {limit - block.end} are left"
        if block.stop is ScanStop.UNWRITTEN:
            return "zeros"
        return block.reason or "a cut record"

    def _cut_at_power_loss(self, offset: int) -> bool:
        checkpoint = self._store.checkpoint
        durable_end = checkpoint.durable_end if checkpoint else 0
        return self._store.last_stop is LastStop.POWER_LOST and offset >= durable_end

    def _broken(self, start: int, reason: str, end: int) -> None:
        self.damaged.append((start, end))
        size = self._log.segment_size
        what = f"{self._name(start)}{reason}; whole records follow at log offset {end}"
        self._findings.error(self._log.path(start), start % size, what, RESTORE)
        self.end = end
        self._metadata.doubt()

    def _name(self, offset: int) -> str:
        """Return whose record is at an offset, as far as it can be read."""
        head = self._log.read(offset, 4)
        size = min(int.from_bytes(head, "big"), self._log.segment_size)
        data = self._log.read(offset, size)
        try:
            layout = read_layout(data, 0)
        except RecordError:
            return ""
        topic = data[layout.topic_at : layout.topic_at + layout.topic_size]
        name = topic.decode("utf-8", "backslashreplace")
        return f"record {layout.queue_offset} of {name}/{layout.queue_id}: "

    # Records

    def _take(self, block: Block) -> None:
        if not block.views:
            return
        self.extents.append((block.offset, block.end))
        self.end = block.end
        self.records += len(block.views)
        for view in block.views:
            self._record(block.data, view)

    def _record(self, data: bytes, view: RecordView) -> None:
        if view.store_ms < self.store_ms:
            self.tell(view, f"store time {view.store_ms} after {self.store_ms}: it went back")
        self.store_ms = view.store_ms
        if view.metaq_position >= 0:
            # A transaction's messages got theirs before others that were put earlier.
            if view.metaq_id <= self.metaq_id and not view.sys_flag & SYS_COMMIT:
                self.tell(view, f"MetaQ id {view.metaq_id} after {self.metaq_id}: ids only grow")
            self.metaq_id = max(self.metaq_id, view.metaq_id)
        said = int.from_bytes(data[view.at + 8 : view.at + 12], "big")
        if crc31(memoryview(data)[view.body_at : view.body_at + view.body_size]) != said:
            self.tell(view, "the body's checksum does not match, the record's does")
        problem = self._metadata.take(data, view)
        if problem:
            self.tell(view, problem)

    def tell(self, view: RecordView, what: str) -> None:
        """Take an error in one record."""
        place = view.physical_offset
        position = place % self._log.segment_size
        self._findings.error(self._log.path(place), position, what, RESTORE)

    # The end

    def _ends(self) -> None:
        end, reason = self._open or (self.end, "")
        self.end = end
        checkpoint, path = self._store.checkpoint, self._log.path(end)
        position = end % self._log.segment_size
        if checkpoint is not None and end < checkpoint.durable_end:
            what = f"{self._name(end)}{reason or 'nothing'}, and the log was synced up to offset "
            self._findings.error(path, position, f"{what}{checkpoint.durable_end}", RESTORE)
        elif self._written_behind(end):
            self._tail(end, f"{self._name(end)}{reason}")
        elif self._store.clean and checkpoint is not None and end != checkpoint.log_end:
            what = f"the log ends at offset {end}, but was closed at {checkpoint.log_end}"
            self._findings.error(path, position, what, RESTORE)

    def _tail(self, end: int, reason: str) -> None:
        log, path, position = self._log, self._log.path(end), end % self._log.segment_size
        written = written_end(log, end, max(log.bases(end)) + log.segment_size)
        if self._store.clean:
            what = f"{reason}, and no whole record behind it: the log was closed in order"
            self._findings.error(path, position, what, RESTORE)
        elif self._store.last_stop is LastStop.KILLED and not is_left_by_kill(log, end, written):
            what = f"{reason}: no torn write, for more of it is there, up to log offset {written}"
            self._findings.error(path, position, what, RESTORE)
        else:
            what = f"torn tail of the log: {reason}, and nothing that was synced"
            self._findings.warn(path, position, what, f"{START}: it cuts the log here")

    def _written_behind(self, end: int) -> bool:
        size = self._log.segment_size
        for base in self._log.bases(end):
            place, written = look_behind(self._log, max(base, end), base + size)
            if written or place is not None:
                return True
        return False
