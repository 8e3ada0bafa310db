"""One delay level: what is due of its queue is delivered in order, each message once."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from imago_broker.core.timers.timer_record import mark_of
from imago_broker.model import names
from imago_broker.service.delays.restoring import restored_entry, run_bytes_max
from imago_broker.service.puts.copies import read_copy
from imago_broker.service.puts.put_status import APPENDED, PutStatus
from imago_wire.hot import due_units, restore_run
from imago_wire.record_format.layout import UNIT, WAITING_PLACE
from imago_wire.record_format.sequences import TIMER_MARK

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from imago_broker.ports import Clock
    from imago_broker.service.delays.levels.level_progress import DelayProgress
    from imago_broker.service.puts.copies import StoredCopy
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.topics.topics import TopicService
    from imago_log.store import MessageStore
    from imago_wire.hot import EntryRun
    from imago_wire.records.record import Entry, Placed

log = logging.getLogger(__name__)
BATCH_MAX = 256
BATCH_BYTES_MAX = 4 << 20
RETRY_MS = 500
LOOK_MS_MAX = 60_000
"""The wall clock may step: no level sleeps longer than this before it looks again."""


class LevelHost(Protocol):
    """What a level has in common with the others."""

    lost: int
    """Messages that the log lost before they were due."""
    dropped: int
    """Messages that had no place any more when they were due."""

    @property
    def usual_clock(self) -> bool:
        """Whether all times in the log are those of a clock like this one."""
        ...

    def now_ms(self) -> int:
        """Read the clock."""
        ...

    def delay_ms(self, level: int) -> int:
        """Return how long a level waits."""
        ...

    def parked_ms(self, parked: StoredCopy, delay_ms: int) -> int:
        """Return when a message was parked, by the clock of now."""
        ...

    def note_soon(self) -> None:
        """Have it noted how far the levels are."""
        ...


@dataclass(slots=True)
class _Batch:
    """What a level delivers by one append."""

    next_offset: int
    """Behind all that was read."""
    entries: list[Entry | EntryRun] = field(default_factory=list)
    places: bytearray = field(default_factory=bytearray)
    """Where each entry was parked, as the firing record names it."""


@dataclass(kw_only=True, eq=False)
class Level:
    """One level: its cursor, and at most one timer or one put under way."""

    service: LevelHost
    number: int
    offset: int
    done: set[int]
    """Delivered already, behind what damage has left in doubt."""
    progress: DelayProgress
    messages: MessageService
    topics: TopicService
    loop: asyncio.AbstractEventLoop
    clock: Clock
    busy: bool = field(default=False, init=False)
    """Whether messages are being appended."""
    begun_at: int = field(default=0, init=False)
    """Then the firing record that names them, or an earlier one."""
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _stopped: bool = field(default=False, init=False)
    _held_until: int = field(default=0, init=False)
    """Below this offset what was parked by a clock that nobody knows is due at `_held_ms`."""
    _held_ms: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        store = self.messages.store
        self._delay_ms = self.service.delay_ms(self.number)
        self._bytes_max = min(BATCH_BYTES_MAX, run_bytes_max(store))
        self._units = LevelUnits(store, self.number - 1)

    @property
    def _store(self) -> MessageStore:
        return self.messages.store

    @property
    def ahead(self) -> bool:
        """Whether it has delivered some already that it has not come to."""
        return bool(self.done)

    def has_delivered(self, offset: int) -> bool:
        """Whether a message waits no more."""
        return offset < self.offset or offset in self.done

    def grew(self) -> None:
        """Something arrived: matters only when nothing was there to wait for."""
        self._look_in(0)

    def needed_from(self) -> int:
        """Return the log offset of the record from which a start counts; else the log's end."""
        noted = min(self.offset, self.progress.noted(self.number))
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
        count, wait_ms = self._units_due()
        if not count:
            self._look_in(wait_ms)
            return
        found = self._store.read(
            names.SCHEDULE_TOPIC,
            self.number - 1,
            self.offset,
            messages_max=count,
            bytes_max=self._bytes_max,
        )
        if not found.count:
            # Damaged or removed: the store says where to go on.
            self.offset = max(self.offset, found.next_offset)
            self.service.note_soon()
            self._look_in(RETRY_MS)
            return
        batch, wait_ms = self._due(found.body, found.count, high)
        if batch.next_offset > self.offset:
            self._fire(batch)
        else:
            self._look_in(min(wait_ms, LOOK_MS_MAX))

    def _units_due(self) -> tuple[int, int]:
        """Return how many records to read; none: how long to wait until then.

        That is what their units say; of one that says what cannot be the record is read.
        """
        now_ms = self.service.now_ms()
        if not self.service.usual_clock:
            return BATCH_MAX, 0
        count = self._units.due(self.offset, now_ms)
        wait_ms = 0 if count else self._units.wait_ms(self.offset, now_ms)
        if 0 < wait_ms <= self._delay_ms:
            return 0, min(wait_ms, LOOK_MS_MAX)
        return max(1, min(count, BATCH_MAX)), 0

    def _fire(self, batch: _Batch) -> None:
        """Append what is due behind a record that names it: the next leader knows of it."""
        dropped = self._dropped(batch)
        record, broken = self.progress.entry(batch.places, dropped, self.clock.epoch_ms())
        self.busy, self.begun_at = True, self.progress.end
        token = batch.next_offset, broken
        self.messages.put_runs([record, *batch.entries], self._delivered, token)

    def _dropped(self, batch: _Batch) -> bytes:
        """Return the places of what was passed over, as the firing record names them."""
        queue_id, passed = self.number - 1, range(self.offset, batch.next_offset)
        if len(batch.places) == len(passed) * WAITING_PLACE.size:
            return b""
        fired = {offset for _, offset in WAITING_PLACE.iter_unpack(batch.places)}
        left = [offset for offset in passed if offset not in fired]
        return b"".join([WAITING_PLACE.pack(queue_id, offset) for offset in left])

    def _due(self, body: bytes, count: int, high: int) -> tuple[_Batch, int]:
        """Return what is due of so many records, and how long what comes next has to wait.

        `high` is the end of the level's queue.
        """
        now_ms, tails = self.service.now_ms(), self.topics.handles.open_tails
        usual = self.service.usual_clock and not self.done and self.messages.takes_runs
        batch, at = _Batch(self.offset), 0
        while at < len(body):
            run = restore_run(body, at, count, now_ms, tails, self.number - 1) if usual else None
            if run is not None:
                batch.entries.append(run)
                batch.places += run.places
                batch.next_offset, at = int.from_bytes(run.places[-8:], "big") + 1, run.end
                continue
            parked = read_copy(body, at)
            if parked.queue_offset not in self.done:
                wait_ms = self._wait_ms(parked, now_ms, high)
                if wait_ms > 0:
                    return batch, wait_ms
                self._add(batch, parked)
            batch.next_offset, at = parked.queue_offset + 1, at + parked.size
        return batch, 0

    def _wait_ms(self, parked: StoredCopy, now_ms: int, high: int) -> int:
        wait_ms = self.service.parked_ms(parked, self._delay_ms) + self._delay_ms - now_ms
        if wait_ms > self._delay_ms:
            return self._held_wait_ms(parked.queue_offset, high)
        return wait_ms

    def _add(self, batch: _Batch, parked: StoredCopy) -> None:
        """Have a message delivered, if there is a place for it."""
        queue_id, offset = self.number - 1, parked.queue_offset
        mark = b"%b\x01%b\x02" % (TIMER_MARK, mark_of(queue_id, offset))
        entry = restored_entry(self._store, self.topics, parked, mark)
        if entry is not None:
            batch.entries.append(entry)
            batch.places += WAITING_PLACE.pack(queue_id, offset)
        else:
            self.service.dropped += 1

    def _held_wait_ms(self, offset: int, high: int) -> int:
        """Have everything that is here now wait as long as the level does, counted from now."""
        now_ms = self.clock.monotonic_ms()
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
            if self.done:
                self.done = {offset for offset in self.done if offset >= next_offset}
            self.progress.stated(broken)
            self.service.note_soon()
            self._look_in(self._next_wait_ms())
        else:
            log.warning("delayed_delivery_failed level=%d status=%s", self.number, status.value)
            self._look_in(RETRY_MS)

    def _next_wait_ms(self) -> int:
        """Return how long what comes next has to wait, where its unit has been read."""
        if not self.service.usual_clock:
            return 0
        wait_ms = self._units.wait_ms(self.offset, self.service.now_ms())
        return min(wait_ms, LOOK_MS_MAX) if wait_ms <= self._delay_ms else 0

    def _pass_lost(self, low: int) -> None:
        """Go on behind messages that the log lost, and say which."""
        self.service.lost += low - self.offset
        log.error(
            "delayed_messages_lost level=%d first=%d last=%d count=%d reason=%s",
            self.number,
            self.offset,
            low - 1,
            low - self.offset,
            "a full disk took their log files: give it room, or shorten store.retention_ms",
        )
        self.offset = low
        self.service.note_soon()

    def _look_in(self, wait_ms: int) -> None:
        if self._stopped or self.busy or self._timer is not None:
            return
        self._timer = self.loop.call_later(wait_ms / 1000, self.look)


# The units of a delay level's queue, read ahead: what is due, and how long the rest waits.


UNITS_MAX: Final = 256


class LevelUnits:
    """Some units of one level. They say when a message is due; its record has the last word."""

    def __init__(self, store: MessageStore, queue_id: int) -> None:
        self._store, self._queue_id = store, queue_id
        self._units = b""
        self._end = 0
        """Queue offset behind them."""

    def due(self, offset: int, now_ms: int) -> int:
        """Return how many messages are due from an offset on, up to as many as are read at once."""
        count = self._known_due(offset, now_ms)
        if count == self._left(offset):  # there may be more
            units = self._store.units(names.SCHEDULE_TOPIC, self._queue_id, offset, UNITS_MAX)
            self._units, self._end = units, offset + len(units) // UNIT.size
            count = self._known_due(offset, now_ms)
        return count

    def wait_ms(self, offset: int, now_ms: int) -> int:
        """Return how long the message at an offset has to wait; 0: it is due, or nobody knows."""
        left = self._left(offset)
        if not left:
            return 0
        due_ms: int = UNIT.unpack_from(self._units, len(self._units) - left * UNIT.size)[2]
        return max(0, due_ms - now_ms)

    def _known_due(self, offset: int, now_ms: int) -> int:
        left = self._left(offset)
        return due_units(self._units[-left * UNIT.size :], now_ms) if left else 0

    def _left(self, offset: int) -> int:
        left = self._end - offset
        return left if 0 < left * UNIT.size <= len(self._units) else 0
