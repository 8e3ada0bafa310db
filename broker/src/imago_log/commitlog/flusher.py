"""The thread that makes the log durable.

Group commit needs no timer: requests that arrive while a sync runs are covered by the next one,
so the device sets the pace. Its inline twin syncs inside the call.

A sync of megabytes keeps the processor that it runs on for most of a millisecond, and the event
loop waits if that is its own. Where nobody waits for the sync, the writeback is started before it,
a part at a time with rests between them.
"""

from __future__ import annotations

import threading
from time import sleep
from typing import TYPE_CHECKING, Protocol

from imago_log.disk.worker import failure_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log.errors import StoreError


REST_SECONDS = 0.0005


class Flusher(Protocol):
    """Makes the log durable when asked; at leisure where it is not `urgent`."""

    def request(self, *, urgent: bool = True) -> None:
        """Ask that all appended so far becomes durable; not `urgent`: leave others the CPU."""

    def stop(self) -> None: ...


class InlineFlusher:
    """Syncs inside `request`."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync

    def request(self, *, urgent: bool = True) -> None:  # noqa: ARG002  nobody can wait
        self._sync()

    def stop(self) -> None:
        """Nothing runs."""


class ThreadFlusher:
    """Syncs in its own thread, as often as the device allows while there are requests."""

    def __init__(
        self, sync: Callable[[Callable[[], bool]], None], failed: Callable[[StoreError], None]
    ) -> None:
        """`sync` gets what lets it rest, and then says whether it may go on to do so."""
        self._sync, self._failed = sync, failed
        # A lock released by one thread and acquired by the other wakes faster than an Event.
        self._wake = threading.Lock()
        self._wake.acquire()
        self._requested = self._urgent = self._at_leisure = self._stopping = False
        self._thread = threading.Thread(target=self._run, name="imago_log-flusher", daemon=True)
        self._thread.start()

    def request(self, *, urgent: bool = True) -> None:
        self._urgent |= urgent
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
                self._at_leisure, self._urgent = not self._urgent, False
                self._sync(self._rest)
            except Exception as error:
                # Without this thread nothing becomes durable any more: the store must stop.
                self._failed(failure_of("flusher", error))
                return

    def _rest(self) -> bool:
        """Leave the processor to others, unless somebody waits for the sync; return that."""
        if self._at_leisure and not self._urgent:
            sleep(REST_SECONDS)
        return self._at_leisure and not self._urgent
