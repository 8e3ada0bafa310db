"""Routes of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_broker.admin import views
from imago_broker.admin.errors import AdminError, bad_request, not_found, refuse_unknown
from imago_broker.admin.guard import json_body, json_response
from imago_broker.admin.paging import page
from imago_broker.admin.shards import OK, is_forwarded, on_other_shards, rooms, topic_elsewhere
from imago_broker.config.settings import LEVELS
from imago_broker.core.placement import Room, choose
from imago_broker.errors import BrokerError, HidesMessagesError
from imago_broker.model import names
from imago_broker.model import topics as model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.model.topics import TopicConfig

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
    """GET /admin/v1/topics: settings and message counts, system topics with `?system=true`."""
    system = request.query.get("system") == "true"
    listed = [t.name for t in services.topics.all() if system or not names.is_system(t.name)]
    return json_response(page(sorted(listed), request.query, lambda n: summary(services, n)))


async def show(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/topics/{topic}: settings, and the bounds of each queue."""
    name = request.match_info["topic"]
    config = known(services, name)
    return json_response(summary(services, name) | {"queues": queues(services, config)})


async def put(services: AdminServices, request: web.Request) -> web.Response:
    """PUT /admin/v1/topics/{topic}: create it, or change the named settings, on its shards.

    `shards`: how many a new topic gets, or which; all that take new topics unless given. A topic
    keeps the shards it has. `hideMessages`: fewer queues may be read, whatever the others hold.
    """
    name = request.match_info["topic"]
    body = await json_body(request)
    refuse_unknown(body, KEYS)
    hide = allowed(body)
    elsewhere = await hidden_elsewhere(services, request, name, body)
    if elsewhere and not hide:
        raise hides(f"topic {name}: messages of other shards would be hidden ({elsewhere})")
    known_before = name in services.coordinator.view().topics
    before = services.topics.get(name)
    try:
        wanted = changed(before or model.TopicConfig(name=name), body)
        shards = None if is_forwarded(request) else placement(services, name, body.get("shards"))
        here = shards is None or services.config.broker.shard in shards
        hidden = elsewhere + (services.topics.hidden_by(wanted) if here else 0)
        config = services.topics.create_or_update(wanted, hide_messages=hide) if here else wanted
    except HidesMessagesError as error:
        raise hides(str(error)) from error
    except (ValueError, BrokerError) as error:
        raise bad_request(f"Topic {name!r:.200}: {error}.", "Correct that setting.") from error
    done = await on_other_shards(services, request, only=shards)
    answer = summary(services, config.name) if here else shown(services, config)
    created = not (before or known_before)
    said = {"shards": done} | ({"hiddenMessages": hidden} if hidden else {})
    return json_response(answer | said, status=201 if created else 200)


def allowed(body: Mapping[str, Any]) -> bool:
    """Return whether messages may be hidden; AdminError for what is neither true nor false."""
    hide = body.get(HIDE_MESSAGES, False)
    if not isinstance(hide, bool):
        raise bad_request(f"{HIDE_MESSAGES}: {hide!r:.60}, must be true or false.", "Correct it.")
    return hide


def hides(text: str) -> AdminError:
    """The refusal of a change after which readers would no longer find what is stored."""
    return AdminError(
        409,
        "hides_messages",
        f"{text[:1].upper()}{text[1:]}.",
        f"Keep the number of queues, or send {HIDE_MESSAGES}: true.",
    )


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
        return has or numbers
    if isinstance(asked, list):
        named = frozenset(shard_number(entry) for entry in asked)
        if unknown := sorted(named - numbers - has):
            raise ValueError(f"shards: {unknown} do not take new topics")
    elif isinstance(asked, int) and not isinstance(asked, bool) and asked >= 1:
        # Those that it has left, by a drain or a move, do not count, and are not opened again.
        takes = [n for n in has if before and before.shards[n].write]
        taken = [Room(n, 0, master.zone) for n in takes if (master := view.master(n))]
        others = [room for room in free if room.shard not in has]
        named = has | set(choose(others, max(0, asked - len(takes)), taken=taken))
        if asked < len(takes):
            raise ValueError(f"shards: {asked}, but the topic has queues on {len(takes)}")
    else:
        raise ValueError(f"shards: {asked!r:.60}, must be a number or a list of shards")
    if missing := sorted(has - named):
        raise ValueError(
            f"shards: {missing} hold messages of the topic: nothing is taken from them"
        )
    return named


def shard_number(entry: object) -> int:
    """Return the number of a shard that is named like 0 or shard-0; ValueError."""
    text = str(entry).removeprefix("shard-")
    if not text.isdecimal():
        raise ValueError(f'shards: {entry!r:.60}, must be like 0 or "shard-0"')
    return int(text)


async def delete(services: AdminServices, request: web.Request) -> web.Response:
    """DELETE /admin/v1/topics/{topic}: with its messages and offsets, on every shard."""
    name = request.match_info["topic"]
    if names.is_system(name):
        raise AdminError(403, "system_topic", f"{name!r} is the broker's own.", "Leave it.")
    here = services.topics.delete(name)
    services.offsets.forget_topic(name)
    shards = await on_other_shards(services, request, here=here)
    if OK not in shards.values():
        raise not_found("topic", name, (t.name for t in services.topics.all()))
    return json_response({"deleted": name, "shards": shards})


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


def queues(services: AdminServices, config: TopicConfig) -> list[dict[str, Any]]:
    store, found = services.store, []
    for number in range(config.queues):
        bounds = store.queue_range(config.name, number)
        positions = store.position_range(config.name, number) if config.dual else None
        newest = bounds[1] - 1
        last = store.store_time(config.name, number, newest) if newest >= bounds[0] else None
        found.append(views.queue(number, bounds, positions, last))
    return found


def changed(config: TopicConfig, body: Mapping[str, Any]) -> TopicConfig:
    """Return the settings with the named ones replaced; ValueError says what is wrong."""
    both = whole(body, "queues", config.write_queues)
    write = whole(body, "writeQueues", both if "queues" in body else config.write_queues)
    read = whole(body, "readQueues", both if "queues" in body else config.read_queues)
    level = body.get("acknowledgement")
    if level is not None and level not in LEVELS:
        raise ValueError(f"acknowledgement: {level!r}, must be one of {', '.join(LEVELS)}")
    attributes = {str(k): str(v) for k, v in dict(body.get("attributes") or {}).items()}
    for key, name in [("dialects", model.DIALECTS), ("acknowledgement", model.ACKNOWLEDGEMENT)]:
        if body.get(key) is not None:
            attributes[name] = str(body[key])
    if body.get("retentionMs") is not None:
        attributes[model.RETENTION_MS] = str(whole(body, "retentionMs", 0))
    order = body.get("order", config.order)
    if not isinstance(order, bool):
        raise ValueError(f"order: {order!r}, must be true or false")  # noqa: TRY004
    return model.TopicConfig(
        name=config.name,
        read_queues=read,
        write_queues=write,
        perm=whole(body, "perm", config.perm),
        order=order,
        sys_flag=config.sys_flag,
        filter_type=config.filter_type,
        attributes=dict(config.attributes) | attributes,
    )


def whole(body: Mapping[str, Any], key: str, default: int) -> int:
    value = body.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{key}: {value!r}, must be a whole number, not negative")
    return value
