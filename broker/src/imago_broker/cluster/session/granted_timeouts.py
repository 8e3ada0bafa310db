"""Which ZooKeeper servers grant the session time-out that leases are computed from.

Each server has a configuration of its own, and the one that a session is opened at decides. So all
are asked before any is used: a wrong answer at the start is an error, one that comes later keeps
that server out, and a server that has not answered yet is not used until it has.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from imago_broker.cluster.session.handshake import granted_session_timeout_ms
from imago_broker.cluster.tree import TreeConfigurationError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)

Server = tuple[str, int]

REACH_SECONDS = 2.0
"""How long a server may take to answer."""
AGAIN_SECONDS = 0.2
"""Pause where none has answered yet."""
LATER_SECONDS = 5.0
"""Pause before those that did not answer are asked again."""


class Grants:
    """What the servers of an ensemble have answered."""

    def __init__(
        self,
        servers: Sequence[Server],
        *,
        wanted_ms: int,
        context: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        """`context`: what connections are made with; None: without TLS."""
        self.approved: list[Server] = []
        """Servers that grant what is wanted, in the order they were named."""
        self._servers = list(servers)
        self.problem = ""
        """Why the last server that did not answer did not."""
        self._wanted_ms = wanted_ms
        self._context = context
        self._told: set[tuple[Server, str]] = set()

    async def first(self) -> None:
        """Ask all; return when one grants what is wanted and none that answers grants another."""
        while not self.approved:
            for problem in (await self._ask_all()).values():
                raise TreeConfigurationError(problem)
            if not self.approved:
                await asyncio.sleep(AGAIN_SECONDS)

    async def others(self, found: Callable[[], None]) -> None:
        """Ask the rest until all are approved; `found` is called when there are more."""
        while len(self.approved) < len(self._servers):
            await asyncio.sleep(LATER_SECONDS)
            before = len(self.approved)
            for server, problem in (await self._ask_all()).items():
                self._tell(logging.ERROR, server, f"is not used: {problem}")
            if len(self.approved) > before:
                found()

    async def _ask_all(self) -> dict[Server, str]:
        """Ask those that are not approved; return what is wrong with any."""
        asked = [server for server in self._servers if server not in self.approved]
        granted = dict(zip(asked, await asyncio.gather(*map(self._ask, asked)), strict=True))
        self.approved = [
            s for s in self._servers if granted.get(s, self._wanted_ms) == self._wanted_ms
        ]
        return {
            (host, port): f"ZooKeeper at {host}:{port} grants sessions of {ms} ms, not the "
            f"{self._wanted_ms} ms of zookeeper.session_timeout_ms: set that to a value "
            "between 2 and 20 times its tickTime, which is the same on all servers"
            for (host, port), ms in granted.items()
            if ms not in (None, self._wanted_ms)
        }

    async def _ask(self, server: Server) -> int | None:
        try:
            async with asyncio.timeout(REACH_SECONDS):
                return await granted_session_timeout_ms(
                    *server, wanted_ms=self._wanted_ms, context=self._context()
                )
        except (OSError, TimeoutError) as error:
            self.problem = str(error)
            self._tell(logging.INFO, server, f"unreachable: {error}")
            return None

    def _tell(self, level: int, server: Server, what: str) -> None:
        if (server, what) not in self._told:
            self._told.add((server, what))
            logger.log(level, "zookeeper_server host=%s port=%s: %s", *server, what)
