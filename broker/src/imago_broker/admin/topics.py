"""Routes of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_broker.admin import views
from imago_broker.admin.errors import AdminError, bad_request, not_found, refuse_unknown
from imago_broker.admin.guard import json_body, json_response
from imago_broker.admin.paging import page
from imago_broker.admin.shards import OK, on_other_shards
from imago_broker.config.settings import LEVELS
from imago_broker.errors import BrokerError
from imago_broker.model import names
from imago_broker.model import topics as model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.model.topics import TopicConfig

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
    """PUT /admin/v1/topics/{topic}: create it, or change the named settings, on every shard."""
    name = request.match_info["topic"]
    body = await json_body(request)
    refuse_unknown(body, KEYS)
    before = services.topics.get(name)
    try:
        config = changed(before or model.TopicConfig(name=name), body)
        config = services.topics.create_or_update(config)
    except (ValueError, BrokerError) as error:
        raise bad_request(f"Topic {name!r:.200}: {error}.", "Correct that setting.") from error
    shards = await on_other_shards(services, request)
    answer = summary(services, config.name) | {"shards": shards}
    return json_response(answer, status=200 if before else 201)


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
    level = services.config.acknowledgement_level
    return views.topic(config, level) | {"messages": messages}


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
