"""Writes what our process wants in the registry, and tells whoever waits what became of it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.cluster.session.wakeups import RETRY_SECONDS
from imago_broker.ports import CoordinatorUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_broker.cluster.desired.keeper import Keeper
    from imago_broker.cluster.preparation import Preparation
    from imago_broker.cluster.session.leased_session import LeasedSession
    from imago_broker.cluster.session.wakeups import Wake
    from imago_broker.cluster.settings import CoordinatorConfig
    from imago_broker.cluster.snapshot_reader import SnapshotReader
    from imago_broker.ports import CoordinatorError

logger = logging.getLogger(__name__)

FAILURES_LOGGED_MAX = 5


@dataclass(slots=True)
class _Waiter:
    keys: frozenset[str]
    done: asyncio.Future[None]


class DesiredWriter:
    """Runs passes of the keeper, one at a time."""

    def __init__(
        self,
        config: CoordinatorConfig,
        keeper: Keeper,
        reader: SnapshotReader,
        preparation: Preparation,
        session: LeasedSession,
        wake: Wake,
    ) -> None:
        """`wake` is this writer's own."""
        self._timeout_seconds = config.operation_timeout_ms / 1000
        self._keeper = keeper
        self._reader = reader
        self._preparation = preparation
        self._session = session
        self._wake = wake
        self._waiters: list[_Waiter] = []
        self._failed: dict[str, CoordinatorError] = {}

    async def written(self, keys: Iterable[str], *, extra_seconds: float = 0) -> None:
        """Wait until a pass that starts from now on has dealt with these keys of the keeper."""
        done = asyncio.get_running_loop().create_future()
        waiter = _Waiter(frozenset(keys), done)
        self._waiters.append(waiter)
        self._wake.set()
        seconds = self._timeout_seconds + extra_seconds
        try:
            async with asyncio.timeout(seconds):
                await done
        except TimeoutError as error:
            raise CoordinatorUnavailableError(
                f"not written within {seconds:g} s; it will be when the registry answers"
            ) from error
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    async def step(self) -> None:
        """One pass."""
        waiters, self._waiters = self._waiters, []
        try:
            await self._verify()
            if self._preparation.needed:
                await self._preparation.prepare(self._reader.view.cluster_id)
                # Nothing is written by what was known before the connection was lost.
                await self._reader.refresh_states()
            written, failures = await self._keeper.settle()
            # What watches have told of these nodes so far, this reading will see.
            self._reader.have_read(written)
            await self._reader.refresh(written)
        except BaseException:
            self._waiters = waiters + self._waiters
            # Whatever it was: perhaps somebody deleted what we stand on.
            self._preparation.forget()
            raise
        self._report(failures)
        for waiter in waiters:
            if waiter.done.done():
                continue
            errors = [failures[key] for key in sorted(waiter.keys & failures.keys())]
            if errors:
                waiter.done.set_exception(errors[0])
            else:
                waiter.done.set_result(None)

    async def _verify(self) -> None:
        await self._keeper.verify()
        if self._keeper.is_fenced:
            self._session.fence()
        else:
            self._session.verified()

    def _report(self, failures: dict[str, CoordinatorError]) -> None:
        fresh = sorted(failures.keys() - self._failed.keys())
        for key in fresh[:FAILURES_LOGGED_MAX]:
            logger.warning("registry_write_failed what=%s reason=%s", key, failures[key])
        if len(fresh) > FAILURES_LOGGED_MAX:
            logger.warning("registry_writes_failed more=%d", len(fresh) - FAILURES_LOGGED_MAX)
        self._failed = failures
        if failures and not self._keeper.is_fenced:
            self._wake.later(RETRY_SECONDS)
