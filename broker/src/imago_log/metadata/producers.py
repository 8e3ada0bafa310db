"""Idempotent producers: what each has sent to which queue. A view of the log.

A record that a producer numbered carries its id, epoch and number. From these, in the order of the
log, follows for each producer its newest epoch and, in each queue, which number comes next and
where the last ones are. Numbers of one producer that stand side by side in a queue make one *run*,
so a producer that has the queue to itself needs one run however much it sends.

The leader feeds the view as it appends, a follower and a start as they read the log; all come to
the same state. It is part of the metadata snapshot, and what only files about to be deleted would
tell is stated again in the log as changes of the kind `producer`. Bounded: 16 runs a queue,
100,000 queues over all producers, 7 days without a message; who was used least recently goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from imago_log.metadata.numbered_runs import NumberedRuns
from imago_wire.hot import numbered_records
from imago_wire.record_format.sequences import MARK, read_stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from imago_log.metadata.numbered_runs import Run
    from imago_wire.record_format.sequences import Sequence as Sent
    from imago_wire.records.record import RecordView

PRODUCER_KIND = "producer"
QUEUES_MAX = 100_000
STATED_QUEUES_MAX = 256
"""Queues of a producer that one change says again: what a change holds must fit into a record that
every follower takes."""
AGE_MS_MAX = 7 * 24 * 3600 * 1000
LOOK_MS = 60_000
"""How often at most all producers are gone through for the one that has been silent longest."""

JSON = Any
Queue = tuple[str, int]
"""Topic and queue id."""


@dataclass(frozen=True, slots=True)
class ProducerImage:
    """One producer's state at some moment: it stays as it is."""

    name: str
    epoch: int
    ms: int
    stated: int
    queues: list[tuple[str, int, list[Run], Run | None]]

    def to_json(self) -> list[JSON]:
        """Return its name and its state."""
        queues = [
            [topic, queue_id, [list(run) for run in runs], dropped and list(dropped)]
            for topic, queue_id, runs, dropped in self.queues
        ]
        return [self.name, [self.epoch, self.ms, self.stated, queues]]


STATE_FIELDS = 4
"""Of a producer's state in a change; one more is the number of a part."""


@dataclass(slots=True)
class _Producer:
    epoch: int = 0
    ms: int = 0
    """Store time of its newest record."""
    stated: int = -1
    """Log offset of the newest statement of this state; -1: the records alone tell it."""
    queues: dict[Queue, NumberedRuns] = field(default_factory=dict)

    def needs(self) -> int:
        """Return the log offset from which on the log must be kept to tell this state."""
        lasts = [known.last for known in self.queues.values()]
        places = [last[-1] for last in lasts if last is not None]
        return max(min(places, default=self.stated), self.stated)

    def image(self, name: str) -> ProducerImage:
        queues = [(*queue, known.runs(), known.dropped) for queue, known in self.queues.items()]
        return ProducerImage(name, self.epoch, self.ms, self.stated, queues)

    @classmethod
    def from_json(cls, value: JSON) -> _Producer:
        epoch, ms, stated, queues = value
        made = cls(int(epoch), int(ms), int(stated))
        for topic, queue_id, runs, dropped in queues:
            known = NumberedRuns.of(
                [_run(*run) for run in runs], _run(*dropped) if dropped else None
            )
            made.queues[str(topic), int(queue_id)] = known
        return made


def _run(epoch: int, first: int, size: int, offset: int, place: int) -> Run:
    """Return a run of JSON; TypeError: it is none."""
    return epoch, first, size, offset, place


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
        self.version = 0
        """Grows with every change."""
        self.queues = 0
        """Queues over all producers."""
        self._by_id: OrderedDict[str, _Producer] = OrderedDict()
        self._none_older = 0
        """No producer's newest record is older than this time: then nobody has to be let go."""
        self._looked_ms = -LOOK_MS

    def __len__(self) -> int:
        return len(self._by_id)

    # Questions

    def epoch(self, producer: str) -> int | None:
        """Return a producer's newest epoch; None: it is not known."""
        found = self._by_id.get(producer)
        return None if found is None else found.epoch

    def state_in(self, producer: str, queue: Queue) -> tuple[int, int] | None:
        """Return the newest epoch and the number that comes next in it; None: not known."""
        found = self._by_id.get(producer)
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
        found = self._by_id.get(producer)
        known = None if found is None else found.queues.get(queue)
        return None if known is None else known.offset_of(epoch, first, count)

    # From the log

    def reach(self, end: int) -> None:
        """Say that the records below a log offset are in the state, unless more are."""
        self.end = max(self.end, end)

    def take(self, data: bytes, log_offset: int) -> None:
        """Take a block of whole records that was just written to the log."""
        if MARK in data:
            known, by_id, taken = self.end, self._by_id, 0
            looked_ms: int | None = None
            for name, epoch, number, topic, queue_id, offset, place, ms in numbered_records(
                data, log_offset
            ):
                if place < known:
                    continue
                producer = by_id.get(name)
                runs = None if producer is None else producer.queues.get((topic, queue_id))
                if producer is None or runs is None or producer.epoch != epoch:
                    self._take(name, epoch, number, (topic, queue_id), offset, place, ms)
                    looked_ms = None
                    continue
                # As `_take` does it, of a producer that is known: nearly all are.
                by_id.move_to_end(name)
                producer.ms = ms
                runs.take(epoch, number, offset, place)
                taken += 1
                if ms is not looked_ms:  # those of one append have the same one
                    looked_ms = ms if self._keeps_all(ms) else None
            self.version += taken
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
        by_id = self._by_id
        producer = by_id.get(name)
        if producer is None:
            producer = by_id[name] = _Producer()
        else:
            by_id.move_to_end(name)
        if epoch > producer.epoch:
            producer.epoch = epoch
        producer.ms = ms
        runs = producer.queues.get(queue)
        if runs is None:
            runs = producer.queues[queue] = NumberedRuns()
            self.queues += 1
        runs.take(epoch, number, offset, place)
        self.version += 1
        self._keeps_all(ms)

    def _keeps_all(self, ms: int) -> bool:
        """Let go who has to; True: nobody had to be looked at, nor has for more of that time."""
        if self.queues <= QUEUES_MAX and 0 <= ms - self._none_older <= AGE_MS_MAX:
            return True
        self._shrink(ms)
        return False

    def _shrink(self, now_ms: int) -> None:
        """Let go who was used least recently. The times are those of records, never a clock's."""
        while len(self._by_id) > 1:
            oldest = next(iter(self._by_id.values()))
            if self.queues <= QUEUES_MAX and now_ms - oldest.ms <= AGE_MS_MAX:
                break
            _, gone = self._by_id.popitem(last=False)
            self.queues -= len(gone.queues)
            self.version += 1
        if not 0 <= now_ms - self._looked_ms < LOOK_MS:
            self._looked_ms = now_ms
            self._none_older = min(producer.ms for producer in self._by_id.values())

    # Changes that are no numbered records

    def drop_topic(self, name: str) -> None:
        """Forget a topic's queues: it was deleted, or made anew."""
        for key, producer in list(self._by_id.items()):
            for queue in [queue for queue in producer.queues if queue[0] == name]:
                del producer.queues[queue]
                self.queues -= 1
                self.version += 1
            if not producer.queues:
                del self._by_id[key]

    def truncate(self, end: int, queue_end: Callable[[str, int], int]) -> None:
        """Go back to the state at log offset `end`; `queue_end` tells each queue's new end.

        Who was let go by a record that is cut now stays away.
        """
        for key, producer in list(self._by_id.items()):
            for queue, known in list(producer.queues.items()):
                last = known.last
                if last is not None and last[-1] >= end:
                    known.truncate(end, queue_end(*queue))
                    self.version += 1
                if known.last is None:
                    del producer.queues[queue]
                    self.queues -= 1
            lasts = [known.last for known in producer.queues.values()]
            producer.epoch = max((last[0] for last in lasts if last is not None), default=0)
            producer.stated = producer.stated if producer.stated < end else -1
            if not producer.queues:
                del self._by_id[key]
        self.end = min(self.end, end)

    # As changes in the log, and as part of the snapshot

    def statements(self, start: int) -> list[tuple[str, str, JSON]]:
        """Return the changes that say again what the log before `start` alone tells."""
        return [
            (PRODUCER_KIND, key, part)
            for key, producer in self._by_id.items()
            if producer.needs() < start
            for part in _parts(producer.image(key).to_json()[1])
        ]

    def state(self, key: str, value: JSON, log_offset: int) -> None:
        """Take over a producer's whole state where the log has it, or a part of it."""
        whole, part = value[:STATE_FIELDS], value[STATE_FIELDS:]
        producer = _Producer.from_json(whole)
        producer.stated = log_offset
        old = self._by_id.get(key)
        if part and old is not None:  # the other queues have theirs: from other parts, or records
            producer.queues = old.queues | producer.queues
            if part[0]:
                producer.stated = old.stated  # where the first part stands
        self.queues += len(producer.queues) - (0 if old is None else len(old.queues))
        self._by_id[key] = producer
        self._none_older = min(self._none_older, producer.ms)
        self.version += 1

    def image(self) -> list[ProducerImage]:
        """Return the whole state as it is now, who was used least recently first."""
        return [producer.image(key) for key, producer in self._by_id.items()]

    def to_json(self) -> list[JSON]:
        """The same as JSON."""
        return [image.to_json() for image in self.image()]

    def load(self, values: Iterable[Sequence[JSON]], end: int) -> None:
        """Take over `to_json`'s form, valid at log offset `end`. ValueError, TypeError: damaged."""
        for key, value in values:
            self._by_id[str(key)] = producer = _Producer.from_json(value)
            self.queues += len(producer.queues)
            self._none_older = min(self._none_older, producer.ms)
        self.end = end
