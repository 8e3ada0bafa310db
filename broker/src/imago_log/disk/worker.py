"""Slow work of a store in the background: one thread, jobs in order."""

from __future__ import annotations

import logging
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

from imago_log.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log.disk.space import Space

logger = logging.getLogger(__name__)


class Worker(Protocol):
    """Runs jobs one after another, in order."""

    def submit(self, job: Callable[[], None]) -> None: ...
    def drain(self) -> None:
        """Return when every job submitted before is done."""

    def leave_to_others(self, share: float) -> None:
        """Rest until the job that calls has used at most this share of the time since it did."""

    def stop(self) -> None: ...


class InlineWorker:
    """Runs each job inside `submit`."""

    def submit(self, job: Callable[[], None]) -> None:
        job()

    def drain(self) -> None:
        """Nothing waits."""

    def leave_to_others(self, share: float) -> None:
        """Nobody waits."""

    def stop(self) -> None:
        """Nothing runs."""


class ThreadWorker:
    """Runs jobs in one thread. The first failure ends it: later jobs are dropped."""

    def __init__(self, failed: Callable[[StoreError], None]) -> None:
        self._failed = failed
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._broken = False
        self._rested = 0.0
        """Processor time of the thread when it last began to work."""
        self._thread = threading.Thread(target=self._run, name="imago_log-worker", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    def drain(self) -> None:
        done = threading.Event()
        self._jobs.put(done.set)
        while not done.wait(0.05):
            if not self._thread.is_alive():
                return

    def leave_to_others(self, share: float) -> None:
        worked = time.thread_time() - self._rested
        time.sleep(worked * (1 - share) / share)
        self._rested = time.thread_time()

    def stop(self) -> None:
        """Do what was submitted, then end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._rested = time.thread_time()
            try:
                job()
            except Exception as error:
                self._failed(failure_of("worker", error))
                return


class Background:
    """The worker of one store, which begins when the store is open: before, jobs run at once."""

    def __init__(self, space: Space, make: Callable[[], Worker]) -> None:
        self._space, self._make = space, make
        self._worker: Worker = InlineWorker()

    def start(self) -> None:
        """Hand jobs to the worker from now on."""
        self._worker = self._make()

    def submit(self, job: Callable[[], None]) -> None:
        """Run a job that must not fail."""
        self._worker.submit(job)

    def submit_waiting(self, job: Callable[[], None]) -> None:
        """Run a job; leave it undone while the disk has no room."""
        self._worker.submit(self._space.awaiting(job))

    def leave_to_others(self, share: float) -> None:
        """Rest until the job that calls has used at most this share of the time since it did."""
        self._worker.leave_to_others(share)

    def drain(self) -> None:
        """Return when every job submitted before is done."""
        self._worker.drain()

    def stop(self) -> None:
        """Do what was submitted, then end the thread."""
        self._worker.stop()


def failure_of(thread: str, error: Exception) -> StoreError:
    """Return the error that ends the store: the device's refusal, or a bug."""
    if isinstance(error, StoreError):
        return error
    logger.error("store.thread-failed thread=%s", thread, exc_info=error)
    return StoreError(f"the store's {thread} failed: {type(error).__name__}: {error}")
