"""Idempotent producers: what each has sent to which queue. A view of the log.

A record that a producer numbered carries its id, epoch and number. From these, in the order of the
log, follows for each producer its newest epoch and, in each queue, which number comes next and
where the last ones are. Numbers of one producer that stand side by side in a queue make one *run*,
so a producer that has the queue to itself needs one run however much it sends.

The leader feeds the view as it appends, a follower and a start as they read the log; all come to
the same state. It is part of the metadata snapshot, and what only files about to be deleted would
tell is stated again in the log as changes of the kind `producer`. Bounded: 16 runs a queue,
100,000 queues over all producers, 7 days without a message; who was used least recently goes first,
of the user who has most or is above the average: nobody's producers push out those of another user.

What a producer without a user has sent counts for every user's of the same id, too, so that it goes
on where it was when access control is turned on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.metadata.known_producers import KnownProducers, Producer
from imago_wire.hot import numbered_records
from imago_wire.record_format.sequences import MARK, read_stored, sent_id, tag_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from imago_log.metadata.known_producers import JSON, ProducerImage, Queue
    from imago_wire.record_format.sequences import Sequence as Sent
    from imago_wire.records.record import RecordView

PRODUCER_KIND = "producer"
STATED_QUEUES_MAX = 256
"""Queues of a producer that one change says again: what a change holds must fit into a record that
every follower takes."""

STATE_FIELDS = 4
"""Of a producer's state in a change; one more is the number of a part."""


def _parts(state: list[JSON]) -> Iterator[list[JSON]]:
    """Yield a producer's state in parts that fit into a change each, numbered if there are more."""
    *head, queues = state
    if len(queues) <= STATED_QUEUES_MAX:
        yield state
        return
    for number, start in enumerate(range(0, len(queues), STATED_QUEUES_MAX)):
        yield [*head, queues[start : start + STATED_QUEUES_MAX], number]


class Producers:
    """All producers' state at one log offset. Decides nothing: what is in the log counts."""

    def __init__(self) -> None:
        self.end = 0
        """Log offset below which the records are in the state."""
        self._known = KnownProducers()

    def __len__(self) -> int:
        return len(self._known.by_name)

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._known.version

    @property
    def queues(self) -> int:
        """Queues over all producers."""
        return self._known.queues

    # Questions

    def epoch(self, producer: str) -> int | None:
        """Return a producer's newest epoch; None: it is not known."""
        found = self._known.by_name.get(producer)
        return None if found is None else found.epoch

    def state_in(self, producer: str, queue: Queue) -> tuple[int, int] | None:
        """Return the newest epoch and the number that comes next in it; None: not known.

        A user's goes on from what one without a user has sent.
        """
        own = self._own_state_in(producer, queue)
        if not tag_of(producer):
            return own
        before = self._own_state_in(sent_id(producer), queue)
        return max((state for state in (own, before) if state is not None), default=None)

    def _own_state_in(self, producer: str, queue: Queue) -> tuple[int, int] | None:
        found = self._known.by_name.get(producer)
        if found is None:
            return None
        known = found.queues.get(queue)
        return found.epoch, 0 if known is None else known.next_in(found.epoch)

    def next_number(self, producer: str, queue: Queue) -> int | None:
        """Return the number that comes next in the newest epoch; None: the producer is unknown."""
        known = self.state_in(producer, queue)
        return None if known is None else known[1]

    def offset_of(
        self, producer: str, queue: Queue, epoch: int, first: int, count: int
    ) -> int | None:
        """Return the queue offset of the first of `count` numbers that stand side by side.

        None: they are further back than the window reaches.
        """
        for name in (producer, sent_id(producer)):
            found = self._known.by_name.get(name)
            known = None if found is None else found.queues.get(queue)
            offset = None if known is None else known.offset_of(epoch, first, count)
            if offset is not None:
                return offset
        return None

    # From the log

    def reach(self, end: int) -> None:
        """Say that the records below a log offset are in the state, unless more are."""
        self.end = max(self.end, end)

    def take(self, data: bytes, log_offset: int) -> None:
        """Take a block of whole records that was just written to the log."""
        if MARK in data:
            end, known, taken = self.end, self._known, 0
            by_name = known.by_name
            looked_ms: int | None = None
            for name, epoch, number, topic, queue_id, offset, place, ms in numbered_records(
                data, log_offset
            ):
                if place < end:
                    continue
                producer = by_name.get(name)
                runs = None if producer is None else producer.queues.get((topic, queue_id))
                if producer is None or runs is None or producer.epoch != epoch:
                    self._take(name, epoch, number, (topic, queue_id), offset, place, ms)
                    looked_ms = None
                    continue
                # As `_take` does it, of a producer that is known: nearly all are.
                producer.again(name, ms)
                runs.take(epoch, number, offset, place)
                taken += 1
                if ms is not looked_ms:  # those of one append have the same one
                    looked_ms = ms if known.keeps_all(producer) else None
            known.changed(taken)
        self.reach(log_offset + len(data))

    def record(self, data: bytes, view: RecordView) -> None:
        """Take the next record of the log, unless it is in the state already."""
        if view.physical_offset < self.end or not view.has_unit:
            return
        properties = data[view.properties_at : view.properties_at + view.properties_size]
        sent = read_stored(properties)
        if sent is not None:
            queue = (view.topic.decode("utf-8", "replace"), view.queue_id)
            self.add(sent, queue, view.queue_offset, view.physical_offset, view.store_ms)

    def add(self, sent: Sent, queue: Queue, offset: int, place: int, ms: int) -> None:
        """Take one numbered message: its queue offset, log offset and store time."""
        self._take(*sent, queue, offset, place, ms)

    def _take(
        self, name: str, epoch: int, number: int, queue: Queue, offset: int, place: int, ms: int
    ) -> None:
        known = self._known
        producer = known.used(name)
        producer.sent(epoch, ms)
        runs = producer.queues.get(queue) or known.begin(producer, queue)
        runs.take(epoch, number, offset, place)
        known.changed()
        known.keeps_all(producer)

    # Changes that are no numbered records

    def drop_topic(self, name: str) -> None:
        """Forget a topic's queues: it was deleted, or made again."""
        known = self._known
        for key, producer in list(known.items()):
            for queue in [queue for queue in producer.queues if queue[0] == name]:
                known.end(producer, queue)
                known.changed()
            if not producer.queues:
                known.forget(key)

    def truncate(self, end: int, queue_end: Callable[[str, int], int]) -> None:
        """Go back to the state at log offset `end`; `queue_end` tells each queue's new end.

        Who was let go by a record that is cut now stays away.
        """
        known = self._known
        for key, producer in list(known.items()):
            for queue, runs in list(producer.queues.items()):
                last = runs.last
                if last is not None and last[-1] >= end:
                    runs.truncate(end, queue_end(*queue))
                    known.changed()
                if runs.last is None:
                    known.end(producer, queue)
            producer.go_back(end)
            if not producer.queues:
                known.forget(key)
        self.end = min(self.end, end)

    # As changes in the log, and as part of the snapshot

    def statements(self, start: int) -> list[tuple[str, str, JSON]]:
        """Return the changes that say again what the log before `start` alone tells."""
        return [
            (PRODUCER_KIND, key, part)
            for key, producer in self._known.items()
            if producer.needs() < start
            for part in _parts(producer.image(key).to_json()[1])
        ]

    def state(self, key: str, value: JSON, log_offset: int) -> None:
        """Take over a producer's whole state where the log has it, or a part of it."""
        whole, part = value[:STATE_FIELDS], value[STATE_FIELDS:]
        producer = Producer.from_json(whole, log_offset)
        old = self._known.by_name.get(key)
        if part and old is not None:  # the other queues have theirs: from other parts, or records
            producer.goes_on(old, first=not part[0])
        self._known.put(key, producer)
        self._known.changed()

    def image(self) -> list[ProducerImage]:
        """Return the whole state as it is now, of each user who was used least recently first."""
        return [producer.image(key) for key, producer in self._known.items()]

    def to_json(self) -> list[JSON]:
        """The same as JSON."""
        return [image.to_json() for image in self.image()]

    def load(self, values: Iterable[Sequence[JSON]], end: int) -> None:
        """Take over `to_json`'s form, valid at log offset `end`. ValueError, TypeError: damaged."""
        for key, value in values:
            self._known.put(str(key), Producer.from_json(value))
        self.end = end
