"""The producers that are remembered, each in the share of its user, and who of them is let go.

Whoever was used least recently goes first, of the user who has most or is above the average: so
nobody's producers push out those of another user.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from imago_wire.record_format.sequences import tag_of

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUES_MAX = 100_000
AGE_MS_MAX = 7 * 24 * 3600 * 1000
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


@dataclass(slots=True, eq=False)
class UserShare:
    """The producers of one user, least recently used first."""

    tag: str
    queues: int = 0
    order: OrderedDict[str, Producer] = field(default_factory=OrderedDict)

    @property
    def oldest_ms(self) -> int:
        """When the one was used that was used least recently."""
        return next(iter(self.order.values())).ms


@dataclass(slots=True, eq=False)
class Producer:
    """What is known of one producer."""

    share: UserShare
    epoch: int = 0
    ms: int = 0
    """Store time of its newest record."""
    stated: int = -1
    """Log offset of the newest statement of this state; -1: the records alone tell it."""
    queues: dict[Queue, NumberedRuns] = field(default_factory=dict)

    def again(self, name: str, ms: int) -> None:
        """Note that it has sent something in the epoch that it has."""
        self.share.order.move_to_end(name)
        self.ms = ms

    def sent(self, epoch: int, ms: int) -> None:
        """Note that it has sent something, maybe in a higher epoch."""
        self.epoch = max(self.epoch, epoch)
        self.ms = ms

    def go_back(self, end: int) -> None:
        """Forget what records and a statement from a log offset on told, its runs aside."""
        lasts = [runs.last for runs in self.queues.values()]
        self.epoch = max((last[0] for last in lasts if last is not None), default=0)
        self.stated = self.stated if self.stated < end else -1

    def goes_on(self, old: Producer, *, first: bool) -> None:
        """Keep an old state's other queues; the first part of a statement is where it stands."""
        self.queues = old.queues | self.queues
        if not first:
            self.stated = old.stated

    def needs(self) -> int:
        """Return the log offset from which on the log must be kept to tell this state."""
        lasts = [known.last for known in self.queues.values()]
        places = [last[-1] for last in lasts if last is not None]
        return max(min(places, default=self.stated), self.stated)

    def image(self, name: str) -> ProducerImage:
        """Return the state as it is now."""
        queues = [(*queue, known.runs(), known.dropped) for queue, known in self.queues.items()]
        return ProducerImage(name, self.epoch, self.ms, self.stated, queues)

    @classmethod
    def from_json(cls, value: JSON, stated: int | None = None) -> Producer:
        """Return a state of JSON, in no share yet, stated at a log offset of its own if given.

        ValueError, TypeError: damaged.
        """
        epoch, ms, then, queues = value
        made = cls(UserShare(""), int(epoch), int(ms), int(then) if stated is None else stated)
        for topic, queue_id, runs, dropped in queues:
            known = NumberedRuns.of(
                [_run(*run) for run in runs], _run(*dropped) if dropped else None
            )
            made.queues[str(topic), int(queue_id)] = known
        return made


class KnownProducers:
    """All of them, by name: the id, and the tag of the user behind it."""

    def __init__(self) -> None:
        self.by_name: dict[str, Producer] = {}
        self.queues = 0
        """Queues over all producers."""
        self.version = 0
        """Grows with every change."""
        self._shares: dict[str, UserShare] = {}
        """By tag; none is empty."""
        self._none_older = 0
        """Nobody who could be let go was silent since before this time."""

    def items(self) -> Iterator[tuple[str, Producer]]:
        """Yield all, user by user, of each the least recently used first."""
        for _, share in sorted(self._shares.items()):
            yield from share.order.items()

    def changed(self, times: int = 1) -> None:
        """Note changes."""
        self.version += times

    def put(self, name: str, producer: Producer) -> None:
        """Have this state of a producer from now on, in the place of another one."""
        old = self.by_name.get(name)
        share = self._share_of(name)
        self.by_name[name] = share.order[name] = producer
        producer.share = share
        self._count(share, len(producer.queues) - (0 if old is None else len(old.queues)))
        self._none_older = min(self._none_older, producer.ms)

    def used(self, name: str) -> Producer:
        """Return a producer that has sent something, made now if need be."""
        producer = self.by_name.get(name)
        if producer is None:
            share = self._share_of(name)
            producer = self.by_name[name] = share.order[name] = Producer(share)
        else:
            producer.share.order.move_to_end(name)
        return producer

    def begin(self, producer: Producer, queue: Queue) -> NumberedRuns:
        """Have a producer send to one more queue."""
        runs = producer.queues[queue] = NumberedRuns()
        self._count(producer.share, 1)
        return runs

    def end(self, producer: Producer, queue: Queue) -> None:
        """Forget what a producer has sent to a queue."""
        del producer.queues[queue]
        self._count(producer.share, -1)

    def forget(self, name: str) -> None:
        """Forget a producer."""
        producer = self.by_name.pop(name)
        share = producer.share
        self._count(share, -len(producer.queues))
        del share.order[name]
        if not share.order:
            del self._shares[share.tag]

    def keeps_all(self, newest: Producer) -> bool:
        """Let go who has to, but never the newest; True: nobody had to be looked at, nor has for
        more of that time."""
        if self.queues <= QUEUES_MAX and 0 <= newest.ms - self._none_older <= AGE_MS_MAX:
            return True
        self._let_go_silent(newest.ms)
        while self.queues > QUEUES_MAX:
            self._make_room(newest)
        return False

    def _share_of(self, name: str) -> UserShare:
        tag = tag_of(name)
        share = self._shares.get(tag)
        if share is None:
            share = self._shares[tag] = UserShare(tag)
        return share

    def _count(self, share: UserShare, by: int) -> None:
        share.queues += by
        self.queues += by

    def _let_go_silent(self, now_ms: int) -> None:
        """Let go who is silent for too long. The times are those of records, never a clock's."""
        if 0 <= now_ms - self._none_older <= AGE_MS_MAX:
            return
        for share in list(self._shares.values()):
            while share.order and now_ms - share.oldest_ms > AGE_MS_MAX:
                self._let_go(next(iter(share.order)))
        self._none_older = min(now_ms, *(share.oldest_ms for share in self._shares.values()))

    def _make_room(self, newest: Producer) -> None:
        """Let go of one, where all together have too much."""
        share = newest.share
        if share.queues * len(self._shares) < self.queues:
            share = max(self._shares.values(), key=lambda each: (each.queues, each.tag))
        name, producer = next(iter(share.order.items()))
        if producer is not newest:
            self._let_go(name)
            return
        self.end(producer, next(iter(producer.queues)))  # it has more than all may have
        self.version += 1

    def _let_go(self, name: str) -> None:
        self.forget(name)
        self.version += 1


def _run(epoch: int, first: int, size: int, offset: int, place: int) -> Run:
    """Return a run of JSON; TypeError: it is none."""
    return epoch, first, size, offset, place


# What one idempotent producer has sent to one queue: where its last numbers are.
# Numbers that stand side by side in the queue make one run. Where many producers share a queue each
# message begins a run of its own, so that beginning one costs as little as going on with one does.


RUNS_MAX = 16
Run: TypeAlias = tuple[int, int, int, int, int]
"""Epoch, first number, how many numbers, queue offset of the first, log offset of the last record.
"""
_NONE: Run = (0, 0, 0, 0, 0)


@dataclass(slots=True)
class NumberedRuns:
    """The window of runs; the fields that are numbers are those of the newest, which grows."""

    older: list[Run] = field(default_factory=list)
    dropped: Run | None = None
    """The newest run that is no longer in the window."""
    epoch: int = 0
    first: int = 0
    size: int = 0
    """0: there is no run."""
    offset: int = 0
    place: int = 0

    @classmethod
    def of(cls, runs: list[Run], dropped: Run | None) -> NumberedRuns:
        """Return these runs, the oldest first."""
        made = cls(dropped=dropped)
        made.keep(runs)
        return made

    def keep(self, runs: list[Run]) -> None:
        """Have these runs from now on, and no others."""
        *self.older, newest = runs or [_NONE]
        self.epoch, self.first, self.size, self.offset, self.place = newest

    @property
    def last(self) -> Run | None:
        """The newest run, in the window or not."""
        if not self.size:
            return self.dropped
        return self.epoch, self.first, self.size, self.offset, self.place

    def runs(self) -> list[Run]:
        """Return those in the window as they are now, the oldest first."""
        if not self.size:
            return []
        return [*self.older, (self.epoch, self.first, self.size, self.offset, self.place)]

    def take(self, epoch: int, number: int, offset: int, place: int) -> None:
        """Have the newest run grow by a message, or begin one with it; the oldest one goes where
        there are too many."""
        size = self.size
        if self.offset + size == offset and self.first + size == number and self.epoch == epoch:
            self.size = size + 1
            self.place = place
            return
        if size:
            older = self.older
            older.append((self.epoch, self.first, size, self.offset, self.place))
            if len(older) >= RUNS_MAX:
                self.dropped = older.pop(0)
        self.epoch, self.first, self.size = epoch, number, 1
        self.offset, self.place = offset, place

    def next_in(self, epoch: int) -> int:
        """Return the number that comes next in an epoch."""
        last = self.last
        return 0 if last is None or last[0] != epoch else last[1] + last[2]

    def offset_of(self, epoch: int, number: int, count: int) -> int | None:
        """Return the queue offset of the first of so many numbers that stand side by side."""
        for known, first, size, offset, _ in reversed(self.runs()):
            if known == epoch and first <= number and number + count <= first + size:
                return offset + number - first
        return None

    def truncate(self, end: int, queue_end: int) -> None:
        """Forget the records from log offset `end` and queue offset `queue_end` on."""
        kept: list[Run] = []
        for epoch, first, size, offset, place in self.runs():
            if place < end:
                kept.append((epoch, first, size, offset, place))
            elif queue_end > offset:
                kept.append((epoch, first, queue_end - offset, offset, end - 1))
        self.keep(kept)
        if self.dropped is not None and self.dropped[-1] >= end:
            # How much of it is left is not known: a producer that goes on hears of a gap.
            self.dropped = None
