"""A process without a log knows the cluster's users: it copies what a shard's master has.

A name service of its own asks every few seconds. While nobody answers, it serves whom it knows, but
not for ever: somebody may have been deleted meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

import aiohttp

from imago_broker.model.registry.cluster import shard_name
from imago_broker.shard_work.access_spreading import exchange_with
from imago_broker.shard_work.signing import admin_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.model.registry.cluster import ClusterView
    from imago_broker.service.access.access import AccessService
    from imago_broker.service.access.copied_records import CopiedRecords
    from imago_broker.shard_work.calls import Caller

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
TRUSTED_MS = 60_000
"""How long users are served that no master has confirmed."""
STARTING_MS = 15_000
"""So long after its start it is no news that no master has answered yet: brokers start, too."""
NOT_ASKED = "no users are known here yet"
NO_TOKEN = "no users are known here: the name service needs the brokers' admin.token_file"  # noqa: S105

NO_MASTER = "no shard has a master: start a broker of this cluster, which brings its users"
NOT_TOLD = (
    "does not tell its users: compare its admin.token_file, tls.calls and clock with these here"
)


class Closable(Protocol):
    """What lets requests in."""

    closed: str
    """Why it lets nobody in; "": it does."""


class AccessFollower:
    """Keeps a copy like the masters' records, and closes the gate without one."""

    def __init__(
        self,
        caller: Caller,
        view: Callable[[], ClusterView],
        records: CopiedRecords,
        access: AccessService,
        gate: Closable,
    ) -> None:
        """`access` reads `records`."""
        self._caller, self._view = caller, view
        self._records, self._access, self._gate = records, access, gate
        self._began_ms = caller.clock.monotonic_ms()
        self._confirmed_ms: int | None = None
        self._said = ""
        self._task: asyncio.Task[None] | None = None
        gate.closed = NOT_ASKED

    def start(self) -> None:
        """Follow from now on."""
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Follow no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def look(self) -> None:
        """Ask the masters, one after the other, until one answers."""
        now_ms = self._caller.clock.monotonic_ms()
        if not admin_token(self._caller.config.admin.token_file):
            self._close(NO_TOKEN)
            return
        failed = await self._ask()
        if failed is None:
            self._confirmed_ms, self._said = now_ms, ""
            self._gate.closed = ""
        elif self._confirmed_ms is None:
            told = now_ms - self._began_ms >= STARTING_MS
            self._close(f"{NOT_ASKED}: {failed}", told=told)
        elif now_ms - self._confirmed_ms >= TRUSTED_MS:
            self._close(f"users are too old here: {failed}")

    async def _ask(self) -> str | None:
        """Return None once the copy is like a master's, else why none answers."""
        view, failed = self._view(), NO_MASTER
        for shard in view.shards():
            master = view.master(shard)
            if master is None:
                continue
            try:
                answer = await exchange_with(
                    self._caller, master, {"digest": self._access.digest()}
                )
                if answer["digest"] != self._access.digest():
                    self._records.replace(answer["records"])
            except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError) as error:
                logger.debug("access_not_followed shard=%d error=%s", shard, error)
                failed = f"{shard_name(shard)} {NOT_TOLD}"
                continue
            return None
        return failed

    def _close(self, why: str, *, told: bool = True) -> None:
        self._gate.closed = why
        if told and why != self._said:
            self._said = why
            logger.warning("access_closed reason=%s", why)

    async def _work(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)
