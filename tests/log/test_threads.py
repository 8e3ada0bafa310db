"""The store's threads do not end without a word."""

from __future__ import annotations

import threading

import pytest

from imago_log.commitlog.flusher import ThreadFlusher
from imago_log.disk.worker import ThreadWorker
from imago_log.errors import LogIOError, StoreError

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

    def sync() -> None:
        raise fault

    flusher = ThreadFlusher(sync, told.failed)
    flusher.request()
    assert told.event.wait(20)
    flusher.stop()
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

    def sync() -> None:
        raise refusal

    flusher = ThreadFlusher(sync, told.failed)
    flusher.request()
    assert told.event.wait(20)
    flusher.stop()
    assert told.errors == [refusal]
