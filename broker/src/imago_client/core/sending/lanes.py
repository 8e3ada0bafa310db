"""What an idempotent producer knows of one queue: which number is next, who is on the way.

A message gets its number when it enters the lane and keeps it over all tries, also to another
broker of the shard. Several may be on the way at once. One that the broker refuses as out of order
waits until it is the first of its lane, so that what was before it has been stored or given up, and
is then sent again under the same number.

When a message is given up its number is a gap. The next one finds out: if it is accepted, the lost
message was stored after all. If it is refused as out of order, nothing from the gap on was stored,
and the lane goes on in a new epoch from 0, which shuts out whatever is still under way; so it does
where brokers have forgotten it. A lane whose id the caller has chosen may not do that; it takes the
number anew where nobody can have used it, and else has to end.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from imago_client.core.gate import Gate
from imago_wire.record_format.sequences import Sequence, producer_text

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from imago_client.config import ProducerConfig
    from imago_client.message_queue import MessageQueue

IDLE_S_MAX: Final = 24 * 3600.0
"""Brokers forget a producer after 7 days without a message: a new id is taken long before."""


class Slot:
    """One request on its way: `count` messages from `sequence` on."""

    __slots__ = ("count", "entered", "first", "sequence", "uncertain")

    def __init__(self, count: int) -> None:
        self.count = count
        self.sequence = Sequence("", 0, 0)
        self.entered = Gate()
        """There is room in the lane, and the request has its numbers."""
        self.first = Gate()
        """Everything before it has come to an end."""
        self.uncertain = False
        """One of its tries had no answer: it may be stored, or be stored yet."""


class ProducerLane:
    """The requests of one producer to one queue, in their order."""

    def __init__(
        self, producer: Callable[[], str], epoch: int, *, renewable: bool, in_flight_max: int
    ) -> None:
        self._new_producer = producer
        self._in_flight_max = in_flight_max
        self.renewable = renewable
        """Whether the lane may begin a new epoch or take a new id by itself."""
        self._producer, self._epoch, self._next = producer(), epoch, 0
        self._under_way: deque[Slot] = deque()
        self._waiting: deque[Slot] = deque()
        self._gap: int | None = None
        """The lowest number whose message was given up, while it is not known to be stored."""
        self._gap_is_free = True
        """Whether no message of a number from the gap on can be stored any more."""
        self._used_s = 0.0

    def enter(self, count: int, now_s: float) -> Slot:
        """Return a new slot; it may be used once `entered` is open."""
        if self.renewable and not self._under_way and now_s - self._used_s > IDLE_S_MAX:
            self._producer, self._epoch, self._next, self._gap = self._new_producer(), 0, 0, None
        self._used_s = now_s
        slot = Slot(count)
        self._waiting.append(slot)
        self._admit()
        return slot

    def stored(self, slot: Slot) -> None:
        """The broker has the messages, and so all before them."""
        self._gap, self._gap_is_free = None, True
        self._remove(slot)

    def given_up(self, slot: Slot) -> None:
        """Nobody sends these messages again. A slot that came to its end already is left alone."""
        if slot in self._waiting:
            self._waiting.remove(slot)
        elif slot in self._under_way:
            if self._gap is None:
                self._gap, self._gap_is_free = slot.sequence.number, True
            self._gap_is_free = self._gap_is_free and not slot.uncertain
            self._remove(slot)

    def renumber(self, slot: Slot) -> bool:
        """Close the gap before the first slot, which was refused; False where that may not be.

        All that is under way gets new numbers, in its order.
        """
        if slot is not self._under_way[0]:
            return False
        if self.renewable:
            self._epoch, self._next = self._epoch + 1, 0
        elif self._gap is not None and self._is_unused():
            self._next = self._gap
        else:
            return False
        self._gap, self._gap_is_free = None, True
        for one in self._under_way:
            self._number(one)
        return True

    def _is_unused(self) -> bool:
        """Whether nothing from the gap on can be stored, now or later."""
        return self._gap_is_free and not any(slot.uncertain for slot in self._under_way)

    def _admit(self) -> None:
        while self._waiting and len(self._under_way) < self._in_flight_max:
            slot = self._waiting.popleft()
            self._number(slot)
            self._under_way.append(slot)
            slot.entered.open()
        if self._under_way:
            self._under_way[0].first.open()

    def _number(self, slot: Slot) -> None:
        slot.sequence = Sequence(self._producer, self._epoch, self._next)
        self._next += slot.count

    def _remove(self, slot: Slot) -> None:
        self._under_way.remove(slot)
        self._admit()


class ProducerLanes:
    """The lanes of one producer by queue."""

    def __init__(self, config: ProducerConfig, rng: random.Random) -> None:
        self._config, self._rng = config, rng
        self._by_queue: dict[MessageQueue, ProducerLane] = {}

    def of(self, queue: MessageQueue) -> ProducerLane:
        """Return the lane of a queue, made at its first use."""
        lane = self._by_queue.get(queue)
        if lane is None:
            lane = self._by_queue[queue] = ProducerLane(
                self._producer,
                self._config.producer_epoch,
                renewable=self._config.producer_id is None,
                in_flight_max=self._config.in_flight_per_queue,
            )
        return lane

    def _producer(self) -> str:
        chosen = self._config.producer_id
        return producer_text(self._rng.getrandbits(64) if chosen is None else chosen)
