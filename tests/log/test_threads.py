"""The store's threads do not end without a word."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from imago_log.commitlog import commit_log
from imago_log.commitlog.commit_log import CommitLog
from imago_log.commitlog.flusher import ThreadFlusher
from imago_log.disk.worker import ThreadWorker
from imago_log.errors import LogIOError, StoreError
from imago_testing.stores.in_memory import DATA
from imago_testing.stores.vfs import MemoryVfs

if TYPE_CHECKING:
    from collections.abc import Callable

FAULTS = [KeyError("a fault of ours"), OSError(5, "not expected here")]


class Told:
    """What a store is told by its threads."""

    def __init__(self) -> None:
        self.errors: list[StoreError] = []
        self.event = threading.Event()

    def failed(self, error: StoreError) -> None:
        self.errors.append(error)
        self.event.set()


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_the_flusher_stops_the_store(fault: Exception) -> None:
    told = Told()

    def sync(_: object) -> None:
        raise fault

    thread = ThreadFlusher(sync, told.failed)
    thread.request()
    assert told.event.wait(20)
    thread.stop()
    assert [str(error) for error in told.errors] == [
        f"the store's flusher failed: {type(fault).__name__}: {fault}"
    ]


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_the_worker_stops_the_store(fault: Exception) -> None:
    told = Told()

    def job() -> None:
        raise fault

    worker = ThreadWorker(told.failed)
    worker.submit(job)
    assert told.event.wait(20)
    worker.drain()
    worker.stop()
    assert [str(error) for error in told.errors] == [
        f"the store's worker failed: {type(fault).__name__}: {fault}"
    ]


def test_what_the_device_refuses_is_told_as_it_is(tmp_path_factory: pytest.TempPathFactory) -> None:
    told, refusal = Told(), LogIOError("sync", tmp_path_factory.getbasetemp(), OSError(5, "EIO"))

    def sync(_: object) -> None:
        raise refusal

    thread = ThreadFlusher(sync, told.failed)
    thread.request()
    assert told.event.wait(20)
    thread.stop()
    assert told.errors == [refusal]


class Steps:
    """What a flusher does, in order; it can be held at the first rest."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.synced, self.resting, self.go_on = (threading.Event() for _ in range(3))
        monkeypatch.setattr("imago_log.commitlog.flusher.sleep", self._sleep)
        self.thread = ThreadFlusher(self._sync, Told().failed)

    def _sleep(self, _: float) -> None:
        self.done.append("rest")
        self.resting.set()
        assert self.go_on.wait(20)

    def _sync(self, rest: Callable[[], bool]) -> None:
        for part in "ab":
            if rest():
                self.done.append(part)
        self.done.append("sync")
        self.synced.set()

    def end(self) -> list[str]:
        assert self.synced.wait(20)
        self.thread.stop()
        return self.done


def test_a_sync_that_nobody_waits_for_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)
    steps.go_on.set()
    steps.thread.request(urgent=False)
    assert steps.end() == ["rest", "a", "rest", "b", "sync"]


def test_a_sync_that_somebody_waits_for_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)
    steps.thread.request()
    assert steps.end() == ["sync"]


def test_rests_end_when_somebody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)
    steps.thread.request(urgent=False)
    assert steps.resting.wait(20)
    steps.thread.request()
    steps.go_on.set()
    assert steps.end()[:2] == ["rest", "sync"]


class StartingVfs(MemoryVfs):
    """Notes what is started."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[tuple[int, int]] = []

    def start_sync(self, fd: int, offset: int = 0, size: int = 0) -> None:
        super().start_sync(fd, offset, size)
        self.started.append((offset, size))


def test_a_sync_that_rests_starts_what_is_not_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "STARTED_BYTES_MIN", 100)
    monkeypatch.setattr(commit_log, "STARTED_PARTS_MAX", 4)
    vfs = StartingVfs()
    vfs.make_folder(DATA / "commitlog")
    log = CommitLog(vfs, DATA / "commitlog", 4096)
    log.load(0)
    log.begin(0, torn=False)
    log.write(bytes(999))
    assert log.sync(lambda: True) == 999
    assert vfs.started == [(0, 250), (250, 250), (500, 250), (750, 249)]
    vfs.started.clear()
    log.write(bytes(251))
    assert log.sync(lambda: len(vfs.started) < 2) == 1250
    assert vfs.started == [(999, 100), (1099, 100)]
    vfs.started.clear()
    log.roll(bytes(100))
    log.write(bytes(70))
    assert log.sync(lambda: True) == 4096 + 70
    assert vfs.started == [(0, 70)], "of the file that is written"
    vfs.started.clear()
    log.write(bytes(70))
    assert log.sync() == 4096 + 140
    assert vfs.started == []
    log.close()
