"""Offsets as JSON, as ranges, and as the share of one batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from imago_client import MessageQueue
from imago_spark.incarnations import Incarnation
from imago_spark.offsets import QueueRange, admit, packed, ranges, split

A0, A1, B0 = (MessageQueue("t", shard, number) for shard, number in (("a", 0), ("a", 1), ("b", 0)))
MADE = Incarnation(7, 7)
queues = st.builds(
    MessageQueue, st.sampled_from(["t", "u"]), st.sampled_from(["a", "b"]), st.integers(0, 12)
)
offsets = st.dictionaries(queues, st.integers(0, 10_000), max_size=12)


def test_ranges_leave_out_what_is_empty_and_what_is_gone() -> None:
    found = ranges({A0: 5, A1: 7, B0: 1}, {A0: 9, A1: 7})
    assert found == [QueueRange(A0, 5, 9)]


def test_range_of_an_unknown_queue_begins_at_its_first_message() -> None:
    assert ranges({}, {A0: 3}) == [QueueRange(A0, 0, 3)]


def test_batch_takes_everything_without_a_limit() -> None:
    assert admit({A0: 5, A1: 0}, {A0: 9, A1: 2}, None) == {A0: 9, A1: 2}


def test_batch_is_shared_in_proportion_and_starves_nobody() -> None:
    assert admit({A0: 0, A1: 0, B0: 0}, {A0: 9000, A1: 999, B0: 1}, 100) == {
        A0: 90,
        A1: 10,
        B0: 0,
    }
    assert admit({A0: 0, B0: 0}, {A0: 50, B0: 50}, 10) == {A0: 5, B0: 5}


@given(
    st.dictionaries(queues, st.integers(0, 1000), min_size=1, max_size=12),
    st.dictionaries(queues, st.integers(0, 2000), max_size=12),
    st.integers(1, 3000) | st.none(),
)
def test_batch_never_goes_back_never_takes_too_much_and_always_gets_on(
    start: dict[MessageQueue, int], latest: dict[MessageQueue, int], rows_max: int | None
) -> None:
    end = admit(start, latest, rows_max)
    assert end.keys() == start.keys()
    taken = {queue: end[queue] - start[queue] for queue in start}
    backlog = {queue: max(0, latest.get(queue, 0) - start[queue]) for queue in start}
    assert all(0 <= taken[queue] <= backlog[queue] for queue in start)
    total = sum(backlog.values())
    assert sum(taken.values()) == (total if rows_max is None else min(total, rows_max))


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5000), st.floats(0, 1000)), max_size=6),
    st.integers(1000, 100_000),
    st.integers(1, 30),
)
def test_split_parts_cover_their_ranges_and_are_small_enough(
    given_ranges: list[tuple[int, int, float]], split_bytes: int, partitions_min: int
) -> None:
    wanted, sizes = [], {}
    for number, (start, count, row_bytes) in enumerate(given_ranges):
        queue = MessageQueue("orders", "a", number)
        sizes[queue] = row_bytes
        if count:
            wanted.append(QueueRange(queue, start, start + count, MADE))
    parts = split(wanted, sizes, split_bytes=split_bytes, partitions_min=partitions_min)
    for whole in wanted:
        own = [part for part in parts if part.queue == whole.queue]
        assert [part.start for part in own] == [whole.start, *[part.end for part in own[:-1]]]
        assert own[-1].end == whole.end
        assert all(part.start < part.end and part.incarnation == MADE for part in own)
        for part in own:
            rows = part.end - part.start
            assert rows == 1 or (rows - 1) * sizes[whole.queue] <= 1.1 * split_bytes + 1


@given(
    st.lists(st.integers(1, 300_000), max_size=300),
    st.integers(1000, 10_000_000),
    st.integers(1, 100),
)
def test_tasks_hold_all_parts_in_turn_and_are_no_larger_than_one_must_be(
    rows: list[int], split_bytes: int, partitions_min: int
) -> None:
    parts = [QueueRange(MessageQueue("t", "a", at), 0, end) for at, end in enumerate(rows)]
    sizes = {one.queue: 100.0 for one in parts}
    tasks = packed(parts, sizes, split_bytes=split_bytes, partitions_min=partitions_min)
    assert [one for task in tasks for one in task] == parts
    assert len(tasks) >= min(len(parts), partitions_min)
    for task in tasks:
        assert len(task) == 1 or sum(100 * one.end for one in task) <= split_bytes


def test_very_many_small_ranges_are_few_tasks() -> None:
    parts = [QueueRange(MessageQueue("t", "a", at), 0, 1) for at in range(10_000)]
    tasks = packed(parts, {}, split_bytes=64 << 20)
    assert 64 <= len(tasks) <= 66
    assert [len(task) for task in packed(parts[:8], {}, split_bytes=64 << 20)] == [1] * 8
