"""The same question to brokers of all shards, and which of them have not answered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp

from imago_broker.admin.shards.shards import forwarded_headers
from imago_broker.core.away import AwayShard, away
from imago_broker.model.registry.cluster import shard_name
from imago_broker.shard_work.calls import call

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.model.registry.cluster import BrokerRecord

TIMEOUT = aiohttp.ClientTimeout(total=5)


@dataclass(frozen=True, slots=True)
class OthersAnswer:
    """What others answered."""

    items: list[dict[str, Any]]
    missing: list[dict[str, object]]
    """Shards that are away or did not answer."""


async def ask_others(
    services: AdminServices,
    request: web.Request,
    *,
    own_too: bool = False,
    nothing: Collection[int] = (),
) -> OthersAnswer:
    """Pass a list's request on; `own_too`: also to the master of our shard, since we are not it.

    `nothing`: the statuses by which a master says that it has nothing of what was asked for.
    """
    view, own = services.coordinator.view(), services.config.broker.shard
    shards = [n for n in view.shards() if n != own or own_too]
    masters = [master for n in shards if (master := view.master(n)) is not None]
    found = await _ask_each(services, request, masters, nothing)
    absent = {each.shard: each for each in away(view)}
    absent |= {each.shard: each for each in found if isinstance(each, AwayShard)}
    return OthersAnswer(_items(found), [absent[number].to_json() for number in sorted(absent)])


async def ask_members(
    services: AdminServices, request: web.Request, *, method: str = ""
) -> OthersAnswer:
    """Pass a request on to every other broker, whatever its role; each answers a list.

    `method`: with another one than it came with.
    """
    view, own = services.coordinator.view(), services.uuid
    members = [each for n in view.shards() for each in view.members(n) if each.uuid != own]
    found = await _ask_each(services, request, members, (), method, leads=False)
    silent = [each.to_json() for each in found if isinstance(each, AwayShard)]
    return OthersAnswer(_items(found), [each.to_json() for each in away(view)] + silent)


def _items(found: Iterable[list[dict[str, Any]] | AwayShard]) -> list[dict[str, Any]]:
    return [item for items in found if not isinstance(items, AwayShard) for item in items]


async def _ask_each(
    services: AdminServices,
    request: web.Request,
    brokers: Iterable[BrokerRecord],
    nothing: Collection[int],
    method: str = "",
    *,
    leads: bool = True,
) -> list[list[dict[str, Any]] | AwayShard]:
    headers, path = forwarded_headers(services, request), request.path_qs
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        asked = method or request.method
        ask = partial(_ask, session, services, asked, path, headers, nothing, leads)
        return await asyncio.gather(*(ask(each) for each in brokers))


async def _ask(
    session: aiohttp.ClientSession,
    services: AdminServices,
    method: str,
    path: str,
    headers: Mapping[str, str],
    nothing: Collection[int],
    leads: bool,
    broker: BrokerRecord,
) -> list[dict[str, Any]] | AwayShard:
    who = "master" if leads else "member"
    place = f"{shard_name(broker.shard)}: its {who} at {broker.host}:{broker.admin}"
    if not broker.admin:
        return AwayShard(broker.shard, None, f"{place} has no admin interface")
    try:
        async with call(session, services, broker, method, path, headers=headers) as answer:
            if answer.status in nothing:
                return []
            if answer.status != 200:
                return AwayShard(broker.shard, None, f"{place} answers {answer.status}")
            items: list[dict[str, Any]] = (await answer.json())["items"]
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return AwayShard(broker.shard, None, f"{place} does not answer: {type(error).__name__}")
    return items
