"""Why a record cannot be read: the log itself is damaged, or the unit that led there is wrong.

Damage of the log is noted and goes out of service. A wrong unit is put right from the log.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from imago_log.commitlog.log_reader import LogReader, find_damage
from imago_log.errors import NoSpaceError
from imago_log.views.units.unit_files import BLANK_SIZE_FIELD, LOST_SIZE_FIELD
from imago_wire.hot import queue_records, view_record
from imago_wire.record_format.layout import POSITION_UNIT, UNIT

if TYPE_CHECKING:
    from imago_log.commitlog.borders import Witness
    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.commitlog.damage import Damage
    from imago_log.commitlog.log_reader import Extent
    from imago_log.commitlog.recent import RecentLog
    from imago_log.disk.worker import Background
    from imago_log.errors import UnreadableError
    from imago_log.views.queues.queue_writing import QueueWriter
    from imago_log.views.queues.queues import Queues
    from imago_log.views.units.consume_queue import ConsumeQueue
    from imago_log.views.units.unit_proof import UnitProof
    from imago_wire.records.record import RecordView

logger = logging.getLogger(__name__)

UNITS_MAX = 2048
"""Units that are inspected for the wrong one: as many as a read takes."""
NEIGHBOURS_MAX = 64
MEND_BYTES_MAX = 64 << 20
"""Of the log, so much is searched for the records of wrong units."""
POLLS_MAX = 60
"""Ticks for which "nothing wrong" is remembered."""
JOBS_MAX = 64
"""Inspections that the worker runs at a time; more have to wait."""


class Look(Enum):
    """What is known of something that could not be read."""

    KNOWN = "known"
    """It is noted as damage, or put right: read again."""
    NOTHING = "nothing"
    """Nothing wrong was found."""
    PENDING = "pending"
    """It is being inspected: ask again."""


class _MessageUnits(NamedTuple):
    """The units of one message, as they were when a job began."""

    offset: int
    unit: tuple[int, int, int]
    position: tuple[int, int] | None


@dataclass(slots=True)
class _Job:
    """One inspection of a place of the log and of units, for the worker. `done` is set last."""

    log: CommitLog
    damage: Damage
    witness: Witness
    place: int
    start: int
    """Where the log began when this did: what is inspected has not expired by then."""
    limit: int
    """A border behind the place: of what is in memory, or the log's end when this began."""
    queue: ConsumeQueue | None
    first: int
    """The first queue offset that is inspected; rows before it are only neighbours."""
    rows: list[_MessageUnits]
    damaged: Extent | None = None
    wrong: list[_MessageUnits] = field(default_factory=list)
    records: dict[int, RecordView] = field(default_factory=dict)
    """What the log has for wrong units, by queue offset."""
    expired: bool = False
    """Whether those that it does not have were of records before its start."""
    polls: int = 0
    done: bool = False

    def run(self) -> None:
        try:
            self.damaged = find_damage(self.log, self.place, self.limit, self.witness)
            if self.damaged is None and self.queue is not None:
                self._look_at_units(self.queue.tail.topic, self.queue.tail.queue_id)
        finally:
            self.done = True

    def _look_at_units(self, topic: bytes, queue_id: int) -> None:
        right = [self._is_right(row, topic, queue_id) for row in self.rows]
        wrong = [
            at for at, row in enumerate(self.rows) if row.offset >= self.first and not right[at]
        ]
        if not wrong:
            return
        self.wrong = [self.rows[at] for at in wrong]
        wanted = {row.offset for row in self.wrong}

        def take(_: bytes, __: int, views: list[RecordView]) -> None:
            for view in views:
                own = (view.topic, view.queue_id) == (topic, queue_id)
                if own and view.queue_offset in wanted:
                    self.records[view.queue_offset] = view

        low, high = begin, end = self._between(right, wrong[0], wrong[-1])
        high = min(high, low + MEND_BYTES_MAX)
        while low < high and len(self.records) < len(wanted):
            # In steps, for what was wanted may be found long before the end.
            low, _ = LogReader(self.log, take).run(low, high)
            lost = self.damage.at(low)
            if lost is None:
                break
            low = lost.end
        damaged = self.damage.first_in(begin, end) is not None
        self.expired = begin == self.start and low == end and not damaged

    def _is_right(self, row: _MessageUnits, topic: bytes, queue_id: int) -> bool:
        place, size, tag = row.unit
        if size == LOST_SIZE_FIELD or self.damage.at(place) is not None:
            return True
        if self.start <= place < self.log.start:
            return True  # its record has expired meanwhile
        if not 0 < size <= self.log.segment_size:
            return False
        data = self.log.read(place, size)
        if not queue_records(data, place, topic, queue_id, row.offset) == size == len(data):
            return self.start <= place < self.log.start
        view = view_record(data)
        position = (view.metaq_position, view.metaq_size)
        return view.tag_code == tag and row.position in (None, position)

    def _between(self, right: list[bool], first: int, last: int) -> tuple[int, int]:
        """Return a border before the records of some rows and one behind them."""
        low, high = self.log.start, self.limit
        for at in range(first - 1, -1, -1):
            place, size, _ = self.rows[at].unit
            if right[at] and size > 0 and low <= place < self.limit:
                low = place + size
                break
        for at in range(last + 1, len(self.rows)):
            place, size, _ = self.rows[at].unit
            if right[at] and size > 0 and self.damage.at(place) is None:
                high = place
                break
        return low, high


class Inspector:
    """Finds out why readers failed. The worker inspects, the store's thread repairs."""

    def __init__(
        self,
        proof: UnitProof,
        recent: RecentLog,
        queues: Queues,
        queue_writer: QueueWriter,
        background: Background,
    ) -> None:
        self._log, self._damage, self._witness = proof.log, proof.damage, proof.witness
        self._recent = recent
        self._queues, self._queue_writer = queues, queue_writer
        self._background = background
        self._jobs: dict[tuple[int, int], _Job] = {}
        """By place and queue."""
        self.mended = 0
        """Units that were wrong."""

    def look(self, place: int, queue: ConsumeQueue | None = None, offset: int = 0) -> Look:
        """Find out why the record of a queue is not at a place.

        The wrong unit is at `offset` or among the next ones.
        """
        if queue is not None and self._meets_gap(queue, offset):
            return Look.KNOWN
        key = (place, id(queue))
        job = self._jobs.get(key)
        if job is None:
            if len(self._jobs) >= JOBS_MAX:
                self.poll()
                return Look.PENDING
            job = self._jobs[key] = self._job(place, queue, offset)
            self._background.submit(job.run)
        if not job.done:
            return Look.PENDING
        del self._jobs[key]
        return Look.KNOWN if self._take(job) else Look.NOTHING

    def explained(self, queue: ConsumeQueue, error: UnreadableError) -> bool:
        """Whether it is known, or being found out, why a record of a queue could not be read."""
        return self.look(error.place, queue, error.offset) is not Look.NOTHING

    def _meets_gap(self, queue: ConsumeQueue, offset: int) -> bool:
        """Whether readers meet lost units although no damage is known."""
        if self._damage.may_lose or not queue.first <= offset < queue.end:
            return False
        units = queue.units(offset, min(UNITS_MAX, queue.end - offset))
        if not any(size == LOST_SIZE_FIELD for _, size, _ in UNIT.iter_unpack(units)):
            return False
        self._damage.note_gap()
        return True

    def poll(self) -> None:
        """Take over what jobs have found; that one found nothing is kept for who asks again."""
        for key, job in list(self._jobs.items()):
            job.polls += 1
            if job.done and (job.damaged or job.records or job.polls > POLLS_MAX):
                self._take(self._jobs.pop(key))

    def _job(self, place: int, queue: ConsumeQueue | None, offset: int) -> _Job:
        log, rows = self._log, list[_MessageUnits]()
        with suppress(NoSpaceError):  # then fewer borders are known
            self._queue_writer.write_all()
        limit = self._recent.start_behind(place)
        if queue is not None:
            offset = max(offset, queue.lookup.min_offset(log.start))
            start = max(queue.first, offset - NEIGHBOURS_MAX)
            end = min(queue.end, offset + UNITS_MAX + NEIGHBOURS_MAX)
            rows = _rows(queue, start, end - start) if start < end else []
        limit = log.end if limit is None else limit
        return _Job(log, self._damage, self._witness, place, log.start, limit, queue, offset, rows)

    def _take(self, job: _Job) -> bool:
        """Note what a job has found; true: it was something."""
        queue = job.queue
        if job.damaged is not None:
            start, end, reason = job.damaged
            if end <= self._log.end and end > self._log.start:  # else it was cut or deleted
                self._damage.add(start, end, reason)
                self._damage.save_later()
            return True
        if queue is None or not job.wrong:
            return False
        mended, missing = self.mended, list[int]()
        for row in job.wrong:
            if not self._still(queue, row) or not self._mend(queue, row.offset, job):
                missing.append(row.offset)
        name, queue_id, first = queue.tail.topic, queue.tail.queue_id, job.wrong[0].offset
        count = self.mended - mended
        if count:
            logger.warning(
                "queue.unit-mended queue=%s/%d offset=%d units=%d", name, queue_id, first, count
            )
        if missing:
            logger.error(
                "queue.unit-wrong queue=%s/%d offset=%d units=%d",
                name, queue_id, missing[0], len(missing),
            )  # fmt: skip
        return count > 0

    def _mend(self, queue: ConsumeQueue, offset: int, job: _Job) -> bool:
        view = job.records.get(offset)
        if view is not None and view.physical_offset + view.size <= self._log.end:
            rewrite(queue, view)
        elif view is None and job.expired:
            blank(queue, offset)
        else:
            return False
        self.mended += 1
        return True

    def _still(self, queue: ConsumeQueue, row: _MessageUnits) -> bool:
        """Whether a unit is as it was: its queue may have been cut or deleted meanwhile."""
        known = self._queues.find(queue.tail.topic.decode(), queue.tail.queue_id)
        if known is not queue or not queue.first <= row.offset < queue.end:
            return False
        return _rows(queue, row.offset, 1) == [row]

    def read_through(self, start: int, end: int) -> bool:
        """Inspect the first place from a border on where no whole record is, up to `end`.

        True: damage is known there. What the worker has still to look at is not: where `start` is
        no border, as anybody may ask, there is none.
        """
        end = min(end, self._log.end)
        at, _ = LogReader(self._log).run(start, end)
        return at < end and self.look(at) is Look.KNOWN

    def put_right(self, queue: ConsumeQueue, offset: int, place: int, size: int) -> bool:
        """Write the units of the record at a place again; false: it is not there any more."""
        data, tail = self._log.read(place, size), queue.tail
        if not queue_records(data, place, tail.topic, tail.queue_id, offset) == size == len(data):
            return False
        rewrite(queue, view_record(data))
        self.mended += 1
        logger.warning("queue.unit-mended queue=%s/%d offset=%d", tail.topic, tail.queue_id, offset)
        return True


def _rows(queue: ConsumeQueue, start: int, count: int) -> list[_MessageUnits]:
    units = list(UNIT.iter_unpack(queue.units(start, count)))
    positions: list[tuple[int, int] | None] = [None] * len(units)
    if queue.tail.dual:
        positions = list(POSITION_UNIT.iter_unpack(queue.position_units(start, count)))
    rows = zip(units, positions, strict=False)
    return [_MessageUnits(start + at, unit, position) for at, (unit, position) in enumerate(rows)]


def blank(queue: ConsumeQueue, offset: int) -> None:
    """Mark the units of a message that has expired."""
    position = (
        POSITION_UNIT.pack(queue.position(offset)[0], BLANK_SIZE_FIELD) if queue.tail.dual else b""
    )
    queue.overwrite(offset, UNIT.pack(0, BLANK_SIZE_FIELD, 0), position)


def rewrite(queue: ConsumeQueue, view: RecordView) -> None:
    """Write the units of one message again."""
    position = POSITION_UNIT.pack(view.metaq_position, view.metaq_size)
    unit = UNIT.pack(view.physical_offset, view.size, view.tag_code)
    queue.overwrite(view.queue_offset, unit, position if queue.tail.dual else b"")
