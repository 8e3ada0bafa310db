"""Idempotent producers' state: a view of the log that comes back whatever happens to it."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_log.metadata import known_producers
from imago_log.metadata.changes import CHANGE_BYTES_MAX
from imago_log.metadata.known_producers import AGE_MS_MAX, QUEUES_MAX, RUNS_MAX
from imago_log.metadata.producers import STATED_QUEUES_MAX, Producers
from imago_log.metadata.state import Metadata
from imago_testing.stores.in_memory import DATA, HOST, START_MS, FakeClock, open_store
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.hot import QueueTail, RecordBuilder, make_entry
from imago_wire.record_format.sequences import Sequence, stored_property, tag_of, user_tag

if TYPE_CHECKING:
    from imago_log import MessageStore

P, Q, R = "00000000000000aa", "00000000000000bb", "00000000000000cc"
T0, T1 = ("T", 0), ("T", 1)


def put(
    store: MessageStore, queue: tuple[str, int], *sent: Sequence | None, size: int = 20
) -> None:
    """Append messages of one queue; None stands for one of nobody."""
    entries = [
        make_entry(
            store.tail(*queue),
            b"." * size,
            b"TAGS\x01x\x02" + (b"" if one is None else stored_property(one)),
            born_ms=START_MS,
            born_host=HOST,
        )
        for one in sent
    ]
    store.append(entries, sequenced=True)


def state(store: MessageStore) -> list[object]:
    return store.producers.to_json()


def a_used_store(vfs: MemoryVfs, clock: FakeClock, **changes: int) -> MessageStore:
    """Two producers on three queues; a snapshot in the middle of it."""
    store = open_store(vfs, clock, **changes)
    for topic in ("T", "gone"):
        store.create_topic(topic, {"name": topic})
    put(store, T0, *[Sequence(P, 0, n) for n in range(5)])
    put(store, T0, Sequence(Q, 3, 0), None, Sequence(Q, 3, 1), Sequence(P, 0, 5))
    put(store, ("gone", 0), Sequence(P, 0, 0))
    for _ in range(4):
        clock.now_ms += 1000
        store.tick()
    put(store, T1, Sequence(P, 1, 0), Sequence(P, 1, 1))
    store.delete_topic("gone")
    put(store, T0, Sequence(Q, 3, 2))
    return store


def check_used(store: MessageStore) -> None:
    producers = store.producers
    assert (producers.epoch(P), producers.epoch(Q)) == (1, 3)
    assert producers.next_number(P, T1) == 2
    assert producers.next_number(P, T0) == 0, "a new epoch counts from 0 in every queue"
    assert producers.next_number(Q, T0) == 3
    assert producers.next_number(Q, ("gone", 0)) == 0
    assert producers.offset_of(P, T0, 0, 0, 5) == 0
    assert producers.offset_of(P, T0, 0, 5, 1) == 8
    assert producers.offset_of(P, T0, 0, 4, 2) is None, "not side by side: never one request"
    assert producers.offset_of(Q, T0, 3, 1, 1) == 7
    assert producers.queues == 3


@pytest.mark.parametrize("how", ["stopped", "killed", "power lost", "no snapshot", "only the log"])
def test_state_comes_back(how: str) -> None:
    vfs, clock = MemoryVfs(), FakeClock()
    store = a_used_store(vfs, clock)
    before = state(store)
    check_used(store)
    if how == "power lost":
        store.request_sync()
    left = vfs if how == "stopped" else vfs.crashed(power_loss=how == "power lost")
    store.close(clean=how == "stopped")
    if how == "no snapshot":
        left.unlink(DATA / "config" / "metadata.json")
    if how == "only the log":
        for path in left.files():
            if path.parent.name != "commitlog":
                left.unlink(path)
    for _ in range(2):
        store = open_store(left, clock)
        check_used(store)
        assert state(store) == before
        store.close()


def test_retention_leaves_the_state_of_silent_producers_in_the_log() -> None:
    vfs, clock = MemoryVfs(), FakeClock()
    store = open_store(vfs, clock, retention_ms=5000)
    store.create_topic("T", {"name": "T"})
    put(store, T0, *[Sequence(P, 0, n) for n in range(3)])
    for n in range(60):
        put(store, T1, Sequence(Q, 0, n), size=300)
        clock.now_ms += 1000
        store.tick()
    assert store.log_start > 4096, "the files with the first producer's messages are gone"
    store.close()
    for path in vfs.files():
        if path.parent.name != "commitlog":
            vfs.unlink(path)
    store = open_store(vfs, clock, retention_ms=5000)
    assert store.producers.next_number(P, T0) == 3
    assert store.producers.offset_of(P, T0, 0, 1, 2) == 1
    assert store.producers.next_number(Q, T1) == 60
    store.close()


def test_topic_made_anew_counts_from_nothing() -> None:
    store = open_store(MemoryVfs())
    store.create_topic("T", {"name": "T"})
    put(store, T0, Sequence(P, 0, 0), Sequence(P, 0, 1))
    store.delete_topic("T")
    store.create_topic("T", {"name": "T"})
    assert store.producers.epoch(P) is None
    put(store, T0, Sequence(P, 0, 0))
    assert store.producers.next_number(P, T0) == 1
    store.close()


def test_places_of_a_repeat_are_those_of_the_original() -> None:
    store = open_store(MemoryVfs())
    store.create_topic("T", {"name": "T"})
    entry = make_entry(store.tail(*T0), b"x", born_ms=START_MS, born_host=HOST)
    placed = store.append([entry, entry, entry])
    assert [p[:3] for p in store.placed("T", 0, 1, 2)] == [p[:3] for p in placed[1:]]
    assert store.placed("T", 0, 2, 2) == []
    assert store.placed("T", 7, 0, 1) == []
    store.close()


def test_appends_without_the_mark_leave_the_view_alone() -> None:
    store = open_store(MemoryVfs())
    store.create_topic("T", {"name": "T"})
    version = store.producers.version
    put(store, T0, None, None)
    assert (store.producers.version, len(store.producers)) == (version, 0)
    store.close()


# The view alone


def test_window_is_bounded_and_says_so() -> None:
    view = Producers()
    for n in range(100):
        view.add(Sequence(P, 0, n), T0, 2 * n, 100 * n, 0)  # somebody else's between each two
    assert view.offset_of(P, T0, 0, 99 - RUNS_MAX, 1) is None
    assert view.offset_of(P, T0, 0, 100 - RUNS_MAX, 1) == 2 * (100 - RUNS_MAX)
    assert view.next_number(P, T0) == 100


def test_least_recently_used_goes_first() -> None:
    view = Producers()
    for n in range(QUEUES_MAX):
        view.add(Sequence(f"{n:016x}", 0, 0), T0, n, n, 0)
    view.add(Sequence(f"{0:016x}", 0, 1), T0, QUEUES_MAX, QUEUES_MAX, 0)
    view.add(Sequence(P + "f", 0, 0), T0, QUEUES_MAX + 1, QUEUES_MAX + 1, 0)
    assert view.queues == QUEUES_MAX
    assert view.epoch(f"{0:016x}") == 0
    assert view.epoch(f"{1:016x}") is None


def test_silent_producers_are_forgotten_by_the_time_of_records() -> None:
    view = Producers()
    view.add(Sequence(P, 0, 0), T0, 0, 0, 1000)
    view.add(Sequence(Q, 0, 0), T0, 1, 1, 1000 + AGE_MS_MAX)
    assert view.epoch(P) == 0
    view.add(Sequence(Q, 0, 1), T0, 2, 2, 1001 + AGE_MS_MAX)
    assert view.epoch(P) is None


ANN, EVE = user_tag("ann"), user_tag("eve")


def test_a_user_who_fills_the_view_lets_go_of_its_own_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known_producers, "QUEUES_MAX", 12)
    view = Producers()
    for n in range(3):
        view.add(Sequence(f"{n:016x}{ANN}", 0, 0), T0, n, n, 0)
    view.add(Sequence(P, 0, 0), T0, 3, 3, 0)
    for n in range(1000):
        view.add(Sequence(f"{n:016x}{EVE}", 0, 0), T0, n, n + 4, 0)
    assert view.queues == 12
    assert [view.epoch(f"{n:016x}{ANN}") for n in range(3)] == [0, 0, 0]
    assert view.epoch(P) == 0
    assert [n for n in range(1000) if view.epoch(f"{n:016x}{EVE}") == 0] == list(range(992, 1000))
    for n in range(3, 9):  # up to the average she takes from whoever has most
        view.add(Sequence(f"{n:016x}{ANN}", 0, 0), T0, n, n + 2000, 0)
    counted = Counter(tag_of(name) for name, _ in view.to_json())
    assert counted == {ANN: 4, EVE: 7, "": 1}
    assert view.epoch(f"{8:016x}{ANN}") == 0, "the newest stays"


def test_a_producer_has_no_more_queues_than_all_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_producers, "QUEUES_MAX", 5)
    view = Producers()
    view.add(Sequence(P + ANN, 0, 0), T0, 0, 0, 0)
    for n in range(100):
        view.add(Sequence(Q + EVE, 0, 0), ("T", n), 0, n + 1, 0)
    assert (view.queues, view.next_number(P + ANN, T0)) == (5, 1)
    assert [n for n in range(100) if view.next_number(Q + EVE, ("T", n))] == [96, 97, 98, 99]


def test_an_id_is_another_one_for_each_user() -> None:
    view = Producers()
    view.add(Sequence(P + ANN, 1, 0), T0, 0, 0, 0)
    view.add(Sequence(P + EVE, 7, 0), T0, 1, 1, 0)
    assert view.state_in(P + ANN, T0) == (1, 1)
    assert view.state_in(P + EVE, T0) == (7, 1)
    assert view.state_in(P, T0) is None
    assert view.offset_of(P + ANN, T0, 1, 0, 1) == 0
    assert view.offset_of(P + ANN, T0, 7, 0, 1) is None


def test_what_was_sent_without_a_user_counts_for_each_who_goes_on_with_it() -> None:
    view = Producers()
    for n in range(3):
        view.add(Sequence(P, 4, n), T0, n, n, 0)
    for tag in (ANN, EVE):
        assert view.state_in(P + tag, T0) == (4, 3)
        assert view.offset_of(P + tag, T0, 4, 1, 2) == 1
    view.add(Sequence(P + ANN, 4, 3), T0, 3, 3, 0)
    assert view.state_in(P + ANN, T0) == (4, 4)
    assert view.state_in(P + ANN, T1) == (4, 0)
    assert view.offset_of(P + ANN, T0, 4, 3, 1) == 3
    assert view.offset_of(P + ANN, T0, 4, 0, 3) == 0, "its past is still told"
    assert view.state_in(P + EVE, T0) == (4, 3)
    view.add(Sequence(P + ANN, 5, 0), T1, 0, 4, 0)
    assert (view.state_in(P + ANN, T0), view.state_in(P + ANN, T1)) == ((5, 0), (5, 1))
    loaded = Producers()
    loaded.load(view.to_json(), 5)
    assert loaded.to_json() == view.to_json()
    assert loaded.state_in(P + ANN, T0) == (5, 0)
    assert loaded.queues == view.queues == 3


blocks = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.lists(st.tuples(st.sampled_from([P, Q, R]), st.integers(0, 1), st.sampled_from([0, 1]))),
    ),
    max_size=12,
)
"""Of each the milliseconds since the last one, and whose messages it has, with a new epoch or not.
"""


@given(blocks=blocks)
def test_blocks_come_to_the_same_as_messages_one_by_one(blocks: list[Any]) -> None:
    whole, single, known = Producers(), Producers(), OrderedDict[str, int]()
    tails, counts = [QueueTail(b"T", queue, dual=False) for queue in (0, 1)], Counter[object]()
    epochs, place, ms = Counter[str](), 0, START_MS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_producers, "AGE_MS_MAX", 10)
        for later, messages in blocks:
            ms, entries, offsets = ms + later, [], []
            for name, bump, queue in messages:
                epochs[name] += bump
                number = counts[name, epochs[name], queue]
                counts[name, epochs[name], queue] += 1
                sent = Sequence(name, epochs[name], number)
                properties = stored_property(sent)
                entries.append(
                    make_entry(tails[queue], b"x", properties, born_ms=1, born_host=HOST)
                )
                offsets.append((sent, ("T", queue)))
            data, placed = RecordBuilder(HOST, 1, 0).build(entries, 0, place, ms, 1 << 30)
            for (sent, where), (offset, at, *_) in zip(offsets, placed, strict=True):
                single.add(sent, where, offset, at, ms)
                known[sent.producer] = ms
                known.move_to_end(sent.producer)
                while len(known) > 1 and ms - next(iter(known.values())) > 10:
                    known.popitem(last=False)
            whole.take(bytes(data), place)
            place += len(data)
            assert whole.to_json() == single.to_json()
            assert [name for name, _ in whole.to_json()] == list(known)
            assert whole.version == single.version


steps = st.lists(
    st.tuples(st.sampled_from([P, Q]), st.integers(0, 1), st.sampled_from([T0, T1])), max_size=60
)


@given(steps, st.integers(0, 60))
def test_truncation_is_as_if_the_rest_had_never_been(
    steps: list[tuple[str, int, tuple[str, int]]], kept: int
) -> None:
    view, shorter = Producers(), Producers()
    counts: dict[object, int] = {}
    ends = {T0: 0, T1: 0}
    cut = {T0: 0, T1: 0}
    epochs = dict.fromkeys((P, Q), 0)
    for place, (producer, bump, queue) in enumerate(steps):
        epochs[producer] += bump
        epoch = epochs[producer]
        number = counts.get((producer, epoch, queue), 0)
        counts[producer, epoch, queue] = number + 1
        sent = Sequence(producer, epoch, number)
        view.add(sent, queue, ends[queue], place, 0)
        ends[queue] += 1
        if place < kept:
            shorter.add(sent, queue, cut[queue], place, 0)
            cut[queue] += 1
    view.truncate(kept, lambda topic, queue_id: cut[topic, queue_id])
    for producer in (P, Q):
        for queue in (T0, T1):
            wanted = shorter.next_number(producer, queue), shorter.epoch(producer)
            found = view.next_number(producer, queue), view.epoch(producer)
            # A window that the cut has emptied knows less, and never of what is not there.
            assert found == wanted or len(steps) - kept >= RUNS_MAX
            assert found[0] is None or found[1] != wanted[1] or found[0] <= (wanted[0] or 0)


@given(steps)
def test_snapshot_and_statements_hold_the_state(
    steps: list[tuple[str, int, tuple[str, int]]],
) -> None:
    view, ends, counts = Producers(), {T0: 0, T1: 0}, dict.fromkeys((P, Q), 0)
    for place, (producer, epoch, queue) in enumerate(steps):
        view.add(Sequence(producer, epoch, counts[producer]), queue, ends[queue], place, place)
        ends[queue] += 1
        counts[producer] += 1
    loaded, stated = Producers(), Producers()
    loaded.load(view.to_json(), len(steps))
    assert loaded.to_json() == view.to_json()
    for _, key, value in view.statements(len(steps)):
        stated.state(key, value, len(steps))
    for producer in (P, Q):
        assert stated.epoch(producer) == view.epoch(producer)
        for queue in (T0, T1):
            assert stated.next_number(producer, queue) == view.next_number(producer, queue)
    assert stated.queues == view.queues
    assert stated.statements(len(steps)) == [], "what was said after them needs no saying again"


@pytest.mark.shipped_limits
def test_a_change_says_no_more_again_than_fits_into_a_record() -> None:
    view, count = Producers(), 3 * STATED_QUEUES_MAX + 7
    for place in range(count):
        view.add(Sequence(P, 1, 0), (f"{place:0127d}", 1 << 30), 1 << 40, place, 1 << 42)
    statements = view.statements(count)
    assert len(statements) == 4
    assert all(len(orjson.dumps(value)) < CHANGE_BYTES_MAX for _, _, value in statements)
    stated, torn = Producers(), Producers()
    torn.load(view.to_json(), count)
    for number, (_, key, value) in enumerate(statements):
        stated.state(key, value, count + number)
        if not number:  # what follows may be lost with the log's tail
            torn.state(key, value, count)
    for found in (stated, torn):
        assert found.queues == count
        assert found.statements(count) == []
        assert all(
            found.next_number(P, queue) == view.next_number(P, queue)
            for queue in ((f"{place:0127d}", 1 << 30) for place in range(count))
        )
    assert len(stated.statements(count + 1)) == 4, "it is told from its first part on"


def test_snapshot_without_producers_says_nothing_of_them() -> None:
    snapshot = Metadata().snapshot()
    assert b"producers" not in snapshot
    assert len(Metadata.from_snapshot(snapshot).producers) == 0
