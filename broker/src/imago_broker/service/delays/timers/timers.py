"""Messages that are delivered at a time of their own: each once, whatever breaks.

A timer is parked as a record of the timer topic, in the queue of its bucket: the ten minutes in
which it is due. The queue's unit holds when. So the consume queues of that topic are the index of
all timers by due time: on disk, made from the log, copied and cut with it. In memory are only the
buckets that come next, eight bytes a timer.

What is due is fired by one append: a firing record, and behind it the messages; see
`core.timer_record` for how the log then says what has fired. Firing records stand in a queue of
their own; that all timers of a bucket are done is noted as metadata. A recall is a record of its
timer's queue, whose unit names the timer: no due time is negative.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from imago_broker.core.timers.timer_record import firing_body
from imago_broker.core.timers.timer_wheel import Timer, TimerWheel
from imago_broker.model.names import TIMER_TOPIC
from imago_broker.service.delays.firing_log import FLOOR_KEY, TIMER_KIND, FiringLog
from imago_broker.service.delays.timers.timer_bucket import BUCKET_MS, BUCKETS, TimerBucket
from imago_broker.service.delays.timers.timer_delivery import TimerTaker
from imago_broker.service.delays.timers.timer_figures import TimerFigures
from imago_broker.service.delays.timers.timer_queues import UNITS_MAX, TimerQueues
from imago_broker.service.delays.waiting_queues import OpenQueue
from imago_broker.service.log_walk import READ_AGAIN_MS, NotReadableNowError
from imago_broker.service.puts.put_status import APPENDED, PutStatus
from imago_wire.record_format.layout import UNIT

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Iterator, Sequence

    from imago_broker.core.timers.timer_wheel import TimerRun
    from imago_broker.ports import Clock
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.topics.topics import TopicService
    from imago_log.store import MessageStore
    from imago_wire.records.record import Placed, QueueTail

log = logging.getLogger(__name__)

_TOPIC: Final = TIMER_TOPIC.encode()
AHEAD_MS: Final = 60_000
"""A bucket is read this long before its first timer may be due."""
BATCH_MAX: Final = 256
RETRY_MS: Final = 500
LOOK_MS_MAX: Final = 1000
"""The wall clock may step: nobody sleeps longer than this before looking again."""


class TimerService:
    """Fires what is due. `start` it once the broker may write, `stop` it before it may not."""

    def __init__(
        self,
        messages: MessageService,
        topics: TopicService,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
    ) -> None:
        self._messages = messages
        self._loop, self._clock = loop, clock
        self._life = 0
        """Number of the start; odd while it runs."""
        self._wheel = TimerWheel()
        self._loaded: dict[int, TimerBucket] = {}
        self._waiting: dict[int, int] = {}
        """Queues that are not in memory, by when their bucket begins."""
        self._first_places: dict[int, int] = {}
        """Log offsets of the first timers of queues that are not in memory."""
        self._next_begin_ms: int | None = None
        self._done: dict[int, list[int]] = {}
        """What firing records told at the start of queues that are not in memory yet."""
        self._queues, self._firings = TimerQueues(messages.store), FiringLog(messages.store)
        self._flying = False
        """Whether timers are being appended."""
        self._failed = False
        self._alone = 0
        """How many timers are to be fired one by one: one of them may be too large."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0  # kept here: what uvloop returns for this moment knows no time
        self.figures = TimerFigures()
        self._taker = TimerTaker(messages, topics, self.figures)

    @property
    def pending(self) -> int:
        """How many timers wait, about: recalls of buckets to come are counted with them."""
        pending = sum(bucket.left for bucket in self._loaded.values())
        for queue_id in self._waiting:
            base, end = self._queues.range(queue_id)
            pending += end - base
        return pending

    def open_queues(self) -> Iterator[tuple[int, OpenQueue]]:
        """Yield the queues that have timers, each with when its bucket begins."""
        for queue_id, begins_ms in self._waiting.items():
            done = frozenset(self._done.get(queue_id, ()))
            yield begins_ms, OpenQueue(queue_id, *self._queues.range(queue_id), done.__contains__)
        for queue_id, bucket in self._loaded.items():
            first, end = self._queues.range(queue_id)
            yield bucket.begins_ms, OpenQueue(queue_id, first, end, bucket.is_done)

    def start(self) -> None:
        """Read what the log says of timers and wait for what is due first."""
        self.stop()
        try:
            done = self._firings.read(self._queues.floor)
        except NotReadableNowError as error:
            log.warning("timers_wait unreadable=%s", error)
            self._timer = self._loop.call_later(READ_AGAIN_MS / 1000, self.start)
            return
        self._life += 1
        for queue_id, offset in done:
            self._done.setdefault(queue_id, []).append(offset)
        used = self._queues.used()
        self._note_lost(used)
        for queue_id in used:
            self._notice(queue_id)
        self._look_in(0)

    def stop(self) -> None:
        """Fire nothing more. What the log has is what has fired."""
        if self._life & 1:
            self._life += 1
        self._clear()

    def arrived(self, tails: Iterable[QueueTail]) -> None:
        """Read the queues that grew."""
        if not self._life & 1:
            return
        grown = False
        for tail in tails:
            if tail.topic != _TOPIC or tail.queue_id >= BUCKETS:
                continue
            if tail.queue_id not in self._waiting:
                grown = True
                if tail.queue_id not in self._loaded:
                    self._notice(tail.queue_id)
        if grown:
            self._look_in(0)

    def is_withdrawn(self, queue_id: int, offset: int) -> bool:
        """Whether a timer is held back already."""
        bucket = self._loaded.get(queue_id)
        return bucket is not None and bucket.is_done(offset) and not bucket.has_fired(offset)

    def withdraw(self, queue_id: int, offset: int) -> bool:
        """Hold a timer back that is being recalled; false: it has fired."""
        self._open_near(self._clock.epoch_ms())
        bucket = self._loaded.get(queue_id)
        if offset < self._queues.base(queue_id):
            return False
        if bucket is not None:
            if bucket.has_fired(offset):
                return False
            bucket.recall(offset)
        return True

    def give_back(self, queue_id: int, offset: int, due_ms: int) -> None:
        """Let a timer fire after all: its recall was not stored."""
        bucket = self._loaded.get(queue_id)
        if bucket is not None and bucket.is_done(offset):
            bucket.revive(offset)
            if offset >= bucket.end:
                return  # it has not been read yet
            self._wheel.add(Timer(due_ms, queue_id, offset))
            self._look_in(0)

    # What the log keeps

    def needed_from(self) -> int:
        """Return the log offset of the oldest record that a timer needs."""
        if not self._life & 1:
            return 0  # nobody knows yet
        places: list[int | None] = []
        for queue_id in self._waiting:
            place = self._first_places[queue_id]
            known = place >= self._store.log_start and not self._store.damaged
            places.append(place if known else self._queues.needed_place(queue_id))
        for queue_id, bucket in self._loaded.items():
            places.append(self._queues.needed_place(queue_id, bucket.may_fire))
        return min((each for each in places if each is not None), default=self._store.log_end)

    def log_shortened(self) -> None:
        """See which timers went with the log's oldest files; those in memory say it when due."""
        if self._life & 1:
            self._note_lost(tuple(self._waiting))

    def _note_lost(self, queues: Iterable[int]) -> None:
        self.figures.lost += self._queues.note_lost(queues, self._done, self._waiting)

    # What the log says

    @property
    def _store(self) -> MessageStore:
        return self._messages.store

    def _clear(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wheel = TimerWheel()
        self._loaded, self._waiting, self._done, self._first_places = {}, {}, {}, {}
        self._next_begin_ms = None
        self._flying = self._failed = False
        self._taker.refused.clear()
        self._alone = 0

    def _notice(self, queue_id: int) -> None:
        """See whether a queue has timers, and when its bucket begins."""
        base, end = self._queues.range(queue_id)
        if base == end:
            return
        unit = self._store.units(TIMER_TOPIC, queue_id, base, 1)
        place, _, due_ms = UNIT.unpack(unit) if unit else (-1, 0, 0)
        self._first_places[queue_id] = place
        begin_ms = max(0, due_ms) // BUCKET_MS * BUCKET_MS
        self._waiting[queue_id] = begin_ms
        if self._next_begin_ms is None or begin_ms < self._next_begin_ms:
            self._next_begin_ms = begin_ms

    # What is near

    def _open_near(self, now_ms: int) -> None:
        if self._next_begin_ms is None or self._next_begin_ms - AHEAD_MS > now_ms:
            return
        near = [q for q, begin_ms in self._waiting.items() if begin_ms - AHEAD_MS <= now_ms]
        firings = self._firings.end
        for queue_id in near:
            begin_ms = self._waiting.pop(queue_id)
            done = self._done.pop(queue_id, None)
            bucket = TimerBucket(
                queue_id,
                self._queues.range(queue_id)[0],
                since=firings if done is None else self._firings.floor,
                begins_ms=begin_ms,
                closes_ms=max(begin_ms, now_ms) + BUCKET_MS,
            )
            bucket.expect_done(done or ())
            self._loaded[queue_id] = bucket
        self._next_begin_ms = min(self._waiting.values(), default=None)

    def _read_units(self) -> bool:
        """Read some units of each bucket that has more; return whether there are more."""
        more = False
        for bucket in self._loaded.values():
            units = self._store.units(TIMER_TOPIC, bucket.queue_id, bucket.end, UNITS_MAX)
            self._take_units(bucket, units)
            bucket.whole = bucket.whole or len(units) < UNITS_MAX * UNIT.size
            more = more or len(units) == UNITS_MAX * UNIT.size
        return more

    def _take_units(self, bucket: TimerBucket, units: bytes) -> None:
        """Have the timers wait that units tell of, and take back those that are recalled."""
        at, end = 0, len(units) // UNIT.size
        while at < end:
            if bucket.usual:
                count = self._wheel.spread(units, at, bucket.queue_id, bucket.end)
                bucket.read_run(count)
                at += count
                if at == end:
                    break
            _, size, tag = UNIT.unpack_from(units, at * UNIT.size)
            offset = bucket.end
            if bucket.read(waits=tag >= 0 and size > 0):
                self._wheel.add(Timer(tag, bucket.queue_id, offset))
            elif tag < 0:
                bucket.recall(-1 - tag)
            at += 1

    def _close_past(self, now_ms: int) -> None:
        """Note as done what is, of the buckets whose time is over."""
        past = [bucket for bucket in self._loaded.values() if bucket.closes_ms <= now_ms]
        if not past:
            return
        changes: list[tuple[str, str, int]] = []
        gone: list[TimerBucket] = []
        for bucket in past:
            bucket.closes_ms = now_ms + BUCKET_MS
            first = bucket.first_open()
            if first > self._queues.base(bucket.queue_id):
                changes.append((TIMER_KIND, str(bucket.queue_id), first))
            bucket.trim(first)
            if first == self._store.queue_range(TIMER_TOPIC, bucket.queue_id)[1]:
                gone.append(bucket)
        kept = [bucket.since for bucket in self._loaded.values() if bucket not in gone]
        if self._done:  # of queues that are not in memory yet
            kept.append(self._firings.floor)
        changes.append((TIMER_KIND, FLOOR_KEY, min(kept, default=self._firings.end)))
        if self._queues.note(changes):
            for bucket in gone:
                del self._loaded[bucket.queue_id]

    # Firing

    def _look_in(self, wait_ms: float) -> None:
        if not self._life & 1:
            return
        due = self._loop.time() + wait_ms / 1000
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_later(wait_ms / 1000, self._look)

    def _look(self) -> None:
        """Do what is due, and set the timer for what comes next, whatever happens."""
        self._timer = None
        if self._failed and not self._flying:
            self.start()  # what is in memory may be wrong by now, the log is not
            return
        try:
            now_ms = self._clock.epoch_ms()
            self._open_near(now_ms)
            more = self._read_units()
            begun = [each for each in self._loaded.values() if each.begins_ms <= now_ms]
            if not self._flying and all(bucket.whole for bucket in begun):
                self._fire(now_ms)
            if not self._flying:
                self._close_past(now_ms)
        except Exception:
            log.exception("timers_failed")
            self._failed = True
            self._look_in(RETRY_MS)
            return
        if more:
            self._look_in(0)
        elif self._loaded or self._waiting:
            self._rest()

    def _rest(self) -> None:
        """Look again when the next timer is due."""
        next_ms = None if self._flying else self._wheel.next_ms
        wait_ms = LOOK_MS_MAX if next_ms is None else next_ms - self._clock.epoch_ms()
        self._look_in(min(max(wait_ms, 0), LOOK_MS_MAX))

    def _fire(self, now_ms: int) -> None:
        count_max = 1 if self._alone > 0 else BATCH_MAX
        batch = self._taker.take(self._wheel, self._loaded, now_ms, count_max)
        if not batch.taken:
            return
        self._alone = max(0, self._alone - batch.count)
        broken = self._firings.broken
        record = self._firings.entry(firing_body(batch.fired, batch.dropped, broken), now_ms)
        token = self._life, batch.taken, broken
        self._messages.put_runs([record, *batch.entries], self._appended, token)
        self._flying = True

    def _appended(
        self,
        token: tuple[int, list[TimerRun], tuple[int, int] | None],
        status: PutStatus,
        _: Sequence[Placed],
    ) -> None:
        life, taken, broken = token
        if life != self._life:
            return
        self._flying = False
        if status not in APPENDED:
            self._not_appended(taken, status)
            return
        self._firings.stated(broken)
        now_ms = self._clock.epoch_ms()
        for run in taken:
            self._loaded[run.queue_id].finish(run.first, run.length)
            self.figures.count_fired(run.length, *run.late_ms(now_ms))
        self._rest()

    def _not_appended(self, taken: list[TimerRun], status: PutStatus) -> None:
        timers = [timer for run in taken for timer in run.timers()]
        for timer in timers:
            self._loaded[timer.queue_id].fail(timer.offset)
            self._wheel.add(timer)
        if status is PutStatus.TOO_LARGE:
            if len(timers) == 1:
                self._taker.refused.add((timers[0].queue_id, timers[0].offset))
            self._alone = len(timers)
            self._look_in(0)
            return
        log.warning("timers_not_fired status=%s", status.value)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._look_in(RETRY_MS)
