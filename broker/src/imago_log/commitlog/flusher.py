"""The threads of a store: one that makes the log durable, one for slow housekeeping.

Group commit needs no timer: requests that arrive while a sync runs are covered by the next one,
so the device sets the pace. Both have an inline twin that works inside the call.
"""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

from imago_log.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)


class Flusher(Protocol):
    """Makes the log durable when asked."""

    def request(self) -> None: ...
    def stop(self) -> None: ...


class Worker(Protocol):
    """Runs jobs one after another, in order."""

    def submit(self, job: Callable[[], None]) -> None: ...
    def drain(self) -> None:
        """Return when every job submitted before is done."""

    def stop(self) -> None: ...


class InlineFlusher:
    """Syncs inside `request`."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync

    def request(self) -> None:
        self._sync()

    def stop(self) -> None:
        """Nothing runs."""


class ThreadFlusher:
    """Syncs in its own thread, as often as the device allows while there are requests."""

    def __init__(self, sync: Callable[[], None], failed: Callable[[StoreError], None]) -> None:
        self._sync, self._failed = sync, failed
        # A lock released by one thread and acquired by the other wakes faster than an Event.
        self._wake = threading.Lock()
        self._wake.acquire()
        self._requested = self._stopping = False
        self._thread = threading.Thread(target=self._run, name="imago_log-flusher", daemon=True)
        self._thread.start()

    def request(self) -> None:
        if not self._requested:
            self._requested = True
            self._wake.release()

    def stop(self) -> None:
        """Let the running sync end, then end the thread."""
        self._stopping = True
        self.request()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            self._requested = False  # before the end is read: a later request makes a new round
            if self._stopping:
                return
            try:
                self._sync()
            except Exception as error:
                # Without this thread nothing would ever be durable again: the store must stop.
                self._failed(_failure("flusher", error))
                return


class InlineWorker:
    """Runs each job inside `submit`."""

    def submit(self, job: Callable[[], None]) -> None:
        job()

    def drain(self) -> None:
        """Nothing waits."""

    def stop(self) -> None:
        """Nothing runs."""


class ThreadWorker:
    """Runs jobs in one thread. The first failure ends it: later jobs are dropped."""

    def __init__(self, failed: Callable[[StoreError], None]) -> None:
        self._failed = failed
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._broken = False
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

    def stop(self) -> None:
        """Do what was submitted, then end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as error:
                self._failed(_failure("worker", error))
                return


def _failure(thread: str, error: Exception) -> StoreError:
    """Return what ends the store: the device's refusal, or a fault of ours."""
    if isinstance(error, StoreError):
        return error
    logger.error("store.thread-failed thread=%s", thread, exc_info=error)
    return StoreError(f"the store's {thread} failed: {type(error).__name__}: {error}")
