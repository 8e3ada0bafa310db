"""Idempotent producers, decided: against a log that is a plain list."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_broker.core.puts.sequencing import (
    UNKNOWN,
    Gathered,
    Numbers,
    ProducerState,
    Verdict,
    judge,
)
from imago_log.metadata.producers import Producers
from imago_wire.record_format.sequences import Sequence

QUEUES = [("T", 0), ("T", 1), ("U", 0)]
requests = st.tuples(
    st.sampled_from(["a" * 16, "b" * 16]),
    st.integers(0, 2),
    st.integers(0, 6),
    st.integers(1, 3),
    st.sampled_from(QUEUES),
)
turns = st.lists(st.lists(requests, max_size=6), max_size=12)


@dataclass
class PlainLog:
    """What idempotence means, said without cleverness: all numbers that were stored."""

    records: list[tuple[str, int, tuple[str, int], int]] = field(default_factory=list)
    """Producer, epoch, queue, number."""

    def verdict(self, claimed: Numbers, queue: tuple[str, int]) -> Verdict:
        own = [record for record in self.records if record[0] == claimed.producer]
        if any(epoch > claimed.epoch for _, epoch, _, _ in own):
            return Verdict.FENCED
        stored = {n for _, epoch, at, n in own if (epoch, at) == (claimed.epoch, queue)}
        wanted = set(range(claimed.first, claimed.end))
        if wanted <= stored:
            return Verdict.REPEAT
        if not wanted & stored and claimed.first == len(stored):
            return Verdict.APPEND
        return Verdict.OUT_OF_ORDER

    def append(self, claimed: Numbers, queue: tuple[str, int]) -> None:
        for number in range(claimed.first, claimed.end):
            self.records.append((claimed.producer, claimed.epoch, queue, number))


def logged(producers: Producers, producer: str, queue: tuple[str, int]) -> ProducerState:
    epoch, number = producers.epoch(producer), producers.next_number(producer, queue)
    return UNKNOWN if epoch is None or number is None else ProducerState(epoch, number)


@given(turns)
def test_verdicts_are_those_of_a_plain_log(
    turns: list[list[tuple[str, int, int, int, tuple[str, int]]]],
) -> None:
    model, view = PlainLog(), Producers()
    for turn in turns:
        gathered, taken = Gathered(), []
        for producer, epoch, first, count, queue in turn:
            claimed = Numbers(producer, epoch, first, count)
            state = gathered.state_of(queue, producer, logged(view, producer, queue))
            verdict = judge(state, claimed)
            assert verdict is model.verdict(claimed, queue)
            if verdict is Verdict.APPEND:
                model.append(claimed, queue)
                gathered.add(queue, claimed)
                taken.append((claimed, queue))
        for claimed, queue in taken:  # the turn is over: now the log has it
            for number in range(claimed.first, claimed.end):
                place = sum(record[2] == queue for record in model.records)
                view.add(Sequence(claimed.producer, claimed.epoch, number), queue, place, place, 0)
    for producer, epoch, queue in {record[:3] for record in model.records}:
        numbers = [n for p, e, q, n in model.records if (p, e, q) == (producer, epoch, queue)]
        assert numbers == list(range(len(numbers))), "each once, none skipped, in order"


@pytest.mark.parametrize(
    ("epoch", "first", "count", "verdict"),
    [
        (3, 9, 1, Verdict.FENCED),
        (4, 7, 2, Verdict.APPEND),
        (4, 5, 2, Verdict.REPEAT),
        (4, 0, 1, Verdict.REPEAT),
        (4, 6, 2, Verdict.OUT_OF_ORDER),  # half of it is there: no producer of ours sends that
        (4, 8, 1, Verdict.OUT_OF_ORDER),
        (5, 0, 1, Verdict.APPEND),
        (5, 1, 1, Verdict.OUT_OF_ORDER),
    ],
)
def test_table(epoch: int, first: int, count: int, verdict: Verdict) -> None:
    assert judge(ProducerState(4, 7), Numbers("p", epoch, first, count)) is verdict


def test_unknown_producer_begins_with_its_first_message() -> None:
    assert judge(UNKNOWN, Numbers("p", 0, 0, 1)) is Verdict.APPEND
    # It may have overtaken number 0, which would look like a repeat when it comes.
    assert judge(UNKNOWN, Numbers("p", 0, 1, 1)) is Verdict.OUT_OF_ORDER
