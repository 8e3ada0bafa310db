"""Routes of topics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from imago_broker.admin import views
from imago_broker.admin.access import require
from imago_broker.admin.calls.guard import boolean, json_body, json_response
from imago_broker.admin.errors import AdminError, bad_request, not_found, refuse_unknown
from imago_broker.admin.paging import page, whole_of
from imago_broker.admin.rights import put_topic
from imago_broker.admin.shards.shards import (
    OK,
    is_forwarded,
    may_have,
    on_other_shards,
    require_masters,
    topic_elsewhere,
    until_placed,
)
from imago_broker.config.settings import LEVELS
from imago_broker.core.placing.placement import Room, choose, rooms
from imago_broker.errors import BrokerError, HidesMessagesError
from imago_broker.model import names
from imago_broker.model.bounds import as_json
from imago_broker.model.topics import topics as model
from imago_broker.model.topics.attributes import unknown_problem
from imago_broker.service.topics.sizes import queue_bytes
from imago_broker.service.topics.topics import settings_problem
from imago_wire.errors import WrongError, in_our_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.model.registry.cluster import ClusterView
    from imago_broker.model.topics.topics import TopicConfig

QUEUES_AT_ONCE = 512
"""How many queues one turn of the loop describes."""
HIDE_MESSAGES = "hideMessages"
KEYS = (
    "queues",
    "writeQueues",
    "readQueues",
    "perm",
    "order",
    "acknowledgement",
    "dialects",
    "retentionMs",
    "attributes",
    "shards",
    HIDE_MESSAGES,
)


async def list_all(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/topics: settings and message counts, system topics with `?system=true`.

    Sorted by `name`, `messages` or `queues`.
    """
    system = request.query.get("system") == "true"
    cluster = services.topics.cluster
    listed = [
        t.name for t in services.topics.all() if system or not names.is_system(t.name, cluster)
    ]
    sorts = {
        "messages": lambda name: summary(services, name)["messages"],
        "queues": lambda name: known(services, name).write_queues,
    }
    shown = page(sorted(listed), request.query, lambda n: summary(services, n), sorts)
    return json_response(shown)


async def show(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/topics/{topic}: settings, and the bounds of each queue."""
    return json_response(await described(services, request.match_info["topic"]))


async def described(services: AdminServices, name: str) -> dict[str, Any]:
    """One topic's settings, and the bounds of each queue."""
    shown = await queues(services, known(services, name))
    return summary(services, name) | {"queues": shown}


async def put(services: AdminServices, request: web.Request) -> web.Response:
    """PUT /admin/v1/topics/{topic}: create it, or change the named settings, on its shards.

    `shards`: how many a new topic gets, or which; all that take new topics unless given. A topic
    keeps the shards it has. `hideMessages`: fewer queues may be read, whatever the others hold.
    """
    name = request.match_info["topic"]
    body = await json_body(request)
    refuse_unknown(body, KEYS)
    hide = boolean(body, HIDE_MESSAGES)
    checked(services, name, body)
    if not hide:
        require_readers(services, name, body)
        require_seen(services, request, name, body)
    elsewhere = await hidden_elsewhere(services, request, name, body)
    if elsewhere and not hide:
        raise hides(_hidden_there(body, elsewhere))
    known_before = _is_elsewhere(services, name)
    before, wanted = checked(services, name, body)
    require(services, request, put_topic(services, request))  # it may be gone by now
    try:
        shards = None if is_forwarded(request) else placement(services, name, body.get("shards"))
        here = shards is None or services.config.broker.shard in shards
        hidden = elsewhere + (services.topics.hidden_by(wanted) if here else 0)
        config = services.topics.create_or_update(wanted, hide_messages=hide) if here else wanted
    except HidesMessagesError as error:
        raise hides(str(error)) from error
    except (ValueError, BrokerError) as error:
        problem = in_our_words(error).removeprefix(f"topic {name}: ")
        raise bad_request(f"Topic {name!r:.200}: {problem}.", "Correct that setting.") from error
    done = await on_other_shards(services, request, only=shards)
    await until_placed(services, request, name, done)
    answer = summary(services, config.name) if here else shown(services, config)
    said = {"shards": done} | ({"hiddenMessages": hidden} if hidden else {})
    return json_response(answer | said, status=200 if before or known_before else 201)


def checked(
    services: AdminServices, name: str, body: Mapping[str, Any]
) -> tuple[TopicConfig | None, TopicConfig]:
    """Return a topic's settings, and those that are asked for; AdminError where none can be so.

    Also where the topic has queues on other shards alone, which would refuse it one by one.
    """
    refuse_own(services, name)
    before = services.topics.get(name)
    try:
        wanted = changed(before or model.TopicConfig(name=name), body)
    except ValueError as error:
        raise bad_request(f"Topic {name!r:.200}: {error}.", "Correct that setting.") from error
    new = before is None and not _is_elsewhere(services, name)
    if problem := settings_problem(wanted, before, new=new):
        raise bad_request(f"Topic {name!r:.200}: {problem}.", "Correct that setting.")
    return before, wanted


def require_readers(services: AdminServices, name: str, body: Mapping[str, Any]) -> None:
    """Refuse queues that nobody would read on any shard of the topic, before one is changed."""
    placed = services.coordinator.view().topics.get(name)
    before: list[TopicConfig | None] = [services.topics.get(name)]
    if placed is not None:
        before = [
            model.TopicConfig(name=name, write_queues=queues.write, read_queues=queues.read)
            for queues in placed.shards.values()
        ]
    for old in before:
        wanted = changed(old or model.TopicConfig(name=name), body)
        if problem := model.unread_problem(old, wanted):
            raise bad_request(f"Topic {name!r:.200}: {problem}.", "Correct that setting.")


def require_seen(
    services: AdminServices, request: web.Request, name: str, body: Mapping[str, Any]
) -> None:
    """Refuse fewer queues while nobody can say what those of a shard hold."""
    view, left = services.coordinator.view(), body.get("readQueues", body.get("queues"))
    placed = view.topics.get(name)
    if placed is not None and isinstance(left, int) and not is_forwarded(request):
        shards = [n for n, queues in placed.shards.items() if queues.read > left]
        require_masters(view, shards)


def hides(text: str) -> AdminError:
    """The refusal of a change after which readers would no longer find what is stored."""
    return AdminError(
        409,
        "hides_messages",
        f"{text[:1].upper()}{text[1:]}.",
        f"Keep the number of queues, or send {HIDE_MESSAGES}: true.",
    )


def _hidden_there(body: Mapping[str, Any], messages: int) -> str:
    kept, word = body.get("readQueues", body.get("queues")), "message" + "s" * (messages != 1)
    return f"with {kept} queues left to read, {messages} {word} of other shards would be hidden"


async def hidden_elsewhere(
    services: AdminServices, request: web.Request, name: str, body: Mapping[str, Any]
) -> int:
    """Return how many messages a change hides on other shards, before any of them is changed.

    Each shard looks again where it makes the change.
    """
    left = body.get("readQueues", body.get("queues"))
    if not isinstance(left, int):
        return 0
    found = await topic_elsewhere(services, request, name)
    return sum(
        queue["maxOffset"] - queue["minOffset"]
        for topic in found
        for queue in topic["queues"]
        if left <= queue["queue"] < topic["readQueues"]
    )


def placement(services: AdminServices, name: str, asked: object) -> frozenset[int]:
    """Return the shards of a topic: those it has, and those it is to get."""
    view = services.coordinator.view()
    before = view.topics.get(name)
    has = frozenset(before.shards if before else ())
    free = rooms(view)
    numbers = frozenset(room.shard for room in free)
    if asked is None:
        return has or _all_shards(view, numbers)
    if isinstance(asked, list) and asked:
        named = frozenset(shard_number(entry) for entry in asked)
        require_masters(view, named - has - view.cordoned)
        if unknown := sorted(named - numbers - has):
            raise WrongError(f"shards: {unknown} do not take new topics")
    elif isinstance(asked, int) and not isinstance(asked, bool) and asked >= 1:
        # Those that it has left, by a drain or a move, do not count, and are not opened again.
        takes = [n for n in has if before and before.shards[n].write]
        taken = [Room(n, 0, master.zone) for n in takes if (master := view.master(n))]
        others = [room for room in free if room.shard not in has]
        named = has | set(choose(others, max(0, asked - len(takes)), taken=taken))
        if asked < len(takes):
            raise WrongError(f"shards: {asked}, but the topic has queues on {len(takes)}")
    else:
        raise WrongError(f"shards: {as_json(asked)}, must be 1 or more, or a list of at least one")
    if missing := sorted(has - named):
        raise WrongError(
            f"shards: {missing} hold messages of the topic: nothing is taken from them"
        )
    return named


def _all_shards(view: ClusterView, free: frozenset[int]) -> frozenset[int]:
    """Return all shards that take new topics; refuse to leave out one that is only away."""
    require_masters(view, frozenset(view.away()) - view.cordoned)
    if not free:
        raise WrongError("no shard takes new topics: open one again (`imago shard undrain`)")
    return free


def shard_number(entry: object) -> int:
    """Return the number of a shard that is named like 0 or shard-0; ValueError."""
    text = str(entry).removeprefix("shard-")
    number = whole_of(text)
    if number is None or number < 0 or isinstance(entry, bool):
        raise WrongError(f'shards: {as_json(entry)}, must be like 0 or "shard-0"')
    return number


async def delete(services: AdminServices, request: web.Request) -> web.Response:
    """DELETE /admin/v1/topics/{topic}: with its messages and offsets, on every shard."""
    name = request.match_info["topic"]
    if names.is_system(name, services.topics.cluster):
        raise system_topic(name)
    only = may_have(services.coordinator.view(), name)
    here = services.topics.delete(name)
    services.offsets.forget_topic(name)
    shards = await on_other_shards(services, request, here=here, only=only)
    if OK not in shards.values():
        raise not_found("topic", name, (t.name for t in services.topics.all()))
    return json_response({"deleted": name, "shards": shards})


def _is_elsewhere(services: AdminServices, name: str) -> bool:
    """Whether another shard has the topic; the registry may still name ours where it is gone."""
    placed = services.coordinator.view().topics.get(name)
    return placed is not None and bool({*placed.shards} - {services.config.broker.shard})


def refuse_own(services: AdminServices, name: str) -> None:
    """Refuse to make or change what brokers have for themselves."""
    if names.own_problem(name, services.topics.cluster):
        raise system_topic(name)


def system_topic(name: str) -> AdminError:
    """The refusal of a change to what brokers have for themselves."""
    return AdminError(403, "system_topic", f"{name!r:.200} is the broker's own.", "Leave it.")


def known(services: AdminServices, name: str) -> TopicConfig:
    config = services.topics.get(name)
    if config is None:
        raise not_found("topic", name, (t.name for t in services.topics.all()))
    return config


def summary(services: AdminServices, name: str) -> dict[str, Any]:
    """A topic's settings with how many messages it holds on this shard."""
    config = known(services, name)
    ranges = [services.store.queue_range(name, q) for q in range(config.queues)]
    messages = sum(end - first for first, end in ranges)
    return shown(services, config) | {"messages": messages}


def shown(services: AdminServices, config: TopicConfig) -> dict[str, Any]:
    """A topic's settings."""
    return views.topic(config, services.config.acknowledgement_level)


async def queues(services: AdminServices, config: TopicConfig) -> list[dict[str, Any]]:
    """The bounds of each queue; others are served in between."""
    store, found = services.store, []
    for number in range(config.queues):
        if number % QUEUES_AT_ONCE == QUEUES_AT_ONCE - 1:
            await asyncio.sleep(0)
        bounds = store.queue_range(config.name, number)
        positions = store.position_range(config.name, number) if config.dual else None
        newest = bounds[1] - 1
        last = store.store_time(config.name, number, newest) if newest >= bounds[0] else None
        size = queue_bytes(store, config.name, number)
        found.append(views.queue(number, bounds, positions, last, size))
    return found


def changed(config: TopicConfig, body: Mapping[str, Any]) -> TopicConfig:
    """Return the settings with the named ones replaced; ValueError says what is wrong."""
    write, read = queues_of(config, body)
    if "perm" in body and (problem := model.perm_problem(body["perm"])):
        raise WrongError(problem)
    order = body.get("order", config.order)
    if not isinstance(order, bool):
        raise WrongError(f"order: {as_json(order)}, must be true or false")
    return model.TopicConfig(
        name=config.name,
        read_queues=read,
        write_queues=write,
        perm=body.get("perm", config.perm),
        order=order,
        sys_flag=config.sys_flag,
        filter_type=config.filter_type,
        attributes=dict(config.attributes) | named_attributes(body),
    )


def queues_of(config: TopicConfig, body: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many queues are to be written and read; a refusal names the key that was sent."""
    write, read = config.write_queues, config.read_queues
    if "queues" in body:
        write = read = whole(body, "queues", 0)
        if write > names.PARTITIONS_MAX:
            raise WrongError(f"queues: {write}, must be 1 to {names.PARTITIONS_MAX}")
    return whole(body, "writeQueues", write), whole(body, "readQueues", read)


def named_attributes(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the attributes that are named, also those that have a key of their own."""
    level = body.get("acknowledgement")
    if level is not None and level not in LEVELS:
        raise WrongError(f"acknowledgement: {as_json(level)}, must be one of {', '.join(LEVELS)}")
    attributes = attributes_of(body)
    for key, name in [("dialects", model.DIALECTS), ("acknowledgement", model.ACKNOWLEDGEMENT)]:
        if (text := body.get(key)) is not None:
            if not isinstance(text, str):
                raise WrongError(f"{key}: {as_json(text)}, must be a text")
            attributes[name] = text
    if body.get("retentionMs") is not None:
        attributes[model.RETENTION_MS] = str(whole(body, "retentionMs", 0))
    return attributes


def attributes_of(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the attributes that are named: texts, or numbers and booleans written as such."""
    named = body.get("attributes")
    if named is None:
        return {}
    if not isinstance(named, dict):
        raise WrongError(f"attributes: {as_json(named)}, must be an object of texts")
    for name, value in named.items():
        if not isinstance(value, str | int):
            raise WrongError(f"attributes: {as_json(name)} is {as_json(value)}, must be a text")
    if problem := unknown_problem(named):
        raise WrongError(problem)
    return {name: model.attribute_text(value) for name, value in named.items()}


def whole(body: Mapping[str, Any], key: str, default: int) -> int:
    value = body.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise WrongError(f"{key}: {as_json(value)}, must be a whole number, not negative")
    return value
