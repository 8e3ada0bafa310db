"""Routes about who is connected to any broker of the cluster."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from imago_broker.admin.calls.guard import json_response
from imago_broker.admin.errors import AdminError
from imago_broker.admin.paging import LIMIT, LIMIT_MAX, number
from imago_broker.admin.resources.everywhere import ask_members
from imago_broker.admin.shards.shards import is_forwarded
from imago_broker.model.registry.cluster import shard_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiohttp import web

    from imago_broker.admin.services import AdminServices, ClientConnection

SHOWN_MAX: Final = 100
"""Connections, groups and topics of one client that an answer has of each broker."""
_OWN_TOPICS: Final = "%RETRY%"
"""Each consumer of RocketMQ's subscribes to one: its group says which."""


async def clients(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/cluster/clients: who is connected, of all members of all shards.

    One item a client, by the `name` that it gives itself; one that gives none is its connection,
    named by its address. `?client=` (its name or an address), `?topic=`, `?group=` and
    `?user=` choose. `missing`: shards that are away, and members that did not answer.
    """
    limit = number(request.query, "limit", LIMIT, low=1, high=LIMIT_MAX)
    start = request.query.get("next", "")
    mine: dict[str, dict[str, Any]] = {}
    for each in await services.clients():
        if each.name >= start and _is_wanted(each, request.query):
            shown = _shown(services, each)
            mine[each.name] = together(mine[each.name], shown) if each.name in mine else shown
    own = [mine[name] for name in sorted(mine)[: limit + 1]]
    if is_forwarded(request):
        return json_response({"items": own})
    others = await ask_members(services, request)
    merged: dict[str, dict[str, Any]] = {}
    for item in (*own, *others.items):
        name = item["name"]
        merged[name] = together(merged[name], item) if name in merged else item
    listed = sorted(merged)
    following = listed[limit] if len(listed) > limit else None
    items = [merged[name] for name in listed[:limit]]
    return json_response({"items": items, "next": following, "missing": others.missing})


async def close(services: AdminServices, request: web.Request) -> web.Response:
    """DELETE /admin/v1/cluster/clients/{client}: close its connections to all brokers, at once.

    An address closes the one connection from there. It may connect again.
    """
    name = request.match_info["client"]
    closed = {"connections": await services.close_client(name)} | _member(services)
    if is_forwarded(request):
        return json_response({"items": [closed]})
    others = await ask_members(services, request)
    members = sorted(
        (one for one in (closed, *others.items) if one["connections"]),
        key=lambda one: (one["shard"], one["replica"]),
    )
    if not members and not others.missing:
        raise AdminError(
            404,
            "client_not_found",
            f"No client {name!r:.200} is connected to any broker.",
            "List them: `imago client list`, or GET /admin/v1/cluster/clients.",
        )
    return json_response({"items": members, "missing": others.missing})


def _is_wanted(client: ClientConnection, query: Mapping[str, str]) -> bool:
    groups = (*client.consumer_groups, *client.producer_groups)
    return (
        ("client" not in query or client.is_named(query["client"]))
        and query.get("user") in (None, client.user)
        and ("group" not in query or query["group"] in groups)
        and ("topic" not in query or any(query["topic"] in each for each in client.topics))
    )


def _member(services: AdminServices) -> dict[str, object]:
    return {"shard": shard_name(services.config.broker.shard), "replica": services.replica()}


def _shown(services: AdminServices, client: ClientConnection) -> dict[str, Any]:
    topics = (each for each in chain(*client.topics) if not each.startswith(_OWN_TOPICS))
    place = {"peer": client.peer, "protocol": client.protocol, "tls": client.tls}
    others = (name for name in client.clients if name != client.name)
    return {
        "name": client.name,
        "language": client.language,
        "version": client.version,
        "users": [client.user] if client.user else [],
        "producerGroups": client.producer_groups[:SHOWN_MAX],
        "consumerGroups": client.consumer_groups[:SHOWN_MAX],
        "topics": sorted(set(islice(topics, SHOWN_MAX))),
        "connectionCount": 1,
        "connections": [_member(services) | place | {"sharedWith": [*islice(others, SHOWN_MAX)]}],
    }


def together(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return what two connections, or two brokers, tell of one client."""
    lists = ("users", "producerGroups", "consumerGroups", "topics")
    return {
        "name": one["name"],
        "language": one["language"] or other["language"],
        "version": one["version"] or other["version"],
        **{key: _both(one[key], other[key]) for key in lists},
        "connectionCount": one["connectionCount"] + other["connectionCount"],
        "connections": [*one["connections"], *other["connections"]][:SHOWN_MAX],
    }


def _both(one: Iterable[str], other: Iterable[str]) -> list[str]:
    return sorted({*one, *other})[:SHOWN_MAX]
