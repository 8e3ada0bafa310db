"""A mirror that is killed anywhere goes on so that each message is stored once, in its order.

The target is played: it takes numbered batches as a broker judges them, and may lose its end.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from imago_broker.core.puts.sequencing import UNKNOWN, Numbers, ProducerState, Verdict, judge
from imago_mirror.core.copying import Copies, Tail
from imago_mirror.core.origins import Origin, SourceQueue, producer_of
from imago_mirror.core.positions import CopyPosition, resume
from imago_testing.searching import examples
from imago_wire.remoting.messages import BatchEntry

QUEUE = SourceQueue("A", "orders", 7, "shard-0", 0)


class PlayedTarget:
    """One queue of the target: what it stores, and what it knows of the producer."""

    def __init__(self) -> None:
        self.stored: list[tuple[int | None, int, int]] = []
        """Source offset (None: a local message), epoch and number."""

    @property
    def state(self) -> ProducerState:
        of_us = [each for each in self.stored if each[0] is not None]
        if not of_us:
            return UNKNOWN
        epoch = max(each[1] for each in of_us)
        numbers = [each[2] for each in of_us if each[1] == epoch]
        return ProducerState(epoch, max(numbers) + 1)

    def put(self, offsets: tuple[int, ...], epoch: int, number: int) -> int | None:
        """Store a batch; its first offset, None where it is refused."""
        claimed = Numbers(producer_of(QUEUE), epoch, number, len(offsets))
        verdict = judge(self.state, claimed)
        if verdict is Verdict.REPEAT:
            return next(at for at, each in enumerate(self.stored) if each[1:] == (epoch, number))
        if verdict is not Verdict.APPEND:
            return None
        first = len(self.stored)
        self.stored += [(each, epoch, number + at) for at, each in enumerate(offsets)]
        return first

    def copy_at(self, at: int) -> Tail | None:
        offset, epoch, number = self.stored[at] if 0 <= at < len(self.stored) else (None, 0, 0)
        return None if offset is None else Tail(Origin(QUEUE, offset), epoch, number, at)

    def tail(self, floor: int) -> Tail | None:
        found = [
            Tail(Origin(QUEUE, each[0]), each[1], each[2], at)
            for at, each in enumerate(self.stored)
            if at >= floor and each[0] is not None
        ]
        return found[-1] if found else None


class PlayedMirrors:
    """One mirror after the other, each killed where the dice say so."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        # With gaps: what came from the target is not copied.
        self.source = [each for each in range(60) if self.rng.random() > 0.1]
        self.target = PlayedTarget()
        self.noted: CopyPosition | None = None
        self.late: list[tuple[tuple[int, ...], int, int]] = []
        """What killed ones still had on their way."""

    def begin(self, noted: CopyPosition | None, *, refused: bool = False) -> CopyPosition:
        """Do as the copier does: look at the target's end, and go on."""
        end = len(self.target.stored)
        lost = noted is not None and not noted.stands(self.target.copy_at(noted.at), 0)
        if noted is not None and lost:
            noted = noted.unfounded()
        known = noted is not None and noted.floor <= end
        tail = self.target.tail(noted.floor if noted is not None and known else 0)
        position = resume(None if lost and tail is None else noted, tail, 0, end)
        same = noted is not None and (position.copied, position.epoch, position.number) == (
            noted.copied,
            noted.epoch,
            noted.number,
        )
        return position.anew() if refused and same else position

    def send(
        self, position: CopyPosition, size: int, *, answer_lost: bool = False
    ) -> CopyPosition | None:
        """Return the position behind a batch; None: all is copied."""
        wanted = [each for each in self.source if each >= max(position.next, position.copied)]
        batch = tuple(wanted[:size])
        if not batch:
            return None
        first = self.target.put(batch, position.epoch, position.number)
        refused = first is None or first < position.floor  # or it is a repeat of something else
        if first is None or refused or answer_lost:
            return self.begin(position, refused=refused)
        copies = Copies(batch[0], batch, [BatchEntry(b"")] * len(batch), [0] * len(batch), 0, 5)
        return position.acknowledged(copies, first)

    def live(self) -> None:
        """Play one life."""
        rng, position = self.rng, self.begin(self.noted)
        for _ in range(rng.randrange(12)):
            if self.late and rng.random() < 0.3:
                self.target.put(*self.late.pop(0))
            if rng.random() < 0.15:
                self.target.stored.append((None, 0, 0))  # by a client of the target
            if rng.random() < 0.15:
                wanted = [each for each in self.source if each >= position.copied]
                batch = tuple(wanted[: rng.randrange(1, 9)])
                if batch:
                    self.late.append((batch, position.epoch, position.number))
                return  # killed while this is on its way
            behind = self.send(position, rng.randrange(1, 9), answer_lost=rng.random() < 0.1)
            if behind is None:
                return
            position = behind
            if rng.random() < 0.4:
                self.noted = position

    def lose_the_targets_end(self) -> None:
        """As where the target acknowledges early, and its master dies; its clients go on."""
        del self.target.stored[max(0, len(self.target.stored) - self.rng.randrange(6)) :]
        self.target.stored += [(None, 0, 0)] * self.rng.choice((0, 0, 1, 3, 9))

    def finish(self) -> None:
        for each in self.late:
            self.target.put(*each)
        position: CopyPosition | None = self.begin(self.noted)
        while position is not None:
            position = self.send(position, 7)


@settings(max_examples=examples(500), deadline=None)
@given(st.integers(0, 1 << 30))
def test_whatever_happens_each_message_is_there_once_and_in_order(seed: int) -> None:
    played = PlayedMirrors(seed)
    for _ in range(played.rng.randrange(1, 8)):
        played.live()
        if played.rng.random() < 0.15:
            played.lose_the_targets_end()
    played.finish()
    got = [each[0] for each in played.target.stored if each[0] is not None]
    assert got == played.source


def test_a_source_that_deleted_messages_begins_a_new_epoch_and_counts_them() -> None:
    noted = CopyPosition(10, 10, 5, 10, 10)
    position = resume(noted, None, 15, 10)
    assert (position.next, position.copied, position.lost) == (15, 15, 5)
    assert (position.epoch, position.number) == (6, 0)
    assert resume(noted, None, 10, 10).epoch == 5, "nothing is missing"


def test_what_the_tail_says_counts_and_what_came_from_the_target_is_looked_at_again() -> None:
    noted = CopyPosition(10, 10, 5, 10, 40)
    tail = Tail(Origin(QUEUE, 29), 5, 24, 60)
    position = resume(noted, tail, 0, 61)
    assert position == CopyPosition(10, 30, 5, 25, 61, last=29, at=60)
