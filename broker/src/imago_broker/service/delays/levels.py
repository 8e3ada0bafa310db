"""Delayed messages: 18 levels, one queue of SCHEDULE_TOPIC_XXXX each, delivered in order.

A delayed message is a record of its level's queue with its real topic and queue in the properties
REAL_TOPIC and REAL_QID. When it is due it is put again, to where it belongs, once: how far each
level has come stands in the log with what it delivered (`delay_progress`). Within a level all wait
equally long, so the first message of each queue says when to look next: there is one timer a level,
and none for a level without messages.

A level's order is that of its queue, whatever clocks say. The wait is counted by the clock of the
broker that delivers, from when the message was parked: a time that another clock read, or this one
before it was set back, is taken for what it means now, and nobody waits longer than the delay for
it, nor less.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_broker.core.acknowledgement import Acknowledgement
from imago_broker.core.timer_record import mark_of
from imago_broker.model import names
from imago_broker.service.copies import StoredCopy, read_copy
from imago_broker.service.delays.clock_shift import ClockShift
from imago_broker.service.delays.level_progress import DelayProgress
from imago_broker.service.delays.restoring import restored_entry
from imago_broker.service.messages import APPENDED, PutStatus
from imago_wire.hot import restore_records
from imago_wire.layout import UNIT
from imago_wire.sequences import TIMER_MARK

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Sequence

    from imago_broker.ports import Clock
    from imago_broker.service.messages import MessageService
    from imago_broker.service.topics import TopicService
    from imago_log.store import MessageStore
    from imago_wire.record import Entry, Placed, QueueTail

log = logging.getLogger(__name__)

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
LEVELS_MAX = 18
BATCH_MAX = 256
BATCH_BYTES_MAX = 4 << 20
RETRY_MS = 500
NOTE_MS = 1000
"""How long after a delivery it is noted how far the levels are."""
LOOK_MS_MAX = 60_000
"""The wall clock may step: no level sleeps longer than this before it looks again."""

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_levels(text: str) -> tuple[int, ...]:
    """Return the delay of each level in ms; ValueError for what is no list of delays."""
    delays = []
    for word in text.split():
        match = re.fullmatch(r"(\d{1,9})([smhd])", word)
        if match is None:
            raise ValueError(f"delay level {word!r}: a number and one of s, m, h, d")
        delays.append(int(match[1]) * _UNITS_MS[match[2]])
    if not 1 <= len(delays) <= LEVELS_MAX:
        raise ValueError(f"{len(delays)} delay levels, must be 1 to {LEVELS_MAX}")
    return tuple(delays)


class DelayService:
    """Delivers what is due. `start` it once the broker may write, `stop` it before it may not."""

    def __init__(
        self,
        messages: MessageService,
        topics: TopicService,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        levels: str = DEFAULT_LEVELS,
    ) -> None:
        self._messages = messages
        self._topics = topics
        self._loop = loop
        self._clock = clock
        self.delays_ms = parse_levels(levels)
        """How long each level waits."""
        self._levels: list[_Level] = []
        self._progress = DelayProgress(messages.store)
        self.lost = 0
        """Messages that the log lost before they were due."""
        self._shift = ClockShift()
        self._note_timer: asyncio.TimerHandle | None = None

    @property
    def level_max(self) -> int:
        """The highest level; a message that asks for more gets this one."""
        return len(self.delays_ms)

    def delay_ms(self, level: int) -> int:
        """Return how long a level waits."""
        return self.delays_ms[level - 1]

    def due_ms(self, level: int) -> int:
        """Return when a message is due that is parked now."""
        return self.now_ms() + self.delay_ms(level)

    def now_ms(self) -> int:
        """Read the clock, and note how far the log is ahead of it."""
        now_ms = self._clock.epoch_ms()
        self._shift.notice(self._messages.store.newest_ms, now_ms)
        return now_ms

    def parked_ms(self, parked: StoredCopy, delay_ms: int) -> int:
        """Return when a message was parked, by the clock of now."""
        read_ms = parked.store_ms if parked.unit_tag is None else parked.unit_tag - delay_ms
        return self._shift.corrected(read_ms, parked.store_ms)

    def start(self) -> None:
        """Read every level and wait for what is due first."""
        self._stop()
        progress = DelayProgress(self._messages.store)
        self._levels = [
            _Level(
                self,
                number,
                offset,
                progress,
                messages=self._messages,
                topics=self._topics,
                loop=self._loop,
                clock=self._clock,
            )
            for number, offset in enumerate(progress.read(self.level_max), 1)
        ]
        self._progress = progress
        for level in self._levels:
            level.grew()
        self.note_soon()

    def stop(self) -> None:
        """Deliver nothing more. What the log has is what was delivered."""
        if self._note_timer is not None:
            self._note()
        self._stop()

    def _stop(self) -> None:
        if self._note_timer is not None:
            self._note_timer.cancel()
            self._note_timer = None
        for level in self._levels:
            level.stop()
        self._levels = []

    def note_soon(self) -> None:
        """Have it noted how far the levels are."""
        if self._note_timer is None and self._levels:
            self._note_timer = self._loop.call_later(NOTE_MS / 1000, self._note_now)

    def _note_now(self) -> None:
        self._note_timer = None
        if not self._note():
            self.note_soon()

    def _note(self) -> bool:
        floor = min([self._progress.end, *(level.begun_at for level in self._levels if level.busy)])
        return self._progress.note({level.number: level.offset for level in self._levels}, floor)

    @property
    def usual_clock(self) -> bool:
        """Whether all times in the log are those of a clock like this one."""
        return self._shift.none

    def arrived(self, tails: Iterable[QueueTail]) -> None:
        """Read the levels that grew; only one that slept with nothing to do has to."""
        if not self._levels:
            return
        for tail in tails:
            if tail.topic == _SCHEDULE_TOPIC and tail.queue_id < len(self._levels):
                self._levels[tail.queue_id].grew()

    def needed_from(self) -> int:
        """Return the log offset of the oldest record that a level has to deliver."""
        return min((level.needed_from() for level in self._levels), default=0)

    def offsets(self) -> dict[int, tuple[int, int]]:
        """Return each level's progress and end: queue offsets."""
        store = self._messages.store
        return {
            level.number: (level.offset, store.queue_range(names.SCHEDULE_TOPIC, index)[1])
            for index, level in enumerate(self._levels)
        }


_SCHEDULE_TOPIC = names.SCHEDULE_TOPIC.encode()


@dataclass(slots=True)
class _Batch:
    """What a level delivers by one append."""

    next_offset: int
    """Behind all that was read."""
    entries: list[Entry] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    """Where each entry was parked."""


class _Level:
    """One level: its cursor, and at most one timer or one put under way."""

    def __init__(
        self,
        service: DelayService,
        number: int,
        offset: int,
        progress: DelayProgress,
        *,
        messages: MessageService,
        topics: TopicService,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
    ) -> None:
        self.number = number
        self.offset = offset
        self.busy = False
        """Whether messages are being appended."""
        self.begun_at = 0
        """Then the firing record that names them, or an earlier one."""
        self._service, self._progress = service, progress
        self._messages = messages
        self._topics = topics
        self._loop = loop
        self._clock = clock
        self._delay_ms = service.delay_ms(number)
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._held_until = 0
        """Below this offset what was parked by a clock that nobody knows is due at `_held_ms`."""
        self._held_ms = 0

    @property
    def _store(self) -> MessageStore:
        return self._messages.store

    def grew(self) -> None:
        """Something arrived: matters only when nothing was there to wait for."""
        self._look_in(0)

    def needed_from(self) -> int:
        """Return the log offset of the record from which a start counts; else the log's end."""
        noted = min(self.offset, self._progress.noted(self.number))
        noted = max(noted, self._store.queue_range(names.SCHEDULE_TOPIC, self.number - 1)[0])
        units = self._store.units(names.SCHEDULE_TOPIC, self.number - 1, noted, 1)
        return UNIT.unpack(units)[0] if units else self._store.log_end

    def stop(self) -> None:
        """Neither look nor put again."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Deliver what is due and set the timer for what comes next, whatever happens."""
        self._timer = None
        if self._stopped or self.busy:
            return
        try:
            self._deliver()
        except Exception:
            # One level's trouble is neither the broker's nor the end of the level.
            log.exception("delay_level_failed level=%d offset=%d", self.number, self.offset)
            self._look_in(RETRY_MS)

    def _deliver(self) -> None:
        low, high = self._store.queue_range(names.SCHEDULE_TOPIC, self.number - 1)
        if self.offset < low:
            self._pass_lost(low)
        self.offset = min(self.offset, high)
        if self.offset == high:
            return
        found = self._store.read(
            names.SCHEDULE_TOPIC,
            self.number - 1,
            self.offset,
            messages_max=BATCH_MAX,
            bytes_max=BATCH_BYTES_MAX,
        )
        if not found.count:
            # Damaged or removed: the store says where to go on.
            self.offset = max(self.offset, found.next_offset)
            self._service.note_soon()
            self._look_in(RETRY_MS)
            return
        batch, wait_ms = self._due(found.body, high)
        if batch.next_offset > self.offset:
            self._fire(batch)
        else:
            self._look_in(min(wait_ms, LOOK_MS_MAX))

    def _fire(self, batch: _Batch) -> None:
        """Append what is due behind a record that names it: the next leader knows of it."""
        queue_id, fired = self.number - 1, {offset for _, offset in batch.places}
        passed = range(self.offset, batch.next_offset)
        dropped = [(queue_id, offset) for offset in passed if offset not in fired]
        record, broken = self._progress.entry(batch.places, dropped, self._clock.epoch_ms())
        self.busy, self.begun_at = True, self._progress.end
        # Its producers were answered long ago: nobody waits for a level.
        self._messages.put(
            [record, *batch.entries],
            Acknowledgement.LEADER,
            self._delivered,
            (batch.next_offset, broken),
        )

    def _due(self, body: bytes, high: int) -> tuple[_Batch, int]:
        """Return what is due, and how long what comes next has to wait.

        `high` is the end of the level's queue.
        """
        now_ms, tails = self._service.now_ms(), self._topics.handles.open_tails
        usual, queue_id = self._service.usual_clock, self.number - 1
        batch, at = _Batch(self.offset), 0
        entries, places = batch.entries, batch.places
        while at < len(body):
            if usual:
                at = restore_records(body, at, BATCH_MAX, now_ms, tails, queue_id, entries, places)
                if places:
                    batch.next_offset = max(batch.next_offset, places[-1][1] + 1)
                if at >= len(body):
                    break
            parked = read_copy(body, at)
            wait_ms = self._service.parked_ms(parked, self._delay_ms) + self._delay_ms - now_ms
            if wait_ms > self._delay_ms:
                wait_ms = self._held_wait_ms(parked.queue_offset, high)
            if wait_ms > 0:
                return batch, wait_ms
            offset = parked.queue_offset
            mark = b"%b\x01%b\x02" % (TIMER_MARK, mark_of(queue_id, offset))
            entry = restored_entry(self._store, self._topics, parked, mark)
            if entry is not None:
                entries.append(entry)
                places.append((queue_id, offset))
            batch.next_offset, at = offset + 1, at + parked.size
        return batch, 0

    def _held_wait_ms(self, offset: int, high: int) -> int:
        """Have everything that is here now wait as long as the level does, counted from now."""
        now_ms = self._clock.monotonic_ms()
        if offset >= self._held_until:
            self._held_until, self._held_ms = high, now_ms + self._delay_ms
        return self._held_ms - now_ms

    def _delivered(
        self,
        token: tuple[int, tuple[int, int] | None],
        status: PutStatus,
        _: Sequence[Placed],
    ) -> None:
        self.busy = False
        next_offset, broken = token
        if status in APPENDED:
            self.offset = next_offset
            self._progress.stated(broken)
            self._service.note_soon()
            self._look_in(0)
        else:
            log.warning("delayed_delivery_failed level=%d status=%s", self.number, status.value)
            self._look_in(RETRY_MS)

    def _pass_lost(self, low: int) -> None:
        """Go on behind messages that the log lost, and say which."""
        self._service.lost += low - self.offset
        log.error(
            "delayed_messages_lost level=%d first=%d last=%d count=%d reason=%s",
            self.number,
            self.offset,
            low - 1,
            low - self.offset,
            "a full disk took their log files: give it room, or shorten store.retention_ms",
        )
        self.offset = low
        self._service.note_soon()

    def _look_in(self, wait_ms: int) -> None:
        if self._stopped or self.busy or self._timer is not None:
            return
        self._timer = self._loop.call_later(wait_ms / 1000, self.look)
