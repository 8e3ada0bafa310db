"""How much a micro-batch takes, and which ranges filters leave."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from imago_client.message_queue import MessageQueue
from imago_spark.choosing.admission import BatchMinimum, admit_bytes
from imago_spark.choosing.pushed import Pushed

Q0, Q1 = (MessageQueue("orders", "shard-0", number) for number in range(2))


@given(
    backlog=st.tuples(*[st.integers(0, 10_000)] * 2),
    sizes=st.tuples(*[st.floats(0.1, 5_000)] * 2),
    bytes_max=st.integers(1, 1 << 22),
)
def test_bytes_are_shared_and_kept_to(
    backlog: tuple[int, int], sizes: tuple[float, float], bytes_max: int
) -> None:
    start = {Q0: 5, Q1: 7}
    end = {Q0: 5 + backlog[0], Q1: 7 + backlog[1]}
    row_bytes = dict(zip((Q0, Q1), sizes, strict=True))
    found = admit_bytes(start, end, row_bytes, bytes_max)
    rows = {queue: found[queue] - start[queue] for queue in found}
    assert all(0 <= rows[queue] <= end[queue] - start[queue] for queue in rows)
    size = sum(rows[queue] * row_bytes[queue] for queue in rows)
    assert size <= bytes_max * 1.001 or sum(rows.values()) == 1
    if any(backlog):
        assert any(rows.values()), "a stream never stands still"
    if sum(count * each for count, each in zip(backlog, sizes, strict=True)) <= bytes_max:
        assert found == end


def test_a_minimum_waits_but_not_for_ever() -> None:
    now = [0.0]
    minimum = BatchMinimum(10, 60, lambda: now[0])
    assert not minimum.waits({Q0: 5}, {Q0: 5}), "nothing is no reason to wait"
    assert minimum.waits({Q0: 5}, {Q0: 14})
    assert not minimum.waits({Q0: 5}, {Q0: 15})
    now[0] = 59
    assert minimum.waits({Q0: 15}, {Q0: 16})
    now[0] = 60
    assert not minimum.waits({Q0: 15}, {Q0: 16}), "it is a minute since the last one"
    assert minimum.waits({Q0: 16}, {Q0: 17})
    assert not BatchMinimum(None, 60, lambda: 0).waits({Q0: 1}, {Q0: 2})


T = datetime(2026, 11, 30, 8, 0, 0, 500, tzinfo=UTC)
MS = 1_796_025_600_000


@pytest.mark.parametrize(
    ("filters", "start", "end"),
    [
        ([], {Q0: 0, Q1: 3}, {Q0: 100, Q1: 100}),
        ([EqualTo(("queue",), 1)], {Q1: 3}, {Q1: 100}),
        ([In(("queue",), (0, 5)), EqualTo(("shard",), "shard-0")], {Q0: 0}, {Q0: 100}),
        ([EqualTo(("shard",), "shard-1")], {}, {}),
        ([EqualTo(("topic",), "orders")], {Q0: 0, Q1: 3}, {Q0: 100, Q1: 100}),
        (
            [GreaterThan(("offset",), 9), LessThanOrEqual(("offset",), 20)],
            {Q0: 10, Q1: 10},
            {Q0: 21, Q1: 21},
        ),
        (
            [GreaterThanOrEqual(("offset",), 2), LessThan(("offset",), 200)],
            {Q0: 2, Q1: 3},
            {Q0: 100, Q1: 100},
        ),
        ([EqualTo(("offset",), 7)], {Q0: 7, Q1: 7}, {Q0: 8, Q1: 8}),
        ([Not(EqualTo(("queue",), 1)), IsNotNull(("offset",))], {Q0: 0, Q1: 3}, {Q0: 100, Q1: 100}),
        ([EqualTo(("key",), "k"), EqualTo(("a", "queue"), 1)], {Q0: 0, Q1: 3}, {Q0: 100, Q1: 100}),
    ],
)
def test_filters_leave_queues_and_offsets(
    filters: list[object], start: dict[MessageQueue, int], end: dict[MessageQueue, int]
) -> None:
    pushed = Pushed.of(filters)  # type: ignore[arg-type]
    assert pushed.narrowed({Q0: 0, Q1: 3}, {Q0: 100, Q1: 100}) == (start, end)


@pytest.mark.parametrize(
    ("filters", "from_ms", "until_ms"),
    [
        ([GreaterThan(("store_time",), T)], MS - 1, None),
        ([GreaterThanOrEqual(("timestamp",), T)], MS - 1, None),
        ([LessThan(("store_time",), T)], None, MS + 2),
        ([LessThanOrEqual(("store_time",), T), EqualTo(("store_time",), T)], MS - 1, MS + 2),
        ([EqualTo(("born_time",), T)], None, None),
    ],
)
def test_filters_leave_times(
    filters: list[object], from_ms: int | None, until_ms: int | None
) -> None:
    """A millisecond more on both sides: Spark filters again."""
    pushed = Pushed.of(filters)  # type: ignore[arg-type]
    assert (pushed.from_ms, pushed.until_ms) == (from_ms, until_ms)
