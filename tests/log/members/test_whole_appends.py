"""An append that is kept whole is in one file of the log, so that retention takes it at once."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_log import DiskFullError, MessageStore
from imago_testing.stores.in_memory import FakeClock, Model, open_store
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.errors import LimitExceededError

FILE = 4096
HOUR = 3_600_000
SIZES = st.lists(st.integers(0, 500), min_size=1, max_size=4)


def opened(vfs: MemoryVfs, clock: FakeClock | None = None) -> MessageStore:
    store = open_store(vfs, clock)
    if not store.topics():
        store.create_topic("T", {})
    return store


def send(store: MessageStore, model: Model, sizes: list[int], *, whole: bool) -> list[int]:
    """Return the number of the file of each message."""
    before = len(model.sent)
    model.send(store, [("T", 0, size) for size in sizes], whole=whole)
    return [sent.place // FILE for sent in model.sent[before:]]


@given(appends=st.lists(st.tuples(SIZES, st.booleans()), min_size=1, max_size=8))
def test_what_a_file_can_hold_is_in_one_file(appends: list[tuple[list[int], bool]]) -> None:
    vfs, model = MemoryVfs(), Model()
    store = opened(vfs)
    for sizes, whole in appends:
        start = store.log_end
        files = send(store, model, sizes, whole=whole)
        assert sorted(files) == files
        assert not whole or len(set(files)) == 1
        if whole and files[0] > start // FILE:
            assert model.sent[-len(sizes)].place % FILE == 0, "it begins its file"
    store.close()
    store = opened(vfs)
    model.check(store)


def test_at_the_end_of_a_file_it_begins_the_next_or_fits() -> None:
    """What is in front of it leaves more or fewer bytes in the file."""
    outcomes = set()
    for size in range(250, 500):
        store, model = opened(MemoryVfs()), Model()
        send(store, model, [500] * 3 + [size], whole=False)
        files = set(send(store, model, [40, 40, 300], whole=True))
        assert len(files) == 1
        outcomes |= files
        for before, behind in pairwise(model.sent):
            next_file = (before.end // FILE + 1) * FILE
            assert behind.place in (before.end, next_file)
        if size % 50 == 0:
            model.check(store)
    assert outcomes == {0, 1}


def test_what_is_larger_than_a_file_is_refused() -> None:
    store, model = opened(MemoryVfs()), Model()
    before = store.log_end
    with pytest.raises(LimitExceededError):
        send(store, model, [500] * 15, whole=True)
    model.in_flight.clear()
    assert store.log_end == before
    send(store, model, [500] * 15, whole=False)
    model.check(store)


def test_retention_takes_it_at_once() -> None:
    clock, model = FakeClock(), Model()
    store = open_store(MemoryVfs(), clock, retention_ms=HOUR)
    store.create_topic("T", {})
    seen = set()
    for _ in range(60):
        send(store, model, [100, 20, 450], whole=True)
        clock.now_ms += HOUR // 10
        store.tick()
        seen.add(store.queue_range("T", 0)[0])
    assert len(seen) > 5, "files went"
    assert seen <= {sent.offset for sent in model.sent[::3]}


@pytest.mark.parametrize("sizes", [[40, 40, 300], [500], [500, 500, 500, 500]])
def test_without_room_for_the_next_file_nothing_is_appended(sizes: list[int]) -> None:
    vfs, model = MemoryVfs(), Model()
    store = opened(vfs)
    send(store, model, [500] * 5, whole=False)
    vfs.free_bytes = 0
    before, refused = (0, (0, 0)), False
    while not refused:
        before = store.log_end, store.queue_range("T", 0)
        try:
            send(store, model, sizes, whole=True)
        except DiskFullError:
            refused = True
    model.in_flight.clear()
    assert (store.log_end, store.queue_range("T", 0)) == before
    model.check(store)
    vfs.free_bytes = None
    files = send(store, model, sizes, whole=True)
    assert len(set(files)) == 1
    model.check(store)
