"""What each topic took and each group was given since the start, and lately.

Nothing is counted for each message: of puts the ends of the queues that have grown are looked at
every few seconds, of reads every answer is counted. Numbers begin with this process, and a topic's
when its queue is first used.
"""

from __future__ import annotations

from collections import Counter, deque
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_broker.core.figures.usage import CounterHistory, CounterMark, Growth

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.ports import Clock
    from imago_broker.service.figures.traffic import Traffic
    from imago_broker.service.puts.messages import MessageService
    from imago_wire.record_format.entries import QueueTail

LOOK_SECONDS: Final = 10
PIECE = 64
"""Queues, and pairs of topic and group, that one turn of the loop looks at."""
PIECE_PAUSE_SECONDS: Final = 0.002
ASKED_APART_MS: Final = 100
"""Tools ask for one topic after the other."""
COUNTERS_MAX: Final = 20_000
"""Topics, and pairs of topic and group, that are counted apart; what else comes is not counted."""


class Usage(Enum):
    """What is counted, by the names that RocketMQ's tools ask for."""

    TOPIC_PUT_NUMS = "messages that a topic took"
    TOPIC_PUT_SIZE = "their bytes, as MetaQ's positions count them"
    GROUP_GET_NUMS = "messages of a topic that a group was given"
    GROUP_GET_SIZE = "bytes of their records"
    GROUP_GET_LATENCY = "nanoseconds that reads of a topic's messages for a group took"
    SNDBCK_PUT_NUMS = "messages of a topic that a group gave back"
    BROKER_PUT_NUMS = "messages that the broker took"
    BROKER_GET_NUMS = "messages that the broker gave"


class _End(NamedTuple):
    offset: int
    position: int


Key = tuple[Usage, str]


class UsageFigures:
    """Looks every few seconds at what has grown, piece by piece: others are served in between."""

    def __init__(
        self,
        messages: MessageService,
        traffic: Traffic,
        clock: Clock,
        *,
        loop: AbstractEventLoop,
        cluster: str,
        record: Callable[[Mapping[str, int]], Iterator[None]] = lambda _grown: iter(()),
    ) -> None:
        """`record`: what ends each look, told by how many messages topics have grown."""
        self._record = record
        self._growth: Counter[str] = Counter()
        self._messages, self._traffic, self._clock = messages, traffic, clock
        self._loop, self._cluster = loop, cluster
        self._grown: set[QueueTail] = set()
        self._rest: Iterator[None] | None = None
        """Of a look that is not over: each step is a piece."""
        self._timer: TimerHandle | None = None
        self._ends: dict[tuple[bytes, int], _End] = {}
        self._empty_below: dict[bytes, int] = {}
        """Of topics with many queues: those below this number, and not in `_ends`, were empty."""
        self._totals: dict[Key, CounterHistory] = {}
        self._looked_ms = 0
        messages.on_arrival(self._grown.update)

    def used(self, tail: QueueTail) -> None:
        """Note a queue that is about to be written to for the first time."""
        self._ends.setdefault((tail.topic, tail.queue_id), _end_of(tail))

    def tick(self) -> None:
        """Begin to look when it is time to: call it every second."""
        if self._rest is None and self._is_due(LOOK_SECONDS * 1000):
            self._rest = self._look()
            self._go_on()

    def stop(self) -> None:
        """Look no more."""
        self._rest = None
        if self._timer is not None:
            self._timer.cancel()

    def _go_on(self) -> None:
        """Take the next piece, and see to the others."""
        if self._rest is None:
            return
        if next(self._rest, self) is self:
            self._rest = None
        else:
            self._timer = self._loop.call_later(PIECE_PAUSE_SECONDS, self._go_on)

    def _is_due(self, apart_ms: int) -> bool:
        return not 0 <= self._clock.epoch_ms() - self._looked_ms < apart_ms

    def _look_now(self) -> None:
        """End the look that has begun, and look again unless that was done just before."""
        rest = self._rest or iter(())
        self.stop()
        deque(rest, maxlen=0)
        if self._is_due(ASKED_APART_MS):
            deque(self._look(), maxlen=0)

    def _look(self) -> Iterator[None]:
        """Note what everything is now; each step is a piece."""
        self._looked_ms = self._clock.epoch_ms()
        left = len(self._grown)  # what grows meanwhile is for the next look
        while self._grown and left > 0:
            now_ms = self._clock.epoch_ms()
            for _ in range(min(PIECE, left, len(self._grown))):
                self._note_queue(self._grown.pop(), now_ms)
            left -= PIECE
            yield
        traffic = self._traffic
        for given in _pieces(list(traffic.given)):
            self._note_given(given)
            yield
        for sent_back in _pieces(list(traffic.sent_back)):
            self._note_sent_back(sent_back)
            yield
        now_ms, put, got = self._clock.epoch_ms(), self._messages.appended, traffic.messages
        self._note((Usage.BROKER_PUT_NUMS, self._cluster), now_ms, put, put)
        self._note((Usage.BROKER_GET_NUMS, self._cluster), now_ms, got, traffic.found)
        growth, self._growth = self._growth, Counter()
        yield from self._record(growth)

    def lately(self, usage: Usage, key: str) -> tuple[Growth, Growth, Growth] | None:
        """Return the growth in the last minute, hour and day; None: nothing was ever counted."""
        self._look_now()
        history = self._totals.get((usage, key))
        return None if history is None else history.growth(self._clock.epoch_ms())

    def totals(self) -> Iterator[tuple[Usage, str, int]]:
        """Return all counters of topics and groups, as they were at the last look."""
        for (usage, key), history in self._totals.items():
            yield usage, key, history.last.total

    def topic_changed(self, topic: str, config: TopicConfig | None) -> None:
        """Note the queues of a topic before anything is put to them; None: the topic is gone."""
        if config is None:
            self._forget(topic)
            return
        store, name = self._messages.store, topic.encode()
        few = config.queues <= PIECE
        if not few:  # those that are not there are known to be empty, without one entry each
            self._empty_below[name] = config.queues
        for queue_id in range(config.queues) if few else store.queues(topic):
            if (name, queue_id) not in self._ends:
                end = store.queue_range(topic, queue_id)[1]
                self._ends[name, queue_id] = _End(end, store.position_range(topic, queue_id)[1])

    def _forget(self, topic: str) -> None:
        name = topic.encode()
        for queue in [queue for queue in self._ends if queue[0] == name]:
            del self._ends[queue]
        self._empty_below.pop(name, None)
        self._grown.difference_update([tail for tail in self._grown if tail.topic == name])
        for key in [key for key in self._totals if key[1].partition("@")[0] == topic]:
            del self._totals[key]
        self._growth.pop(topic, None)
        self._traffic.forget(topic)

    def _note_queue(self, tail: QueueTail, now_ms: int) -> None:
        queue, end = (tail.topic, tail.queue_id), _end_of(tail)
        before = self._ends.get(queue)
        self._ends[queue] = end
        if before is None and tail.queue_id < self._empty_below.get(tail.topic, 0):
            before = _End(0, 0)
        if before is None:
            return  # what it had before is not known
        topic, messages = tail.topic.decode(), end.offset - before.offset
        if messages < 0:
            return  # a cut, or another topic of the same name
        self._growth[topic] += messages
        self._add((Usage.TOPIC_PUT_NUMS, topic), now_ms, messages, messages)
        if tail.dual:
            size = max(0, end.position - before.position)
            self._add((Usage.TOPIC_PUT_SIZE, topic), now_ms, size, messages)

    def _note_given(self, readers: Iterable[tuple[str, str]]) -> None:
        now_ms = self._clock.epoch_ms()
        for reader in readers:
            given = self._traffic.given.get(reader)
            if given is not None:
                key = f"{reader[1]}@{reader[0]}"
                self._note((Usage.GROUP_GET_NUMS, key), now_ms, given.messages, given.answers)
                self._note((Usage.GROUP_GET_SIZE, key), now_ms, given.bytes, given.answers)
                self._note((Usage.GROUP_GET_LATENCY, key), now_ms, given.read_ns, given.answers)

    def _note_sent_back(self, readers: Iterable[tuple[str, str]]) -> None:
        now_ms = self._clock.epoch_ms()
        for reader in readers:
            count = self._traffic.sent_back.get(reader)
            if count is not None:
                key = f"{reader[1]}@{reader[0]}"
                self._note((Usage.SNDBCK_PUT_NUMS, key), now_ms, count, count)

    def _add(self, key: Key, now_ms: int, amount: int, times: int) -> None:
        history = self._totals.get(key)
        last = CounterMark(now_ms, 0, 0) if history is None else history.last
        self._note(key, now_ms, last.total + amount, last.times + times)

    def _note(self, key: Key, now_ms: int, total: int, times: int) -> None:
        history = self._totals.get(key)
        if history is None:
            if len(self._totals) >= COUNTERS_MAX or not total:
                return
            # It was nothing at the look before.
            start = CounterMark(now_ms - LOOK_SECONDS * 1000, 0, 0)
            history = self._totals[key] = CounterHistory(start)
        if total != history.last.total:
            history.note(now_ms, total, times)


def _pieces(readers: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    for at in range(0, len(readers), PIECE):
        yield readers[at : at + PIECE]


def _end_of(tail: QueueTail) -> _End:
    return _End(tail.next_offset, tail.next_position)
