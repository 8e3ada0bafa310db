"""Puts that wait for their level."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.core.puts.pending import AcknowledgementQueue

FSYNC = Acknowledgement.LEADER_FSYNC
REPLICATED = Acknowledgement.REPLICATED


def waiting(*ends: int, level: Acknowledgement = FSYNC) -> AcknowledgementQueue[int]:
    queue: AcknowledgementQueue[int] = AcknowledgementQueue()
    for end in ends:
        queue.add(level, end_offset=end, deadline_ms=1000 + end, size=10, item=end)
    return queue


def test_progress_releases_in_order_what_ends_at_or_below_it() -> None:
    queue = waiting(10, 20, 20, 30)
    assert queue.advance(FSYNC, 9) == []
    assert queue.advance(FSYNC, 20) == [10, 20, 20]
    assert queue.advance(FSYNC, 30) == [30]
    assert len(queue) == 0


def test_progress_of_one_level_releases_nothing_of_another() -> None:
    queue = waiting(10)
    queue.add(REPLICATED, end_offset=10, deadline_ms=5000, size=1, item=99)
    assert queue.advance(REPLICATED, 10) == [99]
    assert len(queue) == 1


def test_expired_items_leave_once_and_in_order() -> None:
    queue = waiting(10, 20, 30)
    assert queue.next_deadline_ms == 1010
    assert queue.expire(1020) == [(FSYNC, 10), (FSYNC, 20)]
    assert queue.advance(FSYNC, 100) == [30]
    assert queue.next_deadline_ms is None


def test_a_shortened_time_out_does_not_expire_a_later_item_first() -> None:
    queue = waiting()
    queue.add(FSYNC, end_offset=10, deadline_ms=9000, size=1, item=1)
    queue.add(FSYNC, end_offset=20, deadline_ms=100, size=1, item=2)
    assert queue.expire(8999) == []
    assert queue.expire(9000) == [(FSYNC, 1), (FSYNC, 2)]


def test_bytes_waiting_follow_what_waits() -> None:
    queue = waiting(10, 20)
    assert queue.bytes_waiting == 20
    queue.advance(FSYNC, 10)
    assert queue.bytes_waiting == 10
    assert queue.drain() == [(FSYNC, 20)]
    assert queue.bytes_waiting == 0


def test_an_item_out_of_the_log_s_order_is_a_programming_error() -> None:
    queue = waiting(20)
    with pytest.raises(AssertionError, match="order of the log"):
        queue.add(FSYNC, end_offset=10, deadline_ms=0, size=0, item=0)


@given(
    ends=st.lists(st.integers(0, 50), max_size=20),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=20),
)
def test_every_item_leaves_exactly_once(ends: list[int], steps: list[tuple[bool, int]]) -> None:
    queue: AcknowledgementQueue[int] = AcknowledgementQueue()
    for number, end in enumerate(sorted(ends)):
        queue.add(FSYNC, end_offset=end, deadline_ms=end, size=1, item=number)
    left: list[int] = []
    for expires, to in steps:
        left += [n for _, n in queue.expire(to)] if expires else queue.advance(FSYNC, to)
    left += [n for _, n in queue.drain()]
    assert left == list(range(len(ends)))
    assert queue.bytes_waiting == 0
