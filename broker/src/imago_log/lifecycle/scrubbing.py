"""Read the whole log again and again, slowly, to find damage before a reader needs it.

The worker reads and verifies the records and makes of them what their views should hold; the
store's thread compares, notes what is damaged, and puts views right. One step a tick.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from imago_log.commitlog.borders import border_behind, is_blank, segment_end
from imago_log.views.units.consume_queue import POSITION_SIZE, UNIT_SIZE
from imago_log.views.units.lost import is_possible
from imago_wire.errors import RecordError
from imago_wire.hot import QueueTail, index_records, key_entries, metaq_block, whole_records
from imago_wire.record_format.layout import POSITION_UNIT, UNIT
from imago_wire.records.record import ScanStop

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log.commitlog.borders import Witness
    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.commitlog.damage import Damage
    from imago_log.disk.vfs import Vfs
    from imago_log.metadata.changes import Topic
    from imago_log.state import StoreState
    from imago_log.views.metaq.metaq_segments import MetaqSegments
    from imago_log.views.units.consume_queue import ConsumeQueue

logger = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 20
STEP_BYTES_MIN = 1 << 20
HASTE = 1.25
"""A pass is planned to be this much faster than its interval."""

Key = tuple[bytes, int]
"""Topic and queue id."""


class ScrubCounts(NamedTuple):
    """Scrubbing's counts since the store was opened."""

    passes: int = 0
    bytes_verified: int = 0
    views_mended: int = 0
    """Units, key entries and MetaQ files that were wrong."""


@dataclass(slots=True)
class _Files:
    """MetaQ's files of a partition when a step began."""

    starts: list[int]
    end: int
    folder: MetaqSegments


@dataclass(slots=True)
class _Block:
    """Whole records that follow one another, and what the views should hold of them."""

    start: int
    size: int
    tails: dict[Key, tuple[int, QueueTail]]
    """By queue: the first queue offset, and the units from it on."""
    keys: bytes


@dataclass(slots=True)
class _Step:
    """One step, for the worker. `done` is set last."""

    log: CommitLog
    damage: Damage
    witness: Witness
    vfs: Vfs
    start: int
    end: int
    """A border: what is verified ends here, or a little before it."""
    stop_at: int
    """Enough has been read when the step gets here."""
    files: dict[Key, _Files]
    blocks: list[_Block] = field(default_factory=list)
    suspects: list[int] = field(default_factory=list)
    """Log offsets where no whole record is."""
    wrong_files: set[Key] = field(default_factory=set)
    at: int = 0
    """Where the next step goes on."""
    done: bool = False

    def run(self) -> None:
        self.at = self.start
        chunk = BLOCK_BYTES
        while self.at < min(self.end, self.stop_at):
            found = self.damage.at(self.at)
            if found is not None:
                self.at = found.end
                continue
            limit = min(self.end, segment_end(self.log, self.at))
            data = self.log.read(self.at, min(chunk, limit - self.at))
            good, stop, _ = whole_records(data, self.at)
            self._take(data[:good])
            chunk = self._go_on(good, stop, cut=len(data) == chunk, limit=limit)
        self.done = True

    def _go_on(self, good: int, stop: ScanStop, *, cut: bool, limit: int) -> int:
        """Move on; return the size of the next read, which holds a record that was cut."""
        if self.at == limit or (good and cut and stop in (ScanStop.END, ScanStop.SHORT)):
            return BLOCK_BYTES
        if cut and stop is ScanStop.SHORT:
            return segment_end(self.log, self.at) - self.at
        if stop is ScanStop.BLANK and is_blank(self.log, self.at):
            self.at = segment_end(self.log, self.at)
        elif self.at < self.log.start:
            self.at = self.log.start  # deleted meanwhile
        else:
            self.suspects.append(self.at)
            self.at = border_behind(self.log, self.at, limit, self.witness)
        return BLOCK_BYTES

    def _take(self, data: bytes) -> None:
        if not data:
            return
        tails: dict[Key, tuple[int, QueueTail]] = {}

        def find(topic: bytes, queue_id: int, offset: int, _: int, position: int) -> QueueTail:
            tail = QueueTail(topic, queue_id, dual=position >= 0, next_offset=offset)
            tails[topic, queue_id] = (offset, tail)
            return tail

        start = self.at
        index_records(data, find, b"")
        self.blocks.append(_Block(start, len(data), tails, key_entries(data, start)))
        self.at += len(data)
        for key, files in self.files.items():
            if key in tails and not self._has(files, tails[key][1], data, start):
                self.wrong_files.add(key)

    def _has(self, files: _Files, tail: QueueTail, data: bytes, start: int) -> bool:
        """Whether MetaQ's files hold these messages, as far as they hold their positions."""
        first, last = files.starts[0], files.end
        view = memoryview(data)
        positions = list(POSITION_UNIT.iter_unpack(tail.positions))
        units = UNIT.iter_unpack(tail.units)
        kept = [
            (position, view[place - start : place - start + size])
            for (position, length), (place, size, _) in zip(positions, units, strict=True)
            if position >= first and position + length <= last
        ]
        if not kept:
            return True
        try:
            expected = metaq_block([record for _, record in kept])
            return expected == self._read(files, kept[0][0], len(expected))
        except (FileNotFoundError, RecordError):
            return True  # removed meanwhile, or not to be had in this form at all

    def _read(self, files: _Files, position: int, size: int) -> bytes:
        parts: list[bytes] = []
        ends = [*files.starts[1:], files.end]
        for begin, end in zip(files.starts, ends, strict=True):
            first, last = max(begin, position), min(end, position + size)
            if first < last:
                parts.append(self._read_file(files.folder.path(begin), first - begin, last - first))
        return b"".join(parts)

    def _read_file(self, path: Path, at: int, size: int) -> bytes:
        fd = self.vfs.open(path)
        try:
            return self.vfs.pread(fd, size, at)
        finally:
            self.vfs.close(fd)


class Scrubber:
    """Steps through the log of one store. All methods belong to the store's thread."""

    def __init__(self, s: StoreState) -> None:
        self._interval_ms = s.config.scrub_interval_ms
        self._step_bytes_max = s.config.scrub_step_bytes_max
        self._log, self._damage, self._witness = s.log, s.damage, s.witness
        self._vfs, self._folder = s.vfs, s.folder
        self._metadata, self._queues, self._keys = s.metadata, s.queues, s.keys
        self._materialiser, self._refiller = s.materialiser, s.refiller
        self._inspector, self._background = s.inspector, s.background
        self.counts = ScrubCounts()
        self._step: _Step | None = None
        self._at = self._end = -1
        """Of the pass that runs; no pass runs when they are equal."""
        self._began_ms = self._stepped_ms = -1

    def tick(self, now_ms: int) -> None:
        """Take over what was verified; start the next step when it is time."""
        if not self._interval_ms:
            return
        if self._step is not None:
            if not self._step.done:
                return
            self._take(self._step)
            self._step = None
        if self._at >= self._end and not self._begin(now_ms):
            return
        log = self._log
        self._at, self._end = max(self._at, log.start), min(self._end, log.durable_end)
        if self._at < self._end:
            self._plan(now_ms)
        else:
            self._finish()

    def _begin(self, now_ms: int) -> bool:
        if self._began_ms >= 0 and now_ms - self._began_ms < self._interval_ms:
            return False
        log = self._log
        self._at, self._end, self._began_ms, self._stepped_ms = (
            log.start,
            log.durable_end,
            now_ms,
            now_ms,
        )
        return self._at < self._end

    def _plan(self, now_ms: int) -> None:
        elapsed_ms = max(0, now_ms - self._stepped_ms)
        self._stepped_ms = now_ms
        total = self._end - self._log.start
        due = int(total * HASTE * elapsed_ms / self._interval_ms)
        size = min(max(due, STEP_BYTES_MIN), self._step_bytes_max)
        step = self._step = _Step(
            self._log,
            self._damage,
            self._witness,
            self._vfs,
            self._at,
            self._end,
            self._at + size,
            {
                (partition.queue.tail.topic, partition.queue.tail.queue_id): _Files(
                    partition.segments.starts(), partition.segments.end, partition.segments
                )
                for partition in self._materialiser
                if partition.segments.exists
            },
        )
        self._background.submit(step.run)
        if step.done:
            self._step = None
            self._take(step)

    def _take(self, step: _Step) -> None:
        for place in step.suspects:
            self._inspector.look(place)
        mended = 0
        for block in step.blocks:
            if block.start >= self._log.start and block.start + block.size <= self._end:
                mended += self._compare(block)
        for topic, queue_id in step.wrong_files:
            mended += self._materialiser.rebuild(topic.decode(), queue_id, self._log.start)
        verified = sum(block.size for block in step.blocks)
        passes, before, views = self.counts
        self.counts = ScrubCounts(passes, before + verified, views + mended)
        self._at = step.at
        if self._at >= self._end:
            self._finish()

    def _finish(self) -> None:
        self.counts = self.counts._replace(passes=self.counts.passes + 1)
        self._at = self._end = -1
        logger.info("log.scrubbed %s", self.counts)

    # Views

    def _compare(self, block: _Block) -> int:
        """Put the views of some records right; return how much was wrong."""
        wrong = 0
        for key, (first, tail) in block.tails.items():
            queue = self._queue(key, int.from_bytes(tail.units[:8], "big"))
            if queue is not None:
                wrong += self._compare_queue(queue, first, tail)
        keys = self._keys
        if block.start + block.size <= keys.written_end and not keys.holds(
            block.start, block.size, block.keys
        ):
            wrong += self._mend_keys(block)
        return wrong

    def _queue(self, key: Key, place: int) -> ConsumeQueue | None:
        name = key[0].decode("utf-8", "replace")
        try:
            topic = self._metadata.topic(name)
        except KeyError:
            return None
        return self._queues.get(topic, key[1]) if place >= topic.birth else None

    def _compare_queue(self, queue: ConsumeQueue, first: int, tail: QueueTail) -> int:
        place = int.from_bytes(tail.units[-UNIT_SIZE:][:8], "big")
        if not is_possible(tail.next_offset - 1, place):
            return 0  # hidden in a message behind damage: no start takes it either
        if queue.end < tail.next_offset:
            self._refill(queue, self._metadata.topic(tail.topic.decode()))
        if queue.end < tail.next_offset:
            self._folder.forget_views()
            logger.error(
                "queue.short queue=%s/%d end=%d, the log has %d: the next start builds views anew",
                tail.topic, tail.queue_id, queue.end, tail.next_offset,
            )  # fmt: skip
            return 1
        start, end = max(first, queue.first), min(tail.next_offset, queue.written)
        if start >= end:
            return 0
        found = queue.units(start, end - start)
        wrong = set(_differences(found, tail.units, (start - first) * UNIT_SIZE, UNIT_SIZE))
        if queue.tail.dual and tail.dual:
            found = queue.position_units(start, end - start)
            skip = (start - first) * POSITION_SIZE
            wrong |= set(_differences(found, tail.positions, skip, POSITION_SIZE))
        # Read again: the log may have been cut since the worker read it.
        units = list(UNIT.iter_unpack(tail.units))[start - first :]
        return sum(
            self._inspector.put_right(queue, start + at, *units[at][:2]) for at in sorted(wrong)
        )

    def _refill(self, queue: ConsumeQueue, topic: Topic) -> None:
        self._refiller.refill(queue, topic)
        self._materialiser.rebuild(topic.name, queue.tail.queue_id, self._log.start)

    def _mend_keys(self, block: _Block) -> int:
        data = self._log.read(block.start, block.size)
        good, _, _ = whole_records(data, block.start)
        if good != block.size or key_entries(data, block.start) != block.keys:
            return 0  # cut since
        if not self._keys.overwrite(block.start, block.size, block.keys):
            self._folder.forget_views()
            logger.error("keys.wrong log_offset=%d: the next start builds views anew",
                         block.start)  # fmt: skip
        return 1


def _differences(found: bytes, expected: bytearray, skip: int, unit: int) -> list[int]:
    """Return which units differ."""
    wanted = bytes(memoryview(expected)[skip : skip + len(found)])
    if found == wanted:
        return []
    return [
        at // unit
        for at in range(0, len(found), unit)
        if found[at : at + unit] != wanted[at : at + unit]
    ]
