"""What readers stumble over is looked at by the worker, once, and no more of it than there is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from imago_log import MetaqStatus, ReadStatus
from imago_log.commitlog.log_reader import LogReader
from imago_log.repair.inspecting import Look
from imago_testing.stores.in_memory import DATA, Model, open_store, split_records
from imago_testing.stores.vfs import MemoryVfs

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log import MessageStore
    from imago_log.views.units.consume_queue import ConsumeQueue

FILE = 4096
COUNT = 300


class Read:
    """A store whose messages are read from its files, and the worker's jobs when they are kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.vfs, self.model = MemoryVfs(), Model()
        store = open_store(self.vfs)
        store.create_topic("T", {})
        for _ in range(COUNT):
            self.model.send(store, [("T", 0, 40)])
        store.close()
        self.store: MessageStore = open_store(self.vfs, scrub_interval_ms=0)
        self.jobs: list[Callable[[], None]] = []
        self.passes: list[tuple[int, int]] = []
        """Parts of the log that were searched."""
        run = LogReader.run

        def counted(reader: LogReader, start: int, limit: int) -> tuple[int, str]:
            self.passes.append((start, limit))
            return run(reader, start, limit)

        monkeypatch.setattr(LogReader, "run", counted)

    @property
    def queue(self) -> ConsumeQueue:
        self.store.tail("T", 0)
        found = self.store.components.storage.queues.find("T", 0)
        assert found is not None
        return found

    def keep_jobs(self) -> None:
        inspector: Any = self.store.components.storage.inspector
        inspector._background = SimpleNamespace(submit=self.jobs.append)

    def work(self) -> None:
        jobs = self.jobs.copy()
        self.jobs.clear()
        for job in jobs:
            job()

    def zero_units(self, start: int, end: int) -> None:
        for name, size in (("consumequeue", 20), ("consumequeue_v", 12)):
            path = DATA / name / "T" / "0" / f"{0:020d}"
            content = bytearray(self.vfs.content(path))
            content[start * size : end * size] = b"\x11" * ((end - start) * size)
            self.vfs.names_now[path].content[:] = content

    def damage(self, number: int) -> None:
        place = self.model.sent[number].place
        path = DATA / "commitlog" / f"{place - place % FILE:020d}"
        self.vfs.flip_bit(path, place % FILE + 95)
        self.store.components.storage.recent.clear()

    def pulled(self, offset: int, count: int = 32) -> list[bytes]:
        result = self.store.read("T", 0, offset, messages_max=count, bytes_max=1 << 20)
        assert result.next_offset > offset
        return [record.body for record in split_records(result.body)]


def test_units_below_the_logs_start_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Read(monkeypatch)
    store, queue = read.store, read.queue
    gone = store.log_end - store.log_end % FILE
    store.request_sync()
    store.components.storage.log.delete_before(gone)
    first = queue.unit(0)[0]
    assert store.components.storage.inspector.look(first, queue, 0) is Look.NOTHING
    assert read.passes == []
    live = [sent for sent in read.model.sent if sent.place >= gone]
    assert read.pulled(live[0].offset, 100) == [sent.body for sent in live]
    store.close(clean=False)


@pytest.mark.shipped_limits
def test_all_wrong_units_of_a_read_are_put_right_in_one_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = Read(monkeypatch)
    read.store.components.storage.recent.clear()
    _ = read.queue
    read.zero_units(20, 220)
    bodies = [sent.body for sent in read.model.sent]
    found = list[bytes]()
    while len(found) < COUNT:
        found += read.pulled(len(found))
    assert found == bodies
    assert len(read.passes) <= 2
    read.store.close()


@pytest.mark.parametrize("what", ["unit", "record"])
def test_a_reader_comes_again_while_the_worker_looks(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    read = Read(monkeypatch)
    store = read.store
    store.components.storage.recent.clear()
    _ = read.queue
    if what == "unit":
        read.zero_units(40, 41)
    else:
        read.damage(40)
    read.keep_jobs()
    position = read.model.sent[40].position
    for _ in range(3):
        result = store.read("T", 0, 40, messages_max=4, bytes_max=1 << 20)
        assert (result.status, result.next_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, 40)
        assert result.body == b""
        if what == "record":
            got = store.read_positions("T", 0, position, 4000)
            assert (got.status, got.position) == (MetaqStatus.AT_END, position)
        store.tick()
    assert len(read.jobs) == 1, "it is looked at once"
    assert read.passes == []
    read.work()
    bodies = [sent.body for sent in read.model.sent]
    found = read.pulled(40, 4)
    assert bodies[41:44] == [body for body in found if body in bodies[41:44]]
    assert (bodies[40] in found) == (what == "unit")
    assert store.damaged == (what == "record")
    store.close()


def test_what_a_job_found_counts_though_nobody_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Read(monkeypatch)
    read.damage(40)
    read.keep_jobs()
    assert read.store.record_at(read.model.sent[40].place) is None
    read.work()
    assert not read.store.damaged_ranges()
    read.store.tick()
    assert len(read.store.damaged_ranges()) == 1
    read.store.close()


def test_no_question_from_the_middle_of_a_record_finds_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A follower may ask from anywhere: what is not known to be damaged is not said to be."""
    read = Read(monkeypatch)
    read.keep_jobs()
    store, place = read.store, read.model.sent[9].place
    for at in range(place - 40, place + 40):
        assert not store.verify(at, store.log_end)
        read.work()
        for _ in range(4):
            store.tick()
    assert store.damaged_ranges() == ()
    store.close()


def test_damage_that_a_question_meets_is_noted_once_it_was_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = Read(monkeypatch)
    read.damage(40)
    read.keep_jobs()
    store, sent = read.store, read.model.sent[40]
    assert not store.verify(sent.place, store.log_end)
    read.work()
    store.tick()
    assert [(each.start, each.end) for each in store.damaged_ranges()] == [(sent.place, sent.end)]
    store.close()
