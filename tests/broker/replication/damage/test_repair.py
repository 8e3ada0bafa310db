"""Asking other members for what is damaged: one question at a time, no answer believed blindly."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from imago_broker.replication import repair
from imago_broker.replication.repair import ANSWER_MS, PAUSE_MS, Repairs


class Range(NamedTuple):
    start: int
    end: int


class Member:
    """A connection that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def ask_repair(self, offset: int, size: int) -> None:
        self.asked.append((offset, size))


class Bench:
    """A damaged log: zeros heal the front of a range, in records of so many bytes."""

    def __init__(self, *ranges: Range, record: int = 1) -> None:
        self.ranges = list(ranges)
        self.record = record
        self.visible_end = 1 << 40
        self.repairs = Repairs(lambda: self.ranges, self._heal, lambda: self.visible_end)

    def _heal(self, offset: int, data: bytes) -> int:
        if not data:
            return 0
        (found,) = [each for each in self.ranges if each.start == offset]
        assert offset + len(data) <= found.end
        size = len(data) - len(data) % self.record
        if any(data) or not size:
            return 0
        self.ranges.remove(found)
        if offset + size < found.end:
            self.ranges.append(Range(offset + size, found.end))
        return size


def answer(bench: Bench, member: Member, offset: int, data: bytes, now_ms: int = 0) -> None:
    bench.repairs.answered(member, offset, memoryview(data), now_ms)


def test_one_range_after_the_other_is_asked_for_and_healed() -> None:
    bench, member = Bench(Range(10, 20), Range(50, 55)), Member()
    bench.repairs.tick(0, [member])
    bench.repairs.tick(1, [member])
    assert member.asked == [(10, 10)]
    answer(bench, member, 10, bytes(10))
    bench.repairs.tick(2, [member])
    assert member.asked == [(10, 10), (50, 5)]
    answer(bench, member, 50, bytes(5))
    assert bench.ranges == []
    assert (bench.repairs.healed, bench.repairs.failed) == (2, 0)
    bench.repairs.tick(3, [member])
    assert len(member.asked) == 2


def test_nobody_is_asked_while_nobody_is_there() -> None:
    bench = Bench(Range(10, 20))
    bench.repairs.tick(0, [])
    member = Member()
    bench.repairs.tick(1, [member])
    assert member.asked == [(10, 10)]


def test_what_is_not_yet_on_every_member_is_not_asked_for() -> None:
    bench, member = Bench(Range(10, 20)), Member()
    bench.visible_end = 19
    bench.repairs.tick(0, [member])
    assert member.asked == []
    bench.visible_end = 20
    bench.repairs.tick(1, [member])
    assert member.asked == [(10, 10)]


@pytest.mark.parametrize("record", [1, 2, 3, 5, 10])
def test_long_range_comes_and_is_put_back_in_pieces(
    monkeypatch: pytest.MonkeyPatch, record: int
) -> None:
    monkeypatch.setattr(repair, "CHUNK_BYTES", 4)
    bench, member = Bench(Range(10, 40), record=record), Member()
    bench.repairs.tick(0, [member])
    left = []
    while bench.ranges:
        offset, size = member.asked[-1]
        assert size <= 4
        answer(bench, member, offset, bytes(size))
        left += [each.start for each in bench.ranges if each.start not in left]
    assert [asked for asked, _ in member.asked] == list(range(10, 40, 4)), "nothing comes twice"
    assert len(left) > 1
    assert all((start - 10) % record == 0 for start in left)
    assert bench.repairs.healed == 1


def test_a_piece_that_does_not_fit_leaves_what_was_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repair, "CHUNK_BYTES", 4)
    monkeypatch.setattr(repair, "WHOLE_BYTES_MAX", 7)
    bench, member = Bench(Range(10, 40)), Member()
    bench.repairs.tick(0, [member])
    answer(bench, member, 10, bytes(4))
    for offset in (14, 18):
        answer(bench, member, offset, b"bad!")
    assert bench.ranges == [Range(14, 40)]
    assert bench.repairs.failed == 1
    bench.repairs.tick(PAUSE_MS, [member])
    assert member.asked[-1] == (14, 4)


@pytest.mark.parametrize("data", [b"", b"x" * 10, bytes(11)])
def test_answer_that_does_not_help_lets_the_next_member_be_asked(data: bytes) -> None:
    bench, one, two = Bench(Range(10, 20)), Member(), Member()
    bench.repairs.tick(0, [one, two])
    (asked,) = [member for member in (one, two) if member.asked]
    answer(bench, asked, 10, data)
    assert bench.repairs.failed == 1
    bench.repairs.tick(PAUSE_MS - 1, [one, two])
    assert len(one.asked) + len(two.asked) == 1
    bench.repairs.tick(PAUSE_MS, [one, two])
    assert (len(one.asked), len(two.asked)) == (1, 1)


def test_answers_that_were_not_asked_for_are_dropped() -> None:
    bench, member = Bench(Range(10, 20)), Member()
    answer(bench, member, 10, bytes(10))
    bench.repairs.tick(0, [member])
    answer(bench, member, 11, bytes(10))
    assert bench.ranges == [Range(10, 20)]
    assert (bench.repairs.healed, bench.repairs.failed) == (0, 0)


def test_answer_that_never_comes_is_not_waited_for() -> None:
    bench, member = Bench(Range(10, 20)), Member()
    bench.repairs.tick(0, [member])
    bench.repairs.tick(ANSWER_MS - 1, [member])
    assert len(member.asked) == 1
    bench.repairs.tick(ANSWER_MS, [member])
    bench.repairs.tick(ANSWER_MS + PAUSE_MS, [member])
    assert len(member.asked) == 2
