"""One thing as every shard, or every broker, shows it: what a page about a whole cluster needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_broker.admin.access import require
from imago_broker.admin.calls.guard import json_response
from imago_broker.admin.errors import AdminError, not_found
from imago_broker.admin.lags import retries_of
from imago_broker.admin.resources import groups, topics
from imago_broker.admin.resources.cluster_lists import leads
from imago_broker.admin.resources.everywhere import ask_members, ask_others
from imago_broker.admin.resources.status import describe
from imago_broker.admin.shards.shards import is_forwarded, no_master
from imago_broker.model.access.access import READ, AccessKind, Need
from imago_broker.model.names import OWN_GROUPS
from imago_broker.model.registry.cluster import shard_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from imago_broker.admin.services import AdminServices


async def topic(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/cluster/topics/{topic}: the topic as each shard shows it that has it.

    With the `groups` that are known there to read it, as far as the caller may see them.
    `missing`: shards that are away or did not answer, which may have it, too.
    """
    name = request.match_info["topic"]
    known = services.coordinator.view().topics

    async def here() -> dict[str, Any]:
        shown = await topics.described(services, name)
        readers = {*services.offsets.of_topic(name), *services.offsets.readers.of_topic(name)}
        readers.update(services.subscribed().get(name, ()))
        seen = [each for each in readers - OWN_GROUPS if _may_see(services, request, each)]
        return shown | {"groups": sorted(seen)}

    found = await _of_shards(services, request, here)
    if not (found["items"] or name in known or is_forwarded(request)):
        raise not_found("topic", name, known, "on any shard")
    return json_response(found)


async def group(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/cluster/groups/{group}: the group as each shard shows it that knows it.

    `subscribed`: the topics that its connected consumers read. `retries`: how many messages wait
    to be tried again, which no lag has. `reader`: which member reads a queue, where the group is
    behind here and all members tell it (`readers_told`).
    """
    name = request.match_info["group"]

    async def here() -> dict[str, Any]:
        shown = groups.described(services, name)
        read = sorted(each for each, names in services.subscribed().items() if name in names)
        retries = retries_of(await services.waiting.retries(), name)
        told = await _with_readers(services, name, shown)
        return shown | {"subscribed": read, "retries": retries, "readers_told": told}

    found = await _of_shards(services, request, here)
    if not (found["items"] or found["missing"] or is_forwarded(request)):
        raise not_found("group", name, groups.names(services), "on any shard")
    return json_response(found)


async def _with_readers(services: AdminServices, name: str, shown: dict[str, Any]) -> bool:
    """Say of each queue who reads it, as members tell; False: they do not, or nobody asked."""
    queues = [(topic, each) for topic, listed in shown["topics"].items() for each in listed]
    if not any(queue["lag"] for _, queue in queues):
        return False
    readers = await services.readers(name)
    if readers is None:
        return False
    for topic, queue in queues:
        queue["reader"] = readers.get((topic, queue["queue"]))
    return True


async def brokers(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/cluster/brokers: the state of every member of every shard, from itself.

    `missing`: shards that are away, and members that did not answer.
    """
    own = [describe(services)]
    if is_forwarded(request):
        return json_response({"items": own})
    others = await ask_members(services, request)
    items = sorted(own + others.items, key=lambda item: (item["shard"], item["replica"]))
    return json_response({"items": items, "missing": others.missing})


def _may_see(services: AdminServices, request: web.Request, group: str) -> bool:
    try:
        require(services, request, (Need(READ, AccessKind.GROUP, group),))
    except AdminError as error:
        if error.status != 403:
            raise
        return False
    return True


async def _of_shards(
    services: AdminServices, request: web.Request, here: Callable[[], Awaitable[dict[str, Any]]]
) -> dict[str, Any]:
    """Return what the masters of all shards show, each with its `shard`."""
    items = []
    if leads(services):
        try:
            items.append(await here() | {"shard": shard_name(services.config.broker.shard)})
        except AdminError as error:
            if error.status != 404:
                raise
    if is_forwarded(request):
        if not leads(services):  # the asker lists the shard as one that did not answer
            raise no_master(services.config.broker.shard)
        return {"items": items, "missing": []}
    others = await ask_others(services, request, own_too=not leads(services))
    items = sorted(items + others.items, key=lambda item: str(item["shard"]))
    return {"items": items, "missing": others.missing}
