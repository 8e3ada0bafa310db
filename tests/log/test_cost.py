"""What is counted, not timed: calls and bytes that a turn, a start and a read cost."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from imago_log.lifecycle.view_sync import FILES_AT_ONCE
from imago_testing.stores.in_memory import HOST, START_MS, FakeClock, Model, open_store
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.records.record import make_entry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imago_log import MessageStore

LARGE = {"segment_bytes_max": 16 << 20, "message_bytes_max": 1 << 20}


class CountingVfs(MemoryVfs):
    """Counts calls by kind, and bytes read by top folder."""

    def __init__(self) -> None:
        super().__init__()
        self.made: Counter[str] = Counter()
        self.bytes_read: Counter[str] = Counter()

    def reset(self) -> None:
        self.made.clear()
        self.bytes_read.clear()

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        data = super().pread(fd, size, offset)
        self.made["read"] += 1
        self.bytes_read[self._open[fd][0].parts[2]] += len(data)
        return data

    def _call(self, what: str, path: Path) -> None:
        super()._call(what, path)
        self.made[what] += 1


def opened(vfs: CountingVfs, clock: FakeClock | None = None) -> MessageStore:
    return open_store(vfs, clock, **LARGE)


def views_end(store: MessageStore) -> int:
    """Let a second pass; return the log offset below which all units are in files."""
    store.tick()
    return store.components.storage.queue_writer.written_end(store.log_end)


def test_one_append_is_one_write_whatever_is_in_it() -> None:
    vfs, model = CountingVfs(), Model()
    store = opened(vfs)
    for name in ("T", "U"):
        store.create_topic(name, {})
    where = [(name, queue_id, 100) for name in "TU" for queue_id in range(8)] * 10
    model.send(store, where)
    vfs.reset()
    store.components.write_behind.sweep = lambda: None  # type: ignore[method-assign] # writing behind is apart
    model.send(store, where)
    assert vfs.made == {"write": 1}
    store.request_sync()
    assert vfs.made == {"write": 1, "sync": 1}
    store.close()


def test_ten_thousand_busy_queues_cost_no_more_writes_a_turn() -> None:
    vfs, clock = CountingVfs(), FakeClock()
    store = opened(vfs, clock)
    store.create_topic("T", {"attributes": {"dialects": "rocketmq"}})
    tails = [store.tail("T", queue_id) for queue_id in range(10_000)]
    worst = 0
    for turn in range(6):
        entries = [make_entry(tail, b"x", born_ms=START_MS, born_host=HOST) for tail in tails]
        vfs.reset()
        clock.now_ms += 50 * turn
        store.append(entries)
        worst = max(worst, sum(vfs.made.values()))
    assert worst <= 200, "one write to the log and a bounded number to queues"
    assert store.queue_range("T", 9_999) == (0, 6)
    assert store.read("T", 5_000, 5, messages_max=1, bytes_max=1).count == 1
    store.close(clean=False)


@pytest.mark.shipped_limits
def test_units_of_many_queues_reach_their_files_in_the_end() -> None:
    vfs, clock = CountingVfs(), FakeClock()
    store = opened(vfs, clock)
    store.create_topic("T", {"attributes": {"dialects": "rocketmq"}})
    count = 400
    for _ in range(2):
        Model().send(store, [("T", queue_id, 10) for queue_id in range(count)])
    for _ in range(count):
        vfs.reset()
        store.components.write_behind.sweep()
        assert sum(vfs.made.values()) <= 100
    assert views_end(store) == store.log_end
    Model().send(store, [("T", queue_id, 10) for queue_id in range(count)])
    assert views_end(store) < store.log_end
    for _ in range(count // 4):
        vfs.reset()
        clock.now_ms += 20
        store.components.write_behind.sweep()
        assert sum(vfs.made.values()) <= 4 * 4, "a fifth of a queue a millisecond"
    assert views_end(store) == store.log_end
    store.close()


@pytest.mark.shipped_limits
def test_few_queues_are_written_at_a_pace() -> None:
    vfs, clock = CountingVfs(), FakeClock()
    store = opened(vfs, clock)
    store.create_topic("T", {"attributes": {"dialects": "rocketmq"}})
    model = Model()
    model.send(store, [("T", 0, 10)])
    vfs.reset()
    for _ in range(1000):
        clock.now_ms += 1
        model.send(store, [("T", 0, 10)])
        store.components.write_behind.sweep()
    assert vfs.made["write"] <= 1000 + 1000 // 20 + 40, "the log, and the queue every twenty"
    model.check(store)
    store.close()


def test_a_clean_start_reads_only_the_end() -> None:
    vfs = CountingVfs()
    store = opened(vfs)
    store.create_topic("T", {})
    model = Model()
    for _ in range(40):
        model.send(store, [("T", queue_id, 100_000) for queue_id in range(4)] * 3)
    assert store.log_end > 40_000_000
    store.close()
    vfs.reset()
    store = opened(vfs)
    assert vfs.bytes_read["commitlog"] <= 8192
    assert sum(vfs.bytes_read.values()) < 64 << 10
    assert vfs.made["read"] < 100
    assert store.read("T", 3, 119, messages_max=1, bytes_max=1).count == 1
    model.send(store, [("T", 0, 10)])
    assert sum(vfs.bytes_read.values()) < 512 << 10
    store.close()


def test_a_start_after_a_kill_reads_from_the_checkpoint() -> None:
    vfs, clock = CountingVfs(), FakeClock()
    store = opened(vfs, clock)
    store.create_topic("T", {})
    model = Model()
    for _ in range(30):
        model.send(store, [("T", 0, 100_000)] * 10)
    for _ in range(8):
        clock.now_ms += 1000
        store.tick()
    model.send(store, [("T", 0, 100_000)])
    store.close(clean=False)
    vfs.reset()
    store = opened(vfs)
    file_rest = LARGE["segment_bytes_max"]
    assert vfs.bytes_read["commitlog"] < 2 * file_rest, "what follows the checkpoint, and zeros"
    assert store.queue_range("T", 0) == (0, 301)
    store.close()


def test_a_tail_read_costs_no_file_access() -> None:
    vfs = CountingVfs()
    store = opened(vfs)
    store.create_topic("T", {})
    Model().send(store, [("T", 0, 100)] * 50)
    vfs.reset()
    assert store.read("T", 0, 20, messages_max=30, bytes_max=1 << 20).count == 30
    store.read_positions("T", 0, 0, 1 << 20)
    assert vfs.made == {}
    store.close()


def test_a_tick_with_nothing_to_do_writes_nothing() -> None:
    vfs, clock = CountingVfs(), FakeClock()
    store = opened(vfs, clock)
    store.create_topic("T", {})
    Model().send(store, [("T", 0, 100)])
    for _ in range(10):
        clock.now_ms += 1000
        store.tick()
    vfs.reset()
    for _ in range(20):
        clock.now_ms += 1000
        store.tick()
    assert vfs.made == {}
    store.close()


def test_open_files_stay_few() -> None:
    vfs = CountingVfs()
    store = opened(vfs)
    store.create_topic("T", {})
    Model().send(store, [("T", queue_id, 10) for queue_id in range(200)])
    store.close(clean=True)
    store = opened(vfs)
    for queue_id in range(200):
        assert store.read("T", queue_id, 0, messages_max=1, bytes_max=1).count == 1
    assert len(vfs._open) <= 8 + 8, "eight view files, the log, lock and checkpoint"
    store.close()
    assert vfs._open == {}


@pytest.mark.shipped_limits
def test_first_files_of_queues_are_made_by_the_worker() -> None:
    vfs, clock = CountingVfs(), FakeClock()
    store = opened(vfs, clock)
    store.create_topic("T", {})
    store.components.write_behind.sweep()
    jobs: list[Callable[[], None]] = []

    def drain() -> None:
        while jobs:
            jobs.pop(0)()

    background: Any = store.components.storage.background
    background.submit_waiting, background.drain = jobs.append, drain
    model = Model()
    vfs.reset()
    for _ in range(3):
        model.send(store, [("T", queue_id, 100) for queue_id in range(8)])
        clock.now_ms += 50
    assert vfs.made == {"write": 3}, "nothing but the log is written meanwhile"
    assert len(jobs) == 1
    drain()
    store.components.write_behind.sweep()
    assert store.read("T", 7, 0, messages_max=9, bytes_max=9999).count == 3
    assert not store.components.storage.queues.find("T", 7).tail.units  # type: ignore[union-attr]
    model.check(store)
    store.close()


def test_a_topic_deleted_while_its_files_are_made_leaves_none() -> None:
    vfs, clock = MemoryVfs(), FakeClock()
    store = open_store(vfs, clock, **LARGE)
    store.create_topic("T", {})
    jobs: list[Callable[[], None]] = []

    def drain() -> None:
        while jobs:
            jobs.pop(0)()

    store.components.write_behind.sweep()
    background: Any = store.components.storage.background
    background.submit_waiting, background.drain = jobs.append, drain
    Model().send(store, [("T", 0, 100)])
    clock.now_ms += 500
    store.tick()
    assert jobs
    store.delete_topic("T")
    drain()
    assert not [path for path in vfs.files() if "T" in path.parts]
    store.close()


class WatchingVfs(MemoryVfs):
    """Notes which files the device was asked for, and how many were open at once."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Path]] = []
        self.open_max = 0

    def start_sync(self, fd: int, offset: int = 0, size: int = 0) -> None:
        super().start_sync(fd, offset, size)
        self.asked.append(("start", self._open[fd][0]))
        self.open_max = max(self.open_max, len(self._open))

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.asked.append(("sync", self._open[fd][0]))


@pytest.mark.shipped_limits
def test_the_device_begins_with_many_files_before_one_is_waited_for() -> None:
    vfs, clock, model = WatchingVfs(), FakeClock(), Model()
    store = open_store(vfs, clock, segment_bytes_max=1 << 20)
    store.create_topic("T", {})
    before = len(vfs._open)
    model.send(store, [("T", queue_id, 100) for queue_id in range(200)])
    for _ in range(400):
        clock.now_ms += 100
        store.tick()
    queues = [(what, path) for what, path in vfs.asked if "T" in path.parts]
    started = [path for what, path in queues if what == "start"]
    synced = [path for what, path in queues if what == "sync"]
    assert started == synced, "whatever was begun is waited for"
    assert len(set(synced)) == 400, "two files a queue"
    changes = sum(a != b for (a, _), (b, _) in pairwise(queues))
    assert changes < len(synced) // 4, "many are begun before the next one is waited for"
    assert vfs.open_max <= before + FILES_AT_ONCE + 8, "the pool's own files, and a part of these"
    store.close()
