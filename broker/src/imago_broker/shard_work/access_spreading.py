"""Users and rules reach all shards: each master exchanges records with the others.

At once after a change, and every few seconds as long as this broker leads, so that a shard that is
new, or was away, gets what it lacks.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

from imago_broker.errors import BrokerError
from imago_broker.model.registry.cluster import shard_name
from imago_broker.shard_work.calls import TIMEOUT, call, own_headers
from imago_log.errors import StoreError
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imago_broker.model.registry.cluster import BrokerRecord
    from imago_broker.service.access.access_drafts import Drafts
    from imago_broker.service.access.access_records import Record
    from imago_broker.shard_work.calls import Caller
    from imago_broker.shard_work.services import ShardServices

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
AWAITED_LOOK_SECONDS = 0.25
"""The same while nobody has answered yet, and clients wait for it."""
PATH = "/admin/v1/access/exchange"
OK = "ok"
NO_MASTER = "it has no master now"
NO_ADMIN = "it has no admin interface to be asked through (admin.enabled); it has to ask by itself"
ROUNDS = 5
"""Exchanges with one shard, each after changes of both sides meanwhile."""
BATCH_BYTES_MAX = 256 << 10
"""Of records in one call; one larger record still goes alone."""


class AccessSpreader:
    """Works for as long as the broker does."""

    def __init__(self, services: ShardServices) -> None:
        self._services = services
        self._access = services.access
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Exchange from now on."""
        self._access.on_change.append(self._changed.set)
        self._access.awaited.on_begin.append(self._changed.set)
        self._changed.set()
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Leave the rest to the next leader."""
        self._access.on_change.remove(self._changed.set)
        self._access.awaited.on_begin.remove(self._changed.set)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def spread(self) -> dict[str, str]:
        """Exchange with all other shards; return how each went: "ok", or why not.

        One that nobody leads now counts, too; users wait for none of those.
        """
        own, view = self._services.config.broker.shard, self._services.coordinator.view()
        others = [shard for shard in view.shards() if shard != own]
        said = await asyncio.gather(*(self._exchange(view.master(shard)) for shard in others))
        if OK in said or not others:
            self._access.awaited.end()
        done = {shard_name(shard): text for shard, text in zip(others, said, strict=True)}
        absent = dict.fromkeys(map(shard_name, {*view.away()} - {own, *others}), NO_MASTER)
        return {shard_name(own): OK, **done, **absent}

    async def pass_on(self, drafts: Drafts) -> None:
        """Have this shard's master make changes. BrokerError: it does not, or knows better."""
        own, view = self._services.config.broker.shard, self._services.coordinator.view()
        master = view.master(own)
        if master is None:
            raise BrokerError(f"{shard_name(own)} has no master now")
        if not master.admin:
            raise BrokerError(
                "users are changed by the shard's master, which has no admin interface to be asked"
                " through: ask the master itself"
            )
        try:
            await self._ask(master, {"drafts": drafts._asdict()})
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise BrokerError(f"the master does not take it: {_reason(error)}") from error

    async def _work(self) -> None:
        told: dict[str, str] = {}
        while True:
            awaited = self._access.awaited.of_shards
            try:
                async with asyncio.timeout(AWAITED_LOOK_SECONDS if awaited else LOOK_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            own, view = self._services.coordinator.registered, self._services.coordinator.view()
            if own is None or not view.leads(own):
                continue
            failed = {name: text for name, text in (await self.spread()).items() if text != OK}
            for name in failed if failed != told else ():
                logger.warning("access_not_spread shard=%s reason=%s", name, failed[name])
            if told and not failed:
                logger.info("access_spread shards=%s", ",".join(told))
            told = failed

    async def _exchange(self, master: BrokerRecord | None) -> str:
        if master is None:
            return NO_MASTER
        if not master.admin:
            return NO_ADMIN
        try:
            for _ in range(ROUNDS):
                answer = await self._ask(master, {"digest": self._access.digest()})
                self._access.merge(answer["records"])
                if self._access.digest() == answer["digest"]:
                    return OK  # of two changes at once both sides have the same one
                await self._send(master, self._access.records())
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError) as error:
            return _reason(error)
        except (BrokerError, StoreError) as error:
            return str(error)
        return "its users change all the time"

    async def _send(self, master: BrokerRecord, records: Sequence[Record]) -> None:
        for batch in batches(records, BATCH_BYTES_MAX):
            await self._ask(master, {"records": batch})

    async def _ask(self, master: BrokerRecord, body: Mapping[str, Any]) -> Any:
        return await exchange_with(self._services, master, body)


async def exchange_with(caller: Caller, master: BrokerRecord, body: Mapping[str, Any]) -> Any:
    """Return a master's answer to records, or to a digest.

    aiohttp.ClientError, TimeoutError, ValueError: it gives none.
    """
    data, headers = orjson.dumps(body), own_headers()
    async with (
        aiohttp.ClientSession(timeout=TIMEOUT) as session,
        call(session, caller, master, "POST", PATH, headers=headers, body=data) as answer,
    ):
        text = await answer.text()
        if answer.status != 200:
            raise WrongError(text[:200])
        return orjson.loads(text)


def not_spread(shards: Mapping[str, str]) -> str:
    """Return what `spread` says of shards that lack a change; "": all have it."""
    failed = "; ".join(f"{name}: {said}" for name, said in shards.items() if said != OK)
    return f"Done here, but not on every shard yet: {failed}." if failed else ""


def batches(records: Sequence[Record], bytes_max: int) -> Iterator[list[Record]]:
    """Cut records into lists of about as many bytes as one call takes."""
    batch: list[Record] = []
    size = 0
    for record in records:
        own = len(orjson.dumps(record))
        if batch and size + own > bytes_max:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += own
    if batch:
        yield batch


def _reason(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__
