"""Look-up by store time: equal times, gaps, both ends, what retention left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_log import MessageStore
from imago_testing.searching import examples
from imago_testing.stores.in_memory import START_MS, FakeClock, Model, open_store
from imago_testing.stores.vfs import MemoryVfs

if TYPE_CHECKING:
    from collections.abc import Sequence


def stored_at(times: Sequence[int], **changes: int) -> tuple[MessageStore, FakeClock]:
    """Return a store with one message a time, in milliseconds after the start."""
    clock, model = FakeClock(), Model()
    store = open_store(MemoryVfs(), clock, **changes)
    store.create_topic("T", {})
    for at in times:
        clock.now_ms = START_MS + at
        model.send(store, [("T", 0, 200)])
    return store, clock


def lower(store: MessageStore, at: int) -> int:
    return store.offset_by_time("T", 0, START_MS + at)


def upper(store: MessageStore, at: int) -> int:
    return store.offset_by_time("T", 0, START_MS + at, upper=True)


def test_equal_times_and_gaps() -> None:
    store, _ = stored_at([0, 0, 10, 10, 10, 20])
    assert [lower(store, at) for at in (-1, 0, 1, 9, 10, 11, 20, 21)] == [0, 0, 2, 2, 2, 5, 5, 6]
    assert [upper(store, at) for at in (-1, 0, 1, 9, 10, 11, 20, 21)] == [0, 1, 1, 1, 4, 4, 5, 5]
    store.close()


def test_nothing_there() -> None:
    store, _ = stored_at([])
    for upper_one in (False, True):
        assert store.offset_by_time("T", 0, START_MS, upper=upper_one) == 0
        assert store.offset_by_time("none", 0, START_MS, upper=upper_one) == 0
    assert store.store_time("T", 0, 0) is None
    store.close()


def test_store_times() -> None:
    store, _ = stored_at([0, 7, 7])
    times = [store.store_time("T", 0, at) for at in range(4)]
    assert times == [START_MS, START_MS + 7, START_MS + 7, None]
    assert store.store_time("T", 0, -1) is None
    store.close()


def test_a_clock_that_goes_back_does_not_take_times_back() -> None:
    store, clock = stored_at([0, 50, 20])
    assert store.store_time("T", 0, 2) == START_MS + 50
    assert clock.now_ms == START_MS + 20
    store.close()


def test_a_clock_that_goes_back_over_a_restart() -> None:
    vfs, clock, model = MemoryVfs(), FakeClock(), Model()
    store = open_store(vfs, clock)
    store.create_topic("T", {})
    model.send(store, [("T", 0, 10)])
    store.close()
    clock.now_ms -= 1_000_000
    store = open_store(vfs, clock)
    model.send(store, [("T", 0, 10)])
    assert store.store_time("T", 0, 1) == START_MS
    store.close()


def test_clamped_to_what_retention_left() -> None:
    store, clock = stored_at([at * 10 for at in range(60)], retention_bytes=3 * 4096)
    for _ in range(4):
        clock.now_ms += 4000
        store.tick()
    low, high = store.queue_range("T", 0)
    assert 0 < low < high == 60
    assert lower(store, 0) == upper(store, 0) == low
    assert lower(store, low * 10) == upper(store, low * 10) == low
    assert (lower(store, 591), upper(store, 591)) == (60, 59)
    store.close()


@pytest.mark.parametrize("reopened", [False, True])
@settings(max_examples=examples(30), deadline=None)
@given(
    gaps=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    asked=st.lists(st.integers(-2, 95), min_size=1, max_size=10),
)
def test_like_a_walk_over_all(gaps: list[int], asked: list[int], *, reopened: bool) -> None:
    times = [sum(gaps[: at + 1]) for at in range(len(gaps))]
    store, clock = stored_at(times)
    if reopened:
        store.close()
        store = MessageStore.open(
            store.config, clock=clock, vfs=store.components.storage.vfs, threaded=False
        )
    for at in asked:
        assert lower(store, at) == sum(time < at for time in times)
        assert upper(store, at) == max(0, sum(time <= at for time in times) - 1)
    store.close()
