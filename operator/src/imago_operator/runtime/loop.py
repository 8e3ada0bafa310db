"""The work: which object is handled when, by whom, and when again.

Any number of events about an object lead to one look. What fails is tried again later and later;
what never returns is found out and fails the process's liveness. Everything that is known of is
reconciled every five minutes or so, whatever was missed.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from imago_operator.errors import BlockedError, InvalidError, OperatorError, RetryError
from imago_operator.runtime.workqueue import WorkQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from imago_operator.reconcile import ObjectKey, Reconciler

log = logging.getLogger(__name__)

WORKERS: Final = 8
GROUP_MAX: Final = 4
DEBOUNCE_S: Final = 0.1
RESYNC_S: Final = 300.0
RESYNC_SPREAD: Final = 0.2
RETRY_MAX_S: Final = 60.0
BLOCKED_S: Final = 30.0
BUG_S: Final = 1.0
BACKOFF_MAX_S: Final = 300.0
STUCK_S: Final = 300.0
"""A look has limits on each of its calls; one that takes longer than this never returns."""
WAITS_S: Final = 7.5
"""Who is to be looked at again after this or later waits for somebody else: ten seconds, or what
is left of them where they are tried again."""
WAITING_PER_S: Final = 30
"""Looks a second at those of a kind that wait: ten thousand do not come in a burst."""
GIVE_UP_S: Final = 5.0
"""How long a stop waits for looks under way."""


class Measures(Protocol):
    """Where figures about the work go."""

    def finished(self, kind: str, outcome: str, seconds: float) -> None:
        """A look is over: done, retry, blocked, invalid or bug."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What the loop does not make up by itself."""

    clock: Callable[[], float]
    """Seconds that never go back."""
    random: Callable[[], float]
    """A number from 0 to 1."""


class Loop:
    """Reconciles objects with the reconcilers of their kinds."""

    def __init__(
        self,
        reconcilers: Iterable[Reconciler],
        sources: Sources,
        measures: Measures,
    ) -> None:
        self._reconcilers: Mapping[str, Reconciler] = {r.kind: r for r in reconcilers}
        self._sources, self._measures = sources, measures
        self._queue = WorkQueue(GROUP_MAX)
        self._known: set[ObjectKey] = set()
        self._failures: dict[ObjectKey, int] = {}
        self._waiting: dict[str, set[ObjectKey]] = {}
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(self._reconcilers)

    @property
    def known(self) -> frozenset[ObjectKey]:
        """Objects that the watches have told of."""
        return frozenset(self._known)

    @property
    def depth(self) -> int:
        """Objects that are due and wait for their turn."""
        return self._queue.waiting

    def running(self) -> Mapping[ObjectKey, float]:
        """Return the objects being handled now, and for how many seconds."""
        now = self._sources.clock()
        return {key: now - since for key, since in self._queue.running().items()}

    def stuck(self) -> list[ObjectKey]:
        """Return objects whose look does not return."""
        return [key for key, seconds in self.running().items() if seconds > STUCK_S]

    def seen(self, key: ObjectKey, *, gone: bool) -> None:
        """Take note of an object of one of our kinds that is there, changed or is gone."""
        if gone:
            self._known.discard(key)
        elif key.kind in self._reconcilers:
            self._known.add(key)
        self.enqueue(key)

    def enqueue(self, key: ObjectKey) -> None:
        """Have an object reconciled soon."""
        if key.kind in self._reconcilers:
            self._queue.add(key, self._sources.clock() + DEBOUNCE_S)
            self._wake.set()

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                self._wake.clear()
                self._start()
                await self._rest()
        finally:
            await self._stop()

    def _start(self) -> None:
        while len(self._tasks) < WORKERS:
            key = self._queue.take(self._sources.clock())
            if key is None:
                return
            task = asyncio.create_task(self._work(key), name=str(key))
            self._tasks.add(task)
            task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._wake.set()

    async def _rest(self) -> None:
        """Wait until something is due, or has come to an end."""
        at = self._queue.next_at()
        delay = None if at is None else max(0.0, at - self._sources.clock())
        if len(self._tasks) >= WORKERS:
            delay = None
        try:
            await asyncio.wait_for(self._wake.wait(), delay)
        except TimeoutError:
            return

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GIVE_UP_S)

    async def _work(self, key: ObjectKey) -> None:
        began = self._sources.clock()
        outcome, again = "cancelled", None
        try:
            outcome, again = await self._look(key)
        finally:
            again, now = self._spread(key, again), self._sources.clock()
            self._measures.finished(key.kind, outcome, now - began)
            self._queue.done(key, None if again is None else now + again)

    async def _look(self, key: ObjectKey) -> tuple[str, float | None]:
        """Return how a look ended, and in how many seconds the next one is due."""
        try:
            again = await self._reconcilers[key.kind].reconcile(key)
        except OperatorError as error:
            return self._failed(key, error)
        except Exception:
            # A mistake of ours with one object must not stop the work on all others.
            log.exception("%s: a defect of the operator", key)
            return "bug", self._backoff(key, BUG_S, BACKOFF_MAX_S)
        self._failures.pop(key, None)
        if key not in self._known:
            return "done", again
        return "done", min(self._resync(), again if again is not None else BACKOFF_MAX_S * 2)

    def _failed(self, key: ObjectKey, error: OperatorError) -> tuple[str, float | None]:
        if isinstance(error, BlockedError):
            log.info("%s waits until %s: %s", key, error.until, error)
            return "blocked", self._backoff(key, BLOCKED_S, BACKOFF_MAX_S)
        if isinstance(error, InvalidError):
            log.info("%s is refused: %s", key, error)
            return "invalid", self._resync()
        delay = error.delay_s if isinstance(error, RetryError) else BUG_S
        log.info("%s is tried again: %s", key, error)
        return "retry", self._backoff(key, delay, max(RETRY_MAX_S, delay))

    def _backoff(self, key: ObjectKey, least: float, most: float) -> float:
        """Return a delay that doubles with each failure in a row, give or take a quarter."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay = min(most, least * 2.0 ** min(count, 20))
        return delay * (0.75 + self._sources.random() / 2)

    def _spread(self, key: ObjectKey, again: float | None) -> float | None:
        """Return a delay that is longer where many of a kind wait."""
        waiting = self._waiting.setdefault(key.kind, set())
        if again is None or not WAITS_S <= again < RESYNC_S * (1 - RESYNC_SPREAD):
            waiting.discard(key)
            return again
        waiting.add(key)
        return max(again, len(waiting) / WAITING_PER_S)

    def _resync(self) -> float:
        return RESYNC_S * (1 + RESYNC_SPREAD * (2 * self._sources.random() - 1))
