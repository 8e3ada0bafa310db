"""Timers that are due, made into what one append fires: run by run, as their queues have them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from imago_broker.core.timers.timer_record import mark_of
from imago_broker.core.timers.timer_wheel import TimerRun
from imago_broker.model.names import TIMER_TOPIC
from imago_broker.service.delays.restoring import restored_entry, run_bytes_max
from imago_broker.service.puts.copies import read_copy
from imago_wire.hot import restore_run
from imago_wire.record_format.layout import UNIT, WAITING_PLACE
from imago_wire.record_format.sequences import TIMER_MARK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imago_broker.core.timers.timer_wheel import Timer, TimerWheel
    from imago_broker.service.delays.timers.timer_bucket import TimerBucket
    from imago_broker.service.delays.timers.timer_figures import TimerFigures
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.topics.topics import TopicService
    from imago_wire.hot import EntryRun
    from imago_wire.records.record import Entry

log = logging.getLogger(__name__)
BATCH_BYTES_MAX: Final = 4 << 20
UNREADABLE_MS: Final = 30_000
"""A timer in a damaged part of the log is read again after this."""


class TimerTaker:
    """Takes timers off the wheel. `refused` are those that do not fit the log any more."""

    def __init__(
        self, messages: MessageService, topics: TopicService, figures: TimerFigures
    ) -> None:
        self._messages, self._store = messages, messages.store
        self._topics, self._figures = topics, figures
        self._bytes_max = min(BATCH_BYTES_MAX, run_bytes_max(self._store))
        self.refused: set[tuple[int, int]] = set()

    def take(
        self,
        wheel: TimerWheel,
        buckets: Mapping[int, TimerBucket],
        now_ms: int,
        count_max: int,
    ) -> TimerBatch:
        """Take what is due, as much as one append may have."""
        batch = TimerBatch()
        for run in self._due(wheel, buckets, now_ms, count_max):
            for timer in self._take_run(batch, run, now_ms):
                buckets[timer.queue_id].fail(timer.offset)
                wheel.add(timer)
        return batch

    def _due(
        self, wheel: TimerWheel, buckets: Mapping[int, TimerBucket], now_ms: int, count_max: int
    ) -> list[TimerRun]:
        """Take what is due off the wheel, less what is recalled or stood on it twice."""
        due: list[TimerRun] = []
        while count_max > 0:
            runs = wheel.take_due(now_ms, count_max)
            if not runs:
                break
            for run in runs:
                bucket = buckets.get(run.queue_id)
                if bucket is None:
                    continue
                if bucket.begin(run.first, run.length):
                    waiting = [run]
                else:
                    each = [timer for timer in run.timers() if bucket.begin(timer.offset)]
                    waiting = [TimerRun.of(timer) for timer in each]
                due += waiting
                count_max -= sum([one.length for one in waiting])
        return due

    def _take_run(self, batch: TimerBatch, run: TimerRun, now_ms: int) -> Iterator[Timer]:
        """Take timers that stand side by side; yield those that have to wait."""
        count = self._restored(batch, run, now_ms)
        if count == run.length:
            return
        for timer in islice(run.timers(), count, None):
            if batch.size >= self._bytes_max:
                yield timer
                continue
            record = self._record(timer)
            if record is None:
                yield timer._replace(due_ms=now_ms + UNREADABLE_MS)
            else:
                batch.add(timer, record, self._entry(timer, record))

    def _restored(self, batch: TimerBatch, run: TimerRun, now_ms: int) -> int:
        """Take what needs no closer look from the start of a run; return how many."""
        room = self._bytes_max - batch.size
        if room <= 0 or self.refused or not self._messages.takes_runs:
            return 0
        found = self._store.read(
            TIMER_TOPIC, run.queue_id, run.first, messages_max=run.length, bytes_max=room
        )
        tails = self._topics.handles.open_tails
        messages = restore_run(found.body, 0, run.length, now_ms, tails, run.queue_id)
        if messages is None:
            return 0
        count, places = messages.count, messages.places
        ends = (0, len(places) - WAITING_PLACE.size)
        first, last = (WAITING_PLACE.unpack_from(places, at)[1] for at in ends)
        if (first, last) != (run.first, run.first + count - 1):
            return 0
        batch.add_run(run.head(count), messages)
        return count

    def _entry(self, timer: Timer, record: bytes) -> Entry | None:
        """Return the message that a timer becomes; None where it has no place any more."""
        place = (timer.queue_id, timer.offset)
        if not record:
            self._figures.lost += 1
            log.error("timer_lost queue=%d offset=%d due_ms=%d", *place, timer.due_ms)
            return None
        if place in self.refused:
            log.warning("timer_dropped queue=%d offset=%d", *place)
            self._figures.dropped += 1
            return None
        mark = b"%b\x01%b\x02" % (TIMER_MARK, mark_of(*place))
        entry = restored_entry(self._store, self._topics, read_copy(record), mark)
        self._figures.dropped += entry is None
        return entry

    def _record(self, timer: Timer) -> bytes | None:
        """Return a parked record; empty: the log lost it; None: it cannot be read now."""
        unit = self._store.units(TIMER_TOPIC, timer.queue_id, timer.offset, 1)
        if not unit:
            return b""
        place = UNIT.unpack(unit)[0]
        if place < self._store.log_start:
            return b""
        return self._store.record_at(place)


# Timers that fire together, as they are taken off the wheel.


@dataclass(slots=True)
class TimerBatch:
    """Timers that fire by one append."""

    taken: list[TimerRun] = field(default_factory=list)
    fired: bytearray = field(default_factory=bytearray)
    """Where each entry was parked, as the firing record names it."""
    dropped: bytearray = field(default_factory=bytearray)
    entries: list[Entry | EntryRun] = field(default_factory=list)
    size: int = 0

    @property
    def count(self) -> int:
        """How many timers there are, those that are dropped as well."""
        return sum([run.length for run in self.taken])

    def add(self, timer: Timer, record: bytes, entry: Entry | None) -> None:
        """Take one more; without an entry it is dropped."""
        self.taken.append(TimerRun.of(timer))
        self.size += len(record)
        place = WAITING_PLACE.pack(timer.queue_id, timer.offset)
        if entry is None:
            self.dropped += place
        else:
            self.fired += place
            self.entries.append(entry)

    def add_run(self, run: TimerRun, messages: EntryRun) -> None:
        """Take several that need no closer look."""
        self.taken.append(run)
        self.fired += messages.places
        self.entries.append(messages)
        self.size += messages.end
