"""POPs that wait: woken by an arrival, or when messages that are out come back."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from imago_broker.service.groups.pull_hold import PullHold
from imago_wire.record_format.references import LIGHT_QUEUE_ID, LITE_PREFIX

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from imago_broker.ports import Clock
    from imago_broker.service.groups.pull_hold import Held, Wake
    from imago_wire.hot import QueueTail

ANY_QUEUE = -1
WAITING_MAX = 100_000
"""RocketMQ's popPollingMapSize."""
WAITING_PER_GROUP_MAX = 1024
"""Of one group in one queue, or in any of a topic; RocketMQ's popPollingSize."""

_LITE = LITE_PREFIX.encode()
_Place = tuple[bytes, int]
K = TypeVar("K")


class Waiting(NamedTuple):
    """One request that waits."""

    held: Held
    group: str
    in_order: bool


class LiteClients(Protocol):
    """Who has to look where something happens in lite topics."""

    @property
    def count(self) -> int:
        """How many lite topics are wanted."""

    def moved(self, queues: Iterable[str]) -> list[bytes]:
        """Note that something has happened in light queues; return where their clients wait."""

    def out_until(self, queue: str, due_ms: int) -> list[bytes]:
        """Note when messages of a light queue come back; return where its clients wait."""


class PopWaiting:
    """All that wait by topic and queue; `ANY_QUEUE` stands for all queues of a topic."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop, self._clock = loop, clock
        self._hold = PullHold(loop, clock, held_max=WAITING_MAX)
        self._of_group: Counter[tuple[str, _Place]] = Counter()
        self._of_place: Counter[_Place] = Counter()
        self._in_order: Counter[_Place] = Counter()
        self._due: dict[_Place, int] = {}
        """When messages that are out come back, the next ones, where somebody waits."""
        self._heap: list[tuple[int, _Place]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._lite: LiteClients | None = None
        self.releasing = False
        """Whether whoever is woken has to be answered, whatever there is."""

    def __len__(self) -> int:
        return len(self._hold)

    def for_lite(self, wanted: LiteClients) -> None:
        """Have it told what happens in lite topics; its clients wait in places of their own."""
        self._lite = wanted

    def count(self, group: str, topic: str, queue_id: int) -> int:
        """Return how many requests of a group wait for a queue."""
        return self._of_group[group, (topic.encode(), queue_id)]

    def hold(
        self, name: bytes, queue_id: int, *, group: str, in_order: bool, hold_ms: int, wake: Wake
    ) -> Waiting | None:
        """Let a request wait; None when too many do. Whoever is woken and done calls `left`."""
        place = (name, queue_id)
        if self._of_group[group, place] >= WAITING_PER_GROUP_MAX:
            return None
        held = self._hold.hold(*place, hold_ms=hold_ms, wake=wake)
        if held is None:
            return None
        self._of_group[group, place] += 1
        self._of_place[place] += 1
        if in_order:
            self._in_order[place] += 1
        return Waiting(held, group, in_order)

    def left(self, waiting: Waiting) -> None:
        """Forget a request: it is answered, or its connection is gone."""
        self._hold.forget(waiting.held)
        place = waiting.held.key
        _less(self._of_group, (waiting.group, place), 1)
        _less(self._of_place, place, 1)
        _less(self._in_order, place, int(waiting.in_order))
        if place not in self._of_place:
            self._due.pop(place, None)

    def arrived(self, tails: Iterable[QueueTail]) -> None:
        """Wake whoever waits for one of these queues: they have grown."""
        if self._lite is not None and self._lite.count:
            names = [each.topic.decode() for each in tails if each.topic.startswith(_LITE)]
            for name in self._lite.moved(names) if names else ():
                self.look_again_at(name)
        if not self._of_place:
            return
        for tail in tails:
            for queue_id in (tail.queue_id, ANY_QUEUE):
                self._hold.look_again(tail.topic, queue_id)

    def look_again(self, queues: Iterable[tuple[str, str, int]]) -> None:
        """Wake whoever waits for these queues of topics: groups may take more of them now."""
        places: dict[_Place, None] = {}
        for _, topic, queue_id in queues:
            places |= dict.fromkeys(self._places(topic, queue_id))
        for place in places:
            if place in self._of_place:
                self._hold.look_again(*place)

    def look_again_at(self, name: bytes) -> None:
        """Wake who waits in a place of its own."""
        if (name, ANY_QUEUE) in self._of_place:
            self._hold.look_again(name, ANY_QUEUE)

    def out_until(self, topic: str, queue_id: int, due_ms: int) -> None:
        """Note when messages come back: those who wait by then look again."""
        name = topic.encode()
        self._come_back((name, queue_id), due_ms)
        self._come_back((name, ANY_QUEUE), due_ms)
        if self._lite is not None and name.startswith(_LITE):
            for other in self._lite.out_until(topic, due_ms):
                self._come_back((other, ANY_QUEUE), due_ms)

    def come_back(self, name: bytes, due_ms: int) -> None:
        """Have who waits in a place of its own look again then."""
        self._come_back((name, ANY_QUEUE), due_ms)

    def acknowledged(self, topic: str, queue_id: int) -> None:
        """Wake whoever consumes in order: all that is out of a queue may be given again."""
        for place in self._places(topic, queue_id):
            if place in self._in_order:
                self._hold.look_again(*place)

    def _places(self, topic: str, queue_id: int) -> list[_Place]:
        """Return where requests wait for a queue in which something has happened."""
        name = topic.encode()
        places = [(name, queue_id), (name, ANY_QUEUE)]
        if self._lite is not None and name.startswith(_LITE):
            places += [(other, ANY_QUEUE) for other in self._lite.moved((topic,))]
        return places

    def _come_back(self, place: _Place, due_ms: int) -> None:
        if place in self._of_place and due_ms < self._due.get(place, due_ms + 1):
            self._due[place] = due_ms
            heapq.heappush(self._heap, (due_ms, place))
            self._set_timer()

    def light_queue_gone(self, name: str) -> None:
        """Wake whoever waits for a light queue itself: it is deleted."""
        for queue_id in (LIGHT_QUEUE_ID, ANY_QUEUE):
            self._hold.look_again(name.encode(), queue_id)

    def topic_changed(self, topic: str) -> None:
        """Wake whoever waits for a topic: it was changed or deleted."""
        self._hold.topic_changed(topic)

    def group_closed(self, group: str) -> None:
        """Wake whoever waits for a group: it was deleted, or may consume no more."""
        for place in [place for name, place in self._of_group if name == group]:
            self._hold.look_again(*place)

    def release_all(self) -> None:
        """Have everybody answered: the broker stops, or another leads."""
        self.releasing = True
        try:
            self._hold.release_all()
        finally:
            self.releasing = False

    def _set_timer(self) -> None:
        heap = self._heap
        while heap and self._due.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if heap:
            delay_ms = max(1, heap[0][0] - self._clock.epoch_ms())
            self._timer = self._loop.call_later(delay_ms / 1000, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        now_ms, heap = self._clock.epoch_ms(), self._heap
        while heap and heap[0][0] <= now_ms:
            due_ms, place = heapq.heappop(heap)
            if self._due.get(place) == due_ms:
                del self._due[place]
                self._hold.look_again(*place)
        self._set_timer()


def _less(counter: Counter[K], key: K, by: int) -> None:
    counter[key] -= by
    if counter[key] <= 0:
        del counter[key]
