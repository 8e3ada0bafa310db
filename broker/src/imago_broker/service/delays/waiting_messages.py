"""Which messages wait for their time, in the order in which they are due: what people ask.

The levels and the buckets of timers are read when somebody asks, a few thousand units at a time,
so that other work comes in between.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_broker.model.names import RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from imago_broker.service.puts.copies import TooManyCopiesError, named_copies, read_copy
from imago_wire.record_format.layout import UNIT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from imago_broker.service.delays.levels.levels import DelayService
    from imago_broker.service.delays.timers.timers import TimerService
    from imago_broker.service.delays.waiting_queues import OpenQueue
    from imago_broker.service.puts.copies import StoredCopy
    from imago_log.store import MessageStore

UNITS_AT_ONCE: Final = 4096
LOOKED_MAX: Final = 10_000
"""Waiting messages that are looked at to find those of one topic."""
LOOKED_BYTES_MAX: Final = 64 << 20
"""Of the records that are read for one answer."""
COPIES_MAX: Final = 32
"""Of messages that one id names: a producer that repeats itself parks it again."""


class WaitingPlace(NamedTuple):
    """Where a message waits, and until when."""

    due_ms: int
    topic: str
    queue_id: int
    offset: int

    @property
    def level(self) -> int | None:
        """The delay level; None: it waits for a time of its own."""
        return self.queue_id + 1 if self.topic == SCHEDULE_TOPIC else None


class WaitingAnswer(NamedTuple):
    """Messages that wait, those that are due first before the others."""

    found: list[tuple[WaitingPlace, StoredCopy]]
    cut: bool
    """Whether there may be more that are due later."""


class WaitingRetries(NamedTuple):
    """How many messages wait to be tried again, by group."""

    groups: Counter[str]
    cut: bool
    """Whether there may be more: not all that waits was looked at, or levels cannot be read now."""


class WaitingMessages:
    """What waits on the leader of a shard."""

    def __init__(self, store: MessageStore, levels: DelayService, timers: TimerService) -> None:
        self._store, self._levels, self._timers = store, levels, timers
        self._topics: dict[WaitingPlace, str] = {}
        """Where that goes which waited when retries were counted last: no record is read twice."""

    @property
    def count(self) -> int:
        """How many wait, about: recalls of timers are counted with them."""
        waiting = sum(end - first for first, end in self._levels.offsets().values())
        return waiting + self._timers.pending

    async def find(self, topic: str, from_ms: int, count: int) -> WaitingAnswer:
        """Return the first that are due from a time on; of one topic, or of all without one."""
        looked_max = LOOKED_MAX if topic else count
        places = sorted(await self._places(from_ms, looked_max + 1))
        cut, left = len(places) > looked_max, LOOKED_BYTES_MAX
        found: list[tuple[WaitingPlace, StoredCopy]] = []
        for place in places[:looked_max]:
            if len(found) == count or left <= 0:
                return WaitingAnswer(found, cut=True)
            copy = self._read(place)
            await asyncio.sleep(0)
            if copy is None:
                continue  # damaged, or gone with its file
            left -= copy.size
            if topic in ("", copy.text(b"REAL_TOPIC")):
                found.append((place, copy))
        return WaitingAnswer(found, cut)

    async def retries(self) -> WaitingRetries:
        """Count what groups gave back and what waits to be tried again; those due first first.

        A level has what all groups gave back and what producers delayed: each record says whose.
        """
        places: list[WaitingPlace] = []
        queues = self._levels.open_queues()
        for queue in queues:
            places += await self._first(SCHEDULE_TOPIC, queue, set(), 0, LOOKED_MAX + 1)
        groups: Counter[str] = Counter()
        topics: dict[WaitingPlace, str] = {}
        ordered, left = sorted(places), LOOKED_BYTES_MAX
        cut = len(ordered) > LOOKED_MAX or not queues
        for place in ordered[:LOOKED_MAX]:
            topic = self._topics.get(place)
            if topic is None:
                if left <= 0:
                    cut = True
                    break
                copy = self._read(place)
                await asyncio.sleep(0)
                if copy is None:
                    continue  # damaged, or gone with its file
                left -= copy.size
                topic = copy.text(b"REAL_TOPIC")
            topics[place] = topic
            if topic.startswith(RETRY_PREFIX):
                groups[topic.removeprefix(RETRY_PREFIX)] += 1
        self._topics = topics
        return WaitingRetries(groups, cut)

    async def named(self, unique: str) -> WaitingAnswer:
        """Return those whose producer gave them this id."""
        found: list[tuple[WaitingPlace, StoredCopy]] = []
        cut = False
        for topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
            try:
                async for each in self._named(topic, unique):
                    found.append(each)
                    if len(found) > COPIES_MAX:
                        cut = True
                        break
            except TooManyCopiesError:
                cut = True
        shown = sorted(found[:COPIES_MAX], key=lambda each: each[0])
        return WaitingAnswer(shown, cut=cut)

    async def _named(
        self, topic: str, unique: str
    ) -> AsyncIterator[tuple[WaitingPlace, StoredCopy]]:
        """Yield those of them that wait in one of the two topics."""
        for copy in named_copies(self._store, topic, unique, 1 << 62):
            await asyncio.sleep(0)
            if copy.text(b"UNIQ_KEY").upper() != unique.upper():
                continue
            place = await self._place_of(topic, copy)
            if place is not None:
                yield place, copy

    async def _place_of(self, topic: str, copy: StoredCopy) -> WaitingPlace | None:
        """Return where a message waits; None: it waits no more."""
        queues = self._levels.open_queues() if topic == SCHEDULE_TOPIC else self._buckets()
        offset = copy.queue_offset
        for queue in queues:
            at = range(max(queue.first, offset), min(queue.end, offset + 1))
            narrow = queue._replace(first=at.start, end=at.stop)
            recalled = await self._recalled(queue) if topic == TIMER_TOPIC and at else set()
            async for place in self._open(topic, narrow, recalled):
                if self._read(place) == copy:
                    return place
        return None

    async def _places(self, from_ms: int, count: int) -> list[WaitingPlace]:
        """Return the first places of each level and of the timers that are due from then on."""
        found: list[WaitingPlace] = []
        for queue in self._levels.open_queues():
            found += await self._first(SCHEDULE_TOPIC, queue, set(), from_ms, count)
        timers: list[WaitingPlace] = []
        for queue in self._buckets():
            if len(timers) >= count:
                break  # all that follow are due later
            recalled = await self._recalled(queue)
            timers += await self._first(TIMER_TOPIC, queue, recalled, from_ms, count)
        return found + timers

    async def _first(
        self, topic: str, queue: OpenQueue, recalled: set[int], from_ms: int, count: int
    ) -> list[WaitingPlace]:
        """Return the first places of one queue that are due from then on."""
        best: list[WaitingPlace] = []
        async for place in self._open(topic, queue, recalled):
            if place.due_ms < from_ms:
                continue
            best.append(place)
            if len(best) >= count + UNITS_AT_ONCE:
                best = sorted(best)[:count]
        return sorted(best)[:count]

    def _buckets(self) -> Iterable[OpenQueue]:
        return [queue for _, queue in sorted(self._timers.open_queues(), key=lambda one: one[0])]

    async def _recalled(self, queue: OpenQueue) -> set[int]:
        """Return which of a queue's timers were taken back."""
        recalled: set[int] = set()
        async for _, tag, _ in self._units(TIMER_TOPIC, queue):
            if tag < 0:
                recalled.add(-1 - tag)
        return recalled

    async def _open(
        self, topic: str, queue: OpenQueue, recalled: set[int]
    ) -> AsyncIterator[WaitingPlace]:
        """Yield what of a queue is not done."""
        async for offset, tag, size in self._units(topic, queue):
            if tag >= 0 and size > 0 and offset not in recalled and not queue.is_done(offset):
                yield WaitingPlace(tag, topic, queue.queue_id, offset)

    async def _units(self, topic: str, queue: OpenQueue) -> AsyncIterator[tuple[int, int, int]]:
        """Yield offset, tag and size of each unit."""
        at = queue.first
        while at < queue.end:
            count = min(UNITS_AT_ONCE, queue.end - at)
            units = self._store.units(topic, queue.queue_id, at, count)
            for number, (_, size, tag) in enumerate(UNIT.iter_unpack(units)):
                yield at + number, tag, size
            if not units:
                return
            at += len(units) // UNIT.size
            await asyncio.sleep(0)

    def _read(self, place: WaitingPlace) -> StoredCopy | None:
        read = self._store.read(
            place.topic, place.queue_id, place.offset, messages_max=1, bytes_max=1
        )
        copy = read_copy(read.body) if read.count else None
        return copy if copy is not None and copy.queue_offset == place.offset else None
