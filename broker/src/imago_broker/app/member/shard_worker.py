"""The work among shards as the broker starts and stops it."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

from imago_broker.errors import BrokerError

if TYPE_CHECKING:
    from imago_broker.service.access.access_drafts import Drafts
    from imago_broker.shard_work.services import ShardServices
    from imago_broker.shard_work.work import ShardWork


class ShardWorker:
    """Works once it is started; what asks it before that is told so, or need not wait for it."""

    def __init__(self) -> None:
        self._work: ShardWork | None = None

    @property
    def work(self) -> ShardWork:
        """What runs, once started."""
        assert self._work is not None, "started before anything that uses it"
        return self._work

    async def start(self, services: ShardServices) -> None:
        """Work from now on.

        The library for HTTP is loaded here, beside the event loop: clients need not wait for it.
        """
        await asyncio.to_thread(importlib.import_module, "imago_broker.shard_work.work")
        from imago_broker.shard_work.work import ShardWork  # noqa: PLC0415  loaded by now

        self._work = ShardWork(services)
        self._work.start()

    async def stop(self) -> None:
        """Work no more."""
        if self._work is not None:
            await self._work.stop()

    async def pass_users_on(self, drafts: Drafts) -> None:
        """Have the shard's master change users as drafted. BrokerError: it does not."""
        if self._work is None:
            raise BrokerError("users are changed by the shard's master, and this broker starts")
        await self._work.users.pass_on(drafts)

    async def spread_users(self) -> None:
        """Have all other shards take users over. BrokerError: one has not."""
        if self._work is None:
            return  # the start does it
        from imago_broker.shard_work.access_spreading import not_spread  # noqa: PLC0415  loaded by now

        if problem := not_spread(await self._work.users.spread()):
            raise BrokerError(f"{problem} It is tried again by itself.")
