"""How long others surely keep our place, counted from what the registry last heard of us.

A session ends no earlier than its time-out after the registry heard us last. A connection that
is cut tells us so late: up to two thirds of the time-out after that moment. So the time is
counted from when the last call was *sent* that has been answered since, by calls of our own that
only the ensemble's leader answers, a few in each time-out. They are made in the event loop: one
that hangs lets its lease end.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from imago_broker.cluster.tree import NodeError, TreeUnavailableError
from imago_broker.model.registry.cluster import RegistryConnection

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.cluster.settings import CoordinatorConfig
    from imago_broker.cluster.tree import NodeTree

CALLS_A_SESSION: Final = 6
FOR_EVER: Final = 1 << 62
"""End of the lease of a broker whose place nobody can take."""
NONE: Final = 0


def monotonic_ms() -> int:
    """Time since the machine started, its sleep included: others go on while it sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Lease:
    """Keeps the lease of one session fresh, and says when it has ended."""

    def __init__(
        self,
        config: CoordinatorConfig,
        tree: NodeTree,
        *,
        now_ms: Callable[[], int],
        on_renewed: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        self._config = config
        self._tree = tree
        self._now_ms = now_ms
        self._on_renewed = on_renewed
        self._on_end = on_end
        self._end_ms = FOR_EVER if config.alone else NONE
        self._timer: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()

    @property
    def end_ms(self) -> int:
        """When it ends, by the clock; NONE: there is none."""
        return self._end_ms

    def revoke(self) -> None:
        """End it now; from any thread. The next call that is answered begins it again."""
        if not self._config.alone:
            self._end_ms = NONE

    def hurry(self) -> None:
        """Make the next call at once."""
        self._wake.set()

    async def keep(self) -> None:
        """Renew the lease until cancelled."""
        seconds = self._config.session_timeout_ms / 1000 / CALLS_A_SESSION
        while not self._config.alone:
            await self.renew()
            self._wake.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def renew(self) -> None:
        """Make one call; without an answer everything stays as it is."""
        if self._config.alone or self._tree.connection is not RegistryConnection.CONNECTED:
            return
        session_id, sent_ms = self._tree.session_id, self._now_ms()
        try:
            await self._tree.sync()
        except (TreeUnavailableError, NodeError):
            return
        if (
            self._tree.session_id != session_id
            or self._tree.connection is not RegistryConnection.CONNECTED
        ):
            return  # of a session that has ended meanwhile
        self._end_ms = max(self._end_ms, sent_ms + self._config.lease_ms)
        if self._timer is None:
            self._watch_end()
        self._on_renewed()

    def stop(self) -> None:
        """Give it up for good."""
        self.revoke()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch_end(self) -> None:
        left_ms = self._end_ms - self._now_ms()
        if left_ms > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(left_ms / 1000, self._watch_end)
        else:
            self._timer = None
            self._end_ms = NONE
            self._on_end()
