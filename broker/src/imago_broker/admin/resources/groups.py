"""Routes of consumer groups."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from imago_broker.admin import views
from imago_broker.admin.access import require
from imago_broker.admin.calls.guard import boolean, json_body, json_response, text_of
from imago_broker.admin.errors import AdminError, bad_request, not_found, refuse_unknown
from imago_broker.admin.paging import page, whole_of
from imago_broker.admin.resources.topics import known as known_topic
from imago_broker.admin.rights import put_group
from imago_broker.admin.shards.shards import (
    OK,
    is_forwarded,
    known_elsewhere,
    on_other_shards,
    require_masters,
)
from imago_broker.errors import RequestError
from imago_broker.model.bounds import allowed, as_json
from imago_broker.model.groups import GroupConfig
from imago_broker.model.names import group_problem
from imago_broker.processors.rocketmq.needs import needs_to_reset, of_group, to_set
from imago_wire.errors import in_our_words
from imago_wire.record_format.references import is_light
from imago_wire.remoting.peer import version_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aiohttp import web

    from imago_broker.admin.services import AdminServices

CREATE: Final = "create"
SETTINGS = tuple(n for n in allowed(GroupConfig) if n not in {"attributes", "forbidden_topics"})
"""The others are RocketMQ's, and its tools'."""


async def list_all(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/groups: every group with settings, offsets or members.

    Sorted by `name`, `lag` or `members`.
    """
    sorts = {
        "lag": lambda name: brief(services, name)["lag"],
        "members": lambda name: len(services.members(name)),
    }
    shown = page(sorted(names(services)), request.query, lambda n: brief(services, n), sorts)
    return json_response(shown)


async def show(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/groups/{group}: settings, members, offsets and lag on this shard."""
    return json_response(described(services, request.match_info["group"]))


def described(services: AdminServices, name: str) -> dict[str, Any]:
    """One group: settings, members, offsets and lag on this shard."""
    committed = services.offsets.of_group(known(services, name))
    members = [
        asdict(member) | {"versionName": version_name(member.version)}
        for member in services.members(name)
    ]
    topics = {
        topic: [queue | {"gone": _is_gone(services, topic, queue["queue"])} for queue in queues]
        for topic, queues in views.group_topics(committed, ends(services, committed)).items()
    }
    return views.group(services.groups.get(name), name) | {"members": members, "topics": topics}


def _is_gone(services: AdminServices, topic: str, queue: int) -> bool:
    """Whether a topic has no longer a queue that a group has read; light queues have no topic."""
    config = services.topics.get(topic)
    return not is_light(topic) if config is None else queue >= config.queues


async def put(services: AdminServices, request: web.Request) -> web.Response:
    """PUT /admin/v1/groups/{group}: make it, or change the named settings, on every shard."""
    name = request.match_info["group"]
    body = await json_body(request)
    refuse_unknown(body, SETTINGS)
    require(services, request, put_group(services, request))  # it may be gone by now
    before = services.groups.get(name)
    try:
        said: Mapping[str, Any] = body
        config = replace(before or GroupConfig(name=name), **said)
        services.groups.update(config)
    except (ValueError, RequestError) as error:
        raise bad_request(
            f"Group {name!r:.200}: {in_our_words(error)}.", "Correct that setting."
        ) from error
    shards = await on_other_shards(services, request)
    return json_response(
        views.group(config, name) | {"shards": shards}, status=200 if before else 201
    )


async def delete(services: AdminServices, request: web.Request) -> web.Response:
    """DELETE /admin/v1/groups/{group}: its settings and offsets, on every shard.

    409 while a member is connected anywhere, which would make it again; `?force=true` does it.
    """
    name = request.match_info["group"]
    here = name in names(services)
    if not is_forwarded(request) and request.query.get("force") != "true":
        path = f"/admin/v1/groups/{quote(name, safe='')}"
        elsewhere = await known_elsewhere(services, request, path)
        members = [member.client_id for member in services.members(name)]
        members += [member["client_id"] for shown in elsewhere for member in shown["members"]]
        require_empty(name, members)
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
    a member of the group is connected, which else goes on from there at once. `create`: also for
    a group that nobody knows, else 404: it may be mistyped.
    """
    name = request.match_info["group"]
    if problem := group_problem(name):
        raise bad_request(f"Group {name!r:.200}: {problem}.", "Name the group of your consumers.")
    body = await json_body(request)
    refuse_unknown(body, ("topic", "to", "whenEmpty", CREATE))
    create = boolean(body, CREATE)
    if boolean(body, "whenEmpty"):
        require_empty(name, [member.client_id for member in services.members(name)], " here")
    topic = text_of(body, "topic")
    if not topic:
        raise bad_request("No topic is named.", 'Send {"topic": NAME, "to": "latest"}.')
    require(services, request, needs_to_reset(topic, name))
    if body.get("to") == {}:
        raise bad_request("to: {}, names no queue.", 'Send like {"0": 42}, or "latest".')
    makes = await to_make(services, request, name, create=create)
    placed = services.coordinator.view().topics.get(topic)
    single = isinstance(body.get("to"), dict)
    elsewhere = placed is not None and services.config.broker.shard not in placed.shards
    here = single or not elsewhere
    if makes:
        make(services, name)
    offsets = reset_here(services, name, topic, body.get("to")) if here else {}
    shards = {}
    if not single:
        only = None if placed is None else placed.shards
        shards = await on_other_shards(services, request, here=here, only=only)
    answer: dict[str, Any] = {"group": name, "topic": topic, "offsets": offsets}
    return json_response(answer | {"shards": shards})


def make(services: AdminServices, name: str) -> None:
    """Make a group with the settings that each begins with: whoever lists groups finds it."""
    try:
        services.groups.update(GroupConfig(name=name))
    except RequestError as error:
        raise bad_request(
            f"Group {name!r:.200}: {in_our_words(error)}.", "Choose another name."
        ) from error


def require_empty(name: str, members: Collection[str], where: str = "") -> None:
    """Refuse what is of no use while consumers of the group go on."""
    if members:
        first = min(members)
        text = f"Group {name!r} has members{where} ({len(set(members))}), like {first!r:.80}."
        raise AdminError(409, "group_active", text, "Stop its consumers, then repeat the call.")


async def to_make(
    services: AdminServices, request: web.Request, name: str, *, create: bool
) -> bool:
    """Return whether a reset makes the group, for who may; refuse it where that is not asked."""
    if not create:
        await require_known(services, request, name)
    if not create or services.groups.get(name) is not None:
        return False
    require(services, request, (of_group(name, to_set(known=False)),))
    return True


async def require_known(services: AdminServices, request: web.Request, name: str) -> None:
    """Refuse a group that no shard knows: it may be mistyped. Who passes a call on has looked."""
    here = names(services)
    if name in here or is_forwarded(request):
        return
    if not await known_elsewhere(services, request, f"/admin/v1/groups/{quote(name, safe='')}"):
        view = services.coordinator.view()
        require_masters(view, view.away())  # one of them may know it
        error = not_found("group", name, here)
        error.cure += f" For one whose consumers start later send {CREATE}: true."
        raise error


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
    offsets = services.offsets
    return settings.union(offsets.groups(), offsets.readers.groups(), services.member_groups())


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
        f"to: {as_json(to)} is not a place.",
        'Send "earliest", "latest", epoch milliseconds, or {"queue": offset}.',
    )


def explicit(
    services: AdminServices, topic: str, to: Mapping[str, object], queues: int
) -> dict[int, int]:
    """Offsets by queue, as given; within what is stored."""
    found = {}
    for key, offset in to.items():
        number = whole_of(key)
        if number is None or not 0 <= number < queues:
            raise bad_request(f"Queue {key!r:.40} of {topic!r}.", f"Send 0 to {queues - 1}.")
        first, end = services.store.queue_range(topic, number)
        if isinstance(offset, bool) or not isinstance(offset, int) or not first <= offset <= end:
            raise bad_request(f"Offset {offset!r:.40} of queue {key}.", f"Send {first} to {end}.")
        found[number] = offset
    return found
