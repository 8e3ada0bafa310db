"""Routes of consumer groups."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from imago_broker.admin import views
from imago_broker.admin.errors import AdminError, bad_request, not_found, refuse_unknown
from imago_broker.admin.guard import json_body, json_response
from imago_broker.admin.paging import page
from imago_broker.admin.shards import OK, on_other_shards
from imago_broker.admin.topics import known as known_topic
from imago_broker.errors import RequestError
from imago_broker.model.groups import GroupConfig
from imago_broker.model.names import group_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from imago_broker.admin.services import AdminServices

SETTINGS = tuple(f.name for f in fields(GroupConfig) if f.name not in {"name", "attributes"})


async def list_all(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/groups: every group with settings, offsets or members."""
    return json_response(page(sorted(names(services)), request.query, lambda n: brief(services, n)))


async def show(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/groups/{group}: settings, members, offsets and lag on this shard."""
    name = known(services, request.match_info["group"])
    committed = services.offsets.of_group(name)
    members = [asdict(member) for member in services.members(name)]
    topics = views.group_topics(committed, ends(services, committed))
    return json_response(
        views.group(services.groups.get(name), name) | {"members": members, "topics": topics}
    )


async def put(services: AdminServices, request: web.Request) -> web.Response:
    """PUT /admin/v1/groups/{group}: make it, or change the named settings, on every shard."""
    name = request.match_info["group"]
    body = await json_body(request)
    refuse_unknown(body, SETTINGS)
    before = services.groups.get(name)
    try:
        config = replace(before or GroupConfig(name=name), **checked(body))
        services.groups.update(config)
    except (ValueError, RequestError) as error:
        raise bad_request(f"Group {name!r:.200}: {error}.", "Correct that setting.") from error
    shards = await on_other_shards(services, request)
    return json_response(
        views.group(config, name) | {"shards": shards}, status=200 if before else 201
    )


async def delete(services: AdminServices, request: web.Request) -> web.Response:
    """DELETE /admin/v1/groups/{group}: its settings and offsets, on every shard."""
    name = request.match_info["group"]
    here = name in names(services)
    services.groups.delete(name)
    services.offsets.forget_group(name)
    shards = await on_other_shards(services, request, here=here)
    if OK not in shards.values():
        raise not_found("group", name, names(services))
    return json_response({"deleted": name, "shards": shards})


async def reset(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/groups/{group}/reset {"topic", "to"}: set where the group goes on.

    `to`: "earliest", "latest", epoch milliseconds, or {"queue": offset, …} for single queues
    (those of this shard: an explicit map is not repeated on other shards). `whenEmpty`: 409 while
    a member of the group is connected, which else goes on from there at once.
    """
    name = request.match_info["group"]
    if problem := group_problem(name):
        raise bad_request(f"Group {name!r:.200}: {problem}.", "Name the group of your consumers.")
    body = await json_body(request)
    refuse_unknown(body, ("topic", "to", "whenEmpty"))
    if body.get("whenEmpty") and (members := services.members(name)):
        text = (
            f"Group {name!r} has members here ({len(members)}), like {members[0].client_id!r:.80}."
        )
        raise AdminError(409, "group_active", text, "Stop its consumers, then repeat the call.")
    topic = str(body.get("topic", ""))
    placed = services.coordinator.view().topics.get(topic)
    single = isinstance(body.get("to"), dict)
    elsewhere = placed is not None and services.config.broker.shard not in placed.shards
    here = single or not elsewhere
    offsets = reset_here(services, name, topic, body.get("to")) if here else {}
    shards = {}
    if not single:
        only = None if placed is None else placed.shards
        shards = await on_other_shards(services, request, here=here, only=only)
    answer: dict[str, Any] = {"group": name, "topic": topic, "offsets": offsets}
    return json_response(answer | {"shards": shards})


def reset_here(services: AdminServices, group: str, topic: str, to: object) -> dict[int, int]:
    """Set where a group goes on in a topic's queues on this shard; return the offsets."""
    config = known_topic(services, topic)
    if isinstance(to, dict):
        offsets = explicit(services, topic, to, config.queues)
    else:
        offsets = {q: target(services, topic, q, to) for q in range(config.read_queues)}
    services.reset_offsets(group, topic, offsets)
    return offsets


def names(services: AdminServices) -> set[str]:
    settings = {config.name for config in services.groups.all()}
    return settings | set(services.offsets.groups()) | set(services.member_groups())


def known(services: AdminServices, name: str) -> str:
    if name not in (all_names := names(services)):
        raise not_found("group", name, all_names)
    return name


def brief(services: AdminServices, name: str) -> dict[str, Any]:
    committed = services.offsets.of_group(name)
    shown = views.group_topics(committed, ends(services, committed))
    lag = sum(queue["lag"] for queues in shown.values() for queue in queues)
    members = len(services.members(name))
    return {"name": name, "members": members, "topics": len(shown), "lag": lag}


def ends(
    services: AdminServices, committed: Mapping[str, Mapping[int, int]]
) -> dict[tuple[str, int], int]:
    """Visible ends of the queues that have offsets."""
    store = services.store
    return {
        (topic, queue): store.queue_range(topic, queue)[1]
        for topic, queues in committed.items()
        for queue in queues
    }


def target(services: AdminServices, topic: str, queue: int, to: object) -> int:
    """The offset that a word or a time stands for in one queue."""
    first, end = services.store.queue_range(topic, queue)
    if to == "earliest":
        return first
    if to == "latest":
        return end
    if isinstance(to, int) and not isinstance(to, bool) and 0 <= to < 1 << 53:
        return services.store.offset_by_time(topic, queue, to)
    raise bad_request(
        f"to: {to!r:.60} is not a place.",
        'Send "earliest", "latest", epoch milliseconds, or {"queue": offset}.',
    )


def explicit(
    services: AdminServices, topic: str, to: Mapping[str, object], queues: int
) -> dict[int, int]:
    """Offsets by queue, as given; within what is stored."""
    found = {}
    for key, offset in to.items():
        if not key.isdecimal() or int(key) >= queues:
            raise bad_request(f"Queue {key!r:.40} of {topic!r}.", f"Send 0 to {queues - 1}.")
        first, end = services.store.queue_range(topic, int(key))
        if isinstance(offset, bool) or not isinstance(offset, int) or not first <= offset <= end:
            raise bad_request(f"Offset {offset!r:.40} of queue {key}.", f"Send {first} to {end}.")
        found[int(key)] = offset
    return found


def checked(body: Mapping[str, object]) -> dict[str, Any]:
    """The settings as given, of the right types."""
    kinds = {f.name: f.type for f in fields(GroupConfig)}
    for key, value in body.items():
        wanted = bool if kinds[key] == "bool" else int
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise ValueError(f"{key}: {value!r:.60}, must be {wanted.__name__}")
    return dict(body)
