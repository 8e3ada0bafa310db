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
from typing import TYPE_CHECKING

from imago_broker.model import names
from imago_broker.service.delays.levels.level import Level
from imago_broker.service.delays.levels.level_progress import DelayProgress
from imago_broker.service.delays.waiting_queues import OpenQueue
from imago_broker.service.log_walk import READ_AGAIN_MS, NotReadableNowError
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from imago_broker.ports import Clock
    from imago_broker.service.puts.copies import StoredCopy
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.topics.topics import TopicService
    from imago_wire.records.record import QueueTail

log = logging.getLogger(__name__)
_SCHEDULE_TOPIC = names.SCHEDULE_TOPIC.encode()
DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
LEVELS_MAX = 18
NOTE_MS = 1000
"""How long after a delivery it is noted how far the levels are."""
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBER = re.compile(rb"[+-]?[0-9]{1,32}\Z")
_INTS = range(-(1 << 31), 1 << 31)


def asked_level(text: bytes) -> int | None:
    """Return the level that a property DELAY asks for, 0 for none; None: it is no number in Java.

    A sign and zeros before the number are right; what has more digits than this is not.
    """
    if not text:
        return 0
    level = int(text) if _NUMBER.match(text) else _INTS.stop
    return max(0, level) if level in _INTS else None


def parse_levels(text: str) -> tuple[int, ...]:
    """Return the delay of each level in ms; ValueError for what is no list of delays."""
    delays = []
    for word in text.split():
        match = re.fullmatch(r"(\d{1,9})([smhd])", word)
        if match is None:
            raise WrongError(f"delay level {word!r}: a number and one of s, m, h, d")
        delays.append(int(match[1]) * _UNITS_MS[match[2]])
    if not 1 <= len(delays) <= LEVELS_MAX:
        raise WrongError(f"{len(delays)} delay levels, must be 1 to {LEVELS_MAX}")
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
        self._levels: list[Level] = []
        self._progress = DelayProgress(messages.store)
        self.lost = 0
        """Messages that the log lost before they were due."""
        self.dropped = 0
        """Messages that had no place any more when they were due."""
        self._shift = ClockShift()
        self._note_timer: asyncio.TimerHandle | None = None
        self._start_timer: asyncio.TimerHandle | None = None
        """While it cannot be read how far the levels are."""

    @property
    def level_max(self) -> int:
        """The highest level; a message that asks for more gets this one."""
        return len(self.delays_ms)

    def delay_ms(self, level: int) -> int:
        """Return how long a level waits; one that there is no more waits as the last does."""
        return self.delays_ms[min(level, self.level_max) - 1]

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
        try:
            # Also those that there are no more, for what waits there since before.
            offsets = progress.read(LEVELS_MAX)
        except NotReadableNowError as error:
            log.warning("delay_levels_wait unreadable=%s", error)
            self._start_timer = self._loop.call_later(READ_AGAIN_MS / 1000, self.start)
            return
        self._levels = [
            Level(
                service=self,
                number=number,
                offset=offset,
                done=done,
                progress=progress,
                messages=self._messages,
                topics=self._topics,
                loop=self._loop,
                clock=self._clock,
            )
            for number, (offset, done) in enumerate(offsets, 1)
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
        if self._start_timer is not None:
            self._start_timer.cancel()
            self._start_timer = None
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
        begun = [level.begun_at for level in self._levels if level.busy]
        if any(level.ahead for level in self._levels):
            begun.append(self._progress.floor)  # what was read there is needed still
        floor = min([self._progress.end, *begun])
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

    def open_queues(self) -> list[OpenQueue]:
        """Return the levels' queues, from what each has to deliver next."""
        ends = self.offsets()
        return [
            OpenQueue(level.number - 1, *ends[level.number], level.has_delivered)
            for level in self._levels
        ]

    def offsets(self) -> dict[int, tuple[int, int]]:
        """Return each level's progress and end: queue offsets."""
        store = self._messages.store
        return {
            level.number: (level.offset, store.queue_range(names.SCHEDULE_TOPIC, index)[1])
            for index, level in enumerate(self._levels)
        }


# Times that were read from a clock that was ahead of the one of now.
#
# A leader's clock may run ahead, or be set back; and another leader has another clock. The log's
# own times never go back: while they are ahead of the clock they stand still. By how much they are
# ahead when that is first noticed, tells what a time from before means by the clock of now.


TURN_MS_MAX = 1000
"""What is appended stands in the log within this of the time that was read for it; a log time
further ahead than that has stood still."""


class ClockShift:
    """By how much times between two points were ahead. Pure: all times are arguments."""

    def __init__(self) -> None:
        self._from_ms = self._until_ms = self._by_ms = 0

    @property
    def none(self) -> bool:
        """Whether no time was ever ahead."""
        return self._by_ms == 0

    def notice(self, newest_ms: int, now_ms: int) -> None:
        """Compare the log's newest time with the clock; the first look after a step counts."""
        ahead_ms = newest_ms - now_ms
        if ahead_ms > 0 and (newest_ms > self._until_ms or ahead_ms > self._by_ms):
            self._from_ms, self._until_ms, self._by_ms = now_ms, newest_ms, ahead_ms

    def corrected(self, read_ms: int, store_ms: int) -> int:
        """Return what a time that was read for a record means now; `store_ms` is the record's."""
        was_ahead = self._from_ms < read_ms <= self._until_ms
        return read_ms - self._by_ms if was_ahead and store_ms - read_ms <= TURN_MS_MAX else read_ms
