"""Timers as numbers: the twins take the same in, and give the same out."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.searching import examples
from imago_wire.record_format.layout import UNIT
from imago_wire.record_format.timing import OFFSET_BITS, QUEUE_BITS
from imago_wire.records import (  # type: ignore[attr-defined]  # built, not typed
    _parked_c,
    _parked_py,
    _timing_c,
    _timing_py,
)

if TYPE_CHECKING:
    from imago_testing.frames.twins import Twin

times = st.sampled_from([0, 1, 999, 1000, 1001, 1999, 5000, -1, -7, (1 << 62) + 5])
units = st.lists(
    st.tuples(st.integers(0, 1 << 40), st.sampled_from([100, 100, 100, 0, -1]), times), max_size=12
).map(lambda rows: b"".join([UNIT.pack(*row) for row in rows]))
numbers = st.lists(st.integers(0, 40) | st.integers(0, (1 << 64) - 1), max_size=40)


def packed(timers: list[int]) -> bytes:
    return struct.pack(f"={len(timers)}Q", *timers)


@settings(max_examples=examples(300))
@given(timers=numbers, last=st.integers(0, 40) | st.just((1 << 64) - 1), count=st.integers(-1, 50))
def test_what_is_pushed_is_popped_in_its_order(timers: list[int], last: int, count: int) -> None:
    for twin in (_timing_py, _timing_c):
        heap = bytearray()
        for timer in timers:
            twin.push_timer(heap, timer)
        due = [timer for timer in sorted(timers) if timer <= last]
        assert twin.pop_timers(heap, last, count) == packed(due[: max(0, count)])
        left = sorted(timers)[min(len(due), max(0, count)) :]
        assert twin.pop_timers(heap, (1 << 64) - 1, 100) == packed(left)
        assert heap == b""


@settings(max_examples=examples(300))
@given(rows=units, at=st.integers(0, 3), queue_id=st.integers(0, 2047), front=st.integers(0, 2))
def test_units_are_spread_alike(rows: bytes, at: int, queue_id: int, front: int) -> None:
    found: list[Any] = []
    for twin in (_timing_py, _timing_c):
        slots: dict[int, bytearray] = {1: bytearray(packed([7]))}
        seconds, heap = [1], bytearray(packed([3]))
        start = min(at, len(rows) // UNIT.size)
        count = twin.spread_timers(rows, start, queue_id, 40, slots, seconds, front, heap)
        found.append((count, slots, seconds, heap))
    assert found[0] == found[1]


@settings(max_examples=examples(300))
@given(
    rows=st.lists(
        st.tuples(st.sampled_from([0, 999]), st.sampled_from([0, 2047]), st.integers(0, 4)),
        max_size=12,
    )
)
def test_runs_are_found_alike(rows: list[tuple[int, int, int]]) -> None:
    timers = packed([(rest << QUEUE_BITS | queue) << OFFSET_BITS | at for rest, queue, at in rows])
    runs = _timing_py.timer_runs(timers)
    assert _timing_c.timer_runs(timers) == runs
    whole = [(queue, first + n) for queue, first, count, _ in runs for n in range(count)]
    assert whole == [(queue, at) for _, queue, at in rows]
    assert sum([rests for *_, rests in runs]) == sum([rest for rest, *_ in rows])


@settings(max_examples=examples(200))
@given(rows=units, due_ms=times)
def test_due_units_are_counted_alike(rows: bytes, due_ms: int) -> None:
    count = _parked_py.due_units(rows, due_ms)
    assert _parked_c.due_units(rows, due_ms) == count
    tags = [tag for _, _, tag in UNIT.iter_unpack(rows)]
    assert all(tag <= due_ms for tag in tags[:count])
    assert count == len(tags) or tags[count] > due_ms


def test_timers_of_one_second_are_a_heap_and_others_wait_in_slots(twin: Twin) -> None:
    rows = b"".join([UNIT.pack(1, 9, due) for due in (1005, 2000, 1003, 2001)]) + UNIT.pack(
        1, 9, -1
    )
    slots: dict[int, bytearray] = {}
    seconds, front = list[int](), bytearray()
    assert twin.spread_timers(rows, 1, 6, 40, slots, seconds, 1, front) == 3
    number = 6 << OFFSET_BITS
    in_second = 1 << OFFSET_BITS + QUEUE_BITS
    assert front == packed([3 * in_second + number + 41])
    slot = bytearray(packed([number + 40, in_second + number + 42]))
    assert (seconds, slots) == ([2], {2: slot})
