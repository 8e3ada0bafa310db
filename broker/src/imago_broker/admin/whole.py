"""Lists of the whole cluster at any broker: topics as the registry has them, groups of all shards.

For the operator of many topics and groups: one call answers for a thousand.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp

from imago_broker.admin import metaq_groups
from imago_broker.admin.calls import call
from imago_broker.admin.groups import names as groups_here
from imago_broker.admin.guard import json_response
from imago_broker.admin.lags import lag_of, sums
from imago_broker.admin.leadership import unavailable
from imago_broker.admin.paging import LIMIT, LIMIT_MAX, number, page
from imago_broker.admin.shards import forwarded_headers, is_forwarded
from imago_broker.model.cluster import RegistryConnection, shard_name
from imago_broker.model.names import is_system
from imago_broker.ports import CoordinatorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.model.cluster import BrokerRecord, ClusterView, TopicPlacement

TIMEOUT = aiohttp.ClientTimeout(total=5)
NAMES_MAX = 100


async def topics(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/cluster/topics: every topic with its settings and its queues on each shard.

    As the registry has them, so no master is asked; the broker's own only with `?system=true`.
    Without `zooKeeperConnected` it is what the registry had when this broker saw it last.
    """
    view = services.coordinator.view()
    system = request.query.get("system") == "true"
    listed = sorted(name for name in view.topics if system or not is_system(name))
    connected = services.coordinator.state is RegistryConnection.CONNECTED
    shown = page(listed, request.query, lambda n: placed(view, view.topics[n]))
    return json_response(shown | {"zooKeeperConnected": connected})


def placed(view: ClusterView, topic: TopicPlacement) -> dict[str, Any]:
    """One topic; `online`: whether its shard has a master now."""
    return {
        "name": topic.name,
        "order": topic.order,
        "dialects": "metaq,rocketmq" if topic.dual else "rocketmq",
        "attributes": dict(topic.attributes),
        "shards": [
            {
                "id": shard,
                "writeQueues": queues.write,
                "readQueues": queues.read,
                "perm": queues.perm,
                "online": view.master(shard) is not None,
            }
            for shard, queues in sorted(topic.shards.items())
        ],
    }


async def groups(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/cluster/groups: every group with settings, members and lag, of all shards.

    `?group=` (repeatable) names some of them. `?metaq=true` adds `metaq` to those that MetaQ's
    consumers have in ZooKeeper, and those that they have only there. Masters of the shards are
    asked; those that do not answer, or that cannot say what is in ZooKeeper, stand in `missing`,
    and what they know is not in the figures.
    """
    limit = number(request.query, "limit", LIMIT, low=1, high=LIMIT_MAX)
    named = request.query.getall("group", [])[:NAMES_MAX]
    own = await _own(services, request, named, limit) if leads(services) else {}
    if is_forwarded(request):
        return json_response({"items": list(own.values())})
    answers = await _others(services, request)
    missing = [name for name, items in answers.items() if items is None]
    merged: dict[str, dict[str, Any]] = {}
    for item in (*own.values(), *(item for items in answers.values() for item in items or ())):
        merged[item["name"]] = together(merged.get(item["name"]), item)
    listed = sorted(merged)
    following = listed[limit] if len(listed) > limit else None
    items = [merged[name] | {"members": sorted(merged[name]["members"])} for name in listed[:limit]]
    return json_response({"items": items, "next": following, "missing": missing})


async def _own(
    services: AdminServices, request: web.Request, named: Sequence[str], limit: int
) -> dict[str, dict[str, Any]]:
    """Return what this shard knows of groups, by name."""
    start, known = request.query.get("next", ""), groups_here(services)
    wanted = sorted(n for n in known if n >= start and (not named or n in named))[: limit + 1]
    found = {name: await _group(services, name) for name in wanted}
    if request.query.get("metaq") != "true":
        return found
    try:
        asked = named or await services.metaq_consumers.metaq_groups()
        asked = sorted(name for name in asked if name >= start)[: limit + 1]
        sides = await metaq_groups.sides(services, asked)
    except CoordinatorError as error:
        raise unavailable(error) from error
    for name, side in sides.items():
        found[name] = found.get(name, _nobody(name)) | {"metaq": side}
    return found


def _nobody(name: str) -> dict[str, Any]:
    """A group that brokers keep nothing of."""
    return {"name": name, "settings": None, "members": [], "topics": {}}


def leads(services: AdminServices) -> bool:
    """Whether clients of this broker's shard are here, and not at another member."""
    own = services.coordinator.registered
    return own is None or services.coordinator.view().leads(own)


async def _group(services: AdminServices, name: str) -> dict[str, Any]:
    """One group, as this shard knows it."""
    await asyncio.sleep(0)  # groups have many queues: other work comes in between
    topics_of = services.offsets.of_group(name).items()
    config = services.groups.get(name)
    return {
        "name": name,
        "settings": config.to_json() if config else None,
        "members": [member.client_id for member in services.members(name)],
        "topics": {topic: lag_of(services, topic, queues) for topic, queues in topics_of},
    }


def together(one: dict[str, Any] | None, other: dict[str, Any]) -> dict[str, Any]:
    """Return what two shards say of one group. Members are usually connected to both."""
    if one is None:
        return other
    metaq = metaq_groups.together(one.get("metaq"), other.get("metaq"))
    both = {
        "name": one["name"],
        "settings": one["settings"] or other["settings"],
        "members": list({*one["members"], *other["members"]}),
        "topics": sums(one["topics"], other["topics"]),
    }
    return both if metaq is None else both | {"metaq": metaq}


async def _others(
    services: AdminServices, request: web.Request
) -> dict[str, Iterable[dict[str, Any]] | None]:
    """Ask the masters of the other shards, and of this one where we are not it."""
    view, own = services.coordinator.view(), services.config.broker.shard
    shards = [n for n in view.shards() if n != own or not leads(services)]
    masters = {n: view.master(n) for n in shards}
    headers, path = forwarded_headers(services, request), request.path_qs
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        found = await asyncio.gather(
            *(_ask(session, services, master, path, headers) for master in masters.values())
        )
    return {shard_name(n): items for n, items in zip(masters, found, strict=True)}


async def _ask(
    session: aiohttp.ClientSession,
    services: AdminServices,
    master: BrokerRecord | None,
    path: str,
    headers: Mapping[str, str],
) -> list[dict[str, Any]] | None:
    if master is None or not master.admin:
        return None
    try:
        async with call(session, services, master, "GET", path, headers=headers) as answer:
            if answer.status != 200:
                return None
            items: list[dict[str, Any]] = (await answer.json())["items"]
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return None
    return items
