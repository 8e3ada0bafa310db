"""How we stand with the registry: what the session says, how long the lease lasts, who must know.

CONNECTED is said only once it is sure that nothing happened to our registration meanwhile: after
each reconnection the writer reads it first.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from imago_broker.cluster.session.session_lease import Lease
from imago_broker.cluster.session.watchdog import LoopWatchdog
from imago_broker.model.registry.cluster import RegistryConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from imago_broker.cluster.settings import CoordinatorConfig
    from imago_broker.cluster.tree import NodeTree

logger = logging.getLogger(__name__)

T = TypeVar("T")


class LeasedSession:
    """The session's state as told to others, its lease, and the watch over the event loop."""

    def __init__(
        self,
        config: CoordinatorConfig,
        tree: NodeTree,
        *,
        now_ms: Callable[[], int],
        on_connected: Callable[[], None],
        on_doubt: Callable[[], None],
    ) -> None:
        """`on_connected`: read everything again; `on_doubt`: read our registration, then
        call `verified`."""
        self._config = config
        self._tree = tree
        self._on_connected = on_connected
        self._on_doubt = on_doubt
        self._state = RegistryConnection.LOST
        self._callbacks: list[Callable[[RegistryConnection], None]] = []
        self._session_id = 0
        self._lease = Lease(
            config, tree, now_ms=now_ms, on_renewed=self._renewed, on_end=self._lease_ended
        )
        self._watchdog: LoopWatchdog | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def state(self) -> RegistryConnection:
        """The state that was reported last."""
        return self._state

    @property
    def lease_end_ms(self) -> int:
        """When the lease ends; 0: there is none."""
        return self._lease.end_ms

    def on_state(self, callback: Callable[[RegistryConnection], None]) -> None:
        """Have the callback told each change."""
        self._callbacks.append(callback)

    async def start(self) -> None:
        """Take a first lease in the session that has just been opened, and keep it fresh."""
        await self._lease.renew()
        if self._tree.connection is RegistryConnection.CONNECTED:
            self.verified()
        if self._config.alone:
            return
        self._keeping = asyncio.create_task(self._lease.keep())
        self._watchdog = LoopWatchdog(
            asyncio.get_running_loop(),
            late_seconds=self._config.lease_ms / 1000 / 3,
            dead_seconds=self._config.session_timeout_ms / 1000,
            on_late=self._lease.revoke,
            on_dead=self._tree.abandon,
        )
        self._watchdog.start()

    async def stop(self) -> None:
        """Stop watching; what the session's end says is still told."""
        if self._watchdog is not None:
            self._watchdog.stop()
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        self._lease.stop()

    def verified(self) -> None:
        """What this session has registered stands, or it has registered nothing."""
        if self._lease.end_ms and self._tree.connection is RegistryConnection.CONNECTED:
            self._become(RegistryConnection.CONNECTED)

    def fence(self) -> None:
        """Write and promise no more: another process has our place."""
        self._lease.revoke()
        self._become(RegistryConnection.FENCED)

    def connection_changed(self, connection: RegistryConnection) -> None:
        """Take what the tree says of its session."""
        if connection is RegistryConnection.CONNECTED:
            if self._session_id not in (0, self._tree.session_id):
                # Whatever was reported of the end of the former session: it has ended.
                self._session_ended()
            self._session_id = self._tree.session_id
            self._lease.hurry()
            self._on_connected()
            self._on_doubt()
        elif connection is RegistryConnection.LOST:
            self._session_ended()
        elif self._state is RegistryConnection.CONNECTED:
            self._become(connection)  # one whose lease has run out hears nothing weaker

    def _session_ended(self) -> None:
        self._lease.revoke()
        self._become(RegistryConnection.LOST)

    def _renewed(self) -> None:
        if self._state is not RegistryConnection.CONNECTED:
            self._on_doubt()

    def _lease_ended(self) -> None:
        # ZooKeeper says that a session is lost only to those it can reach.
        self._become(RegistryConnection.LOST)

    def _become(self, state: RegistryConnection) -> None:
        # From FENCED no way leads back.
        if state is not self._state and self._state is not RegistryConnection.FENCED:
            self._state = state
            logger.info("registry_session state=%s", state)
            tell(self._callbacks, state)


def tell(callbacks: Iterable[Callable[[T], None]], value: T) -> None:
    """Call all; one that fails keeps nobody else from hearing of it."""
    for callback in callbacks:
        try:
            callback(value)
        except Exception:
            logger.exception("registry_callback_failed")
