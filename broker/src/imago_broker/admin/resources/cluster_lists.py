"""Lists of the whole cluster at any broker: topics as the registry has them, groups of all shards.

For the operator of many topics and groups: one call answers for a thousand.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from imago_broker.admin.calls.guard import json_response
from imago_broker.admin.lags import lag_of, retries_of, sums
from imago_broker.admin.paging import LIMIT, LIMIT_MAX, NAME, number, page
from imago_broker.admin.resources import metaq_groups
from imago_broker.admin.resources.everywhere import ask_others
from imago_broker.admin.resources.groups import names as groups_here
from imago_broker.admin.resources.topics import summary
from imago_broker.admin.shards.leadership import unavailable
from imago_broker.admin.shards.shards import is_forwarded
from imago_broker.core.away import away
from imago_broker.model.names import is_system
from imago_broker.model.registry.cluster import RegistryConnection
from imago_broker.ports import CoordinatorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.model.registry.cluster import ClusterView, TopicPlacement

NAMES_MAX = 100
MESSAGES = "messages"
"""The order of topics for which all masters are asked."""
_OF_SYSTEM: Final = {"true": (True, False), "only": (True,)}
"""By what `system` says: whether topics of the brokers' own are listed, and whether others are."""


async def topics(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/cluster/topics: every topic with its settings and its queues on each shard.

    As the registry has them, so no master is asked; the broker's own only with `?system=true`, and
    nothing else with `?system=only`.
    Without `zooKeeperConnected` it is what the registry had when this broker saw it last.
    `missing`: shards without a master, whose messages nobody can read now. With `?counts=true`
    masters are asked after all, for the `messages` of each topic that is shown: those of shards
    that do not stand in `missing`. Sorted by `name`, `queues` or, which asks masters for all of
    the list, `messages`.
    """
    view = services.coordinator.view()
    wanted = _OF_SYSTEM.get(request.query.get("system", ""), (False,))
    cluster = services.topics.cluster
    listed = sorted(name for name in view.topics if is_system(name, cluster) in wanted)
    connected = services.coordinator.state is RegistryConnection.CONNECTED
    messages: Counter[str] = Counter()
    sorts = {
        "queues": lambda n: sum(queues.write for queues in view.topics[n].shards.values()),
        MESSAGES: lambda n: messages[n],
    }
    missing = [each.to_json() for each in away(view)]
    by_messages = request.query.get("sort", "").removeprefix("-") == MESSAGES
    shown = page(listed, request.query, lambda n: placed(view, view.topics[n]), sorts)
    if by_messages or request.query.get("counts") == "true":
        counted = listed if by_messages else [item["name"] for item in shown["items"]]
        counts = await _counts(services, counted) if leads(services) else []
        if is_forwarded(request):
            return json_response({"items": counts})
        others = await ask_others(services, request, own_too=not leads(services))
        for item in (*counts, *others.items):
            messages[item["name"]] += item["messages"]
        if by_messages:
            shown = page(listed, request.query, lambda n: placed(view, view.topics[n]), sorts)
        shown["items"] = [item | {"messages": messages[item["name"]]} for item in shown["items"]]
        missing = others.missing
    return json_response(shown | {"zooKeeperConnected": connected, "missing": missing})


async def _counts(services: AdminServices, names: Iterable[str]) -> list[dict[str, Any]]:
    """How many messages of these topics are here."""
    found = []
    for name in names:
        if services.topics.get(name) is not None:
            found.append({"name": name, "messages": summary(services, name)["messages"]})
        await asyncio.sleep(0)  # topics have many queues: other work comes in between
    return found


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

    `?group=` (repeatable) names some of them, `?contains=` those with a text. `?metaq=true` adds
    `metaq` to those that MetaQ's consumers have in ZooKeeper, and those that they have only there.
    Masters of the shards are asked; shards without one, and those that do not answer or cannot say
    what is in ZooKeeper, stand in `missing`, and what they know is not in the figures. Sorted by
    `name`, `lag`, `members` or `retries`: of another order than by name each call asks for all
    groups. `?retries=true`, or that order, adds `retries`: how many messages wait to be tried
    again (`waiting`), and whether there may be more (`cut`).
    """
    limit = number(request.query, "limit", LIMIT, low=1, high=LIMIT_MAX)
    named = request.query.getall("group", [])[:NAMES_MAX]
    ordered = request.query.get("sort", NAME) != NAME
    if ordered:
        asked = {"sort": request.query["sort"]}
        page((), asked, str, _GROUP_SORTS)  # an order that there is not is refused at once
    most = None if ordered else limit + 1
    own = await _own(services, request, named, most) if leads(services) else {}
    if is_forwarded(request):
        return json_response({"items": list(own.values())})
    others = await ask_others(services, request, own_too=not leads(services))
    merged: dict[str, dict[str, Any]] = {}
    for item in (*own.values(), *others.items):
        merged[item["name"]] = together(merged.get(item["name"]), item)
    for item in merged.values():
        item["members"].sort()
    listed = sorted(merged)
    if ordered:
        sorts = {name: partial(_by, merged, of) for name, of in _GROUP_SORTS.items()}
        shown = page(listed, request.query, merged.__getitem__, sorts)
        return json_response(shown | {"missing": others.missing})
    following = listed[limit] if len(listed) > limit else None
    items = [merged[name] for name in listed[:limit]]
    return json_response({"items": items, "next": following, "missing": others.missing})


async def _own(
    services: AdminServices, request: web.Request, named: Sequence[str], most: int | None
) -> dict[str, dict[str, Any]]:
    """Return what this shard knows of groups, by name: of the first, or of all without `most`."""
    start = request.query.get("next", "") if most is not None else ""
    known = groups_here(services)
    part = request.query.get("contains", "").casefold()
    listed = (n for n in known if n >= start and (not named or n in named))
    wanted = sorted(name for name in listed if part in name.casefold())[:most]
    found = {name: await _group(services, name) for name in wanted}
    if _shows_retries(request.query):
        retries = await services.waiting.retries()
        for name, each in found.items():
            each["retries"] = retries_of(retries, name)
    if request.query.get("metaq") != "true":
        return found
    try:
        asked = named or await services.metaq_consumers.metaq_groups()
        listed = (name for name in asked if name >= start and part in name.casefold())
        asked = sorted(listed)[:most]
        sides = await metaq_groups.sides(services, asked)
    except CoordinatorError as error:
        raise unavailable(error) from error
    for name, side in sides.items():
        found[name] = found.get(name, _nobody(name)) | {"metaq": side}
    return found


def _shows_retries(query: Mapping[str, str]) -> bool:
    return query.get("retries") == "true" or query.get("sort", "").removeprefix("-") == "retries"


def _retries(group: Mapping[str, Any]) -> int:
    return int(group["retries"]["waiting"]) if "retries" in group else 0


def _lag(group: Mapping[str, Any]) -> int:
    return sum(topic["lag"] for topic in group["topics"].values())


_GROUP_SORTS: Final[Mapping[str, Callable[[Any], int]]] = {
    "lag": _lag,
    "members": lambda group: len(group["members"]),
    "retries": _retries,
}


def _by(merged: Mapping[str, Any], of: Callable[[Any], int], name: str) -> int:
    return of(merged[name])


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
    if "retries" in one or "retries" in other:
        both["retries"] = {
            "waiting": _retries(one) + _retries(other),
            "cut": any(each["retries"]["cut"] for each in (one, other) if "retries" in each),
        }
    return both if metaq is None else both | {"metaq": metaq}
