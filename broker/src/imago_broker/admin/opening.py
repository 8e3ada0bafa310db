"""Opening a topic's queues on other shards, over the admin interfaces of their masters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
import orjson
from aiohttp import web

from imago_broker.admin.calls import call
from imago_broker.admin.errors import AdminError, bad_request, refuse_unknown
from imago_broker.admin.guard import json_body, json_response
from imago_broker.admin.shards import TIMEOUT
from imago_broker.errors import BrokerError
from imago_broker.model import names
from imago_broker.model.cluster import shard_name
from imago_broker.model.groups import GroupConfig
from imago_broker.model.placed import placement
from imago_broker.model.sealing import seal_of, takes_messages, unsealed
from imago_broker.model.topics import PERM_WRITE, TopicConfig
from imago_broker.ports import CoordinatorError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.admin.services import AdminServices

WAIT_SECONDS_MAX = 10.0


async def open_on(
    services: AdminServices, shard: int, config: TopicConfig, headers: Mapping[str, str]
) -> None:
    """Have a topic take messages on another shard; returns once its clients can find it there.

    AdminError: whether it does is unknown. To ask again changes nothing.
    """
    master = services.coordinator.view().master(shard)
    if master is None or not master.admin:
        raise AdminError(
            503, "no_master", f"{shard_name(shard)} has no master to ask.", "Repeat the call."
        )
    named = quote(config.name, safe="")
    path = f"/admin/v1/topics/{named}/open"
    told = {"topic": unsealed(config).to_json(), "groups": _groups(services, config.name)}
    body = orjson.dumps(told)
    try:
        async with (
            aiohttp.ClientSession(timeout=TIMEOUT) as session,
            call(session, services, master, "POST", path, headers=headers, body=body) as answer,
        ):
            if answer.status >= 300:
                said = (await answer.text())[:200]
                raise AdminError(
                    502, "shard_failed", f"{shard_name(shard)}: {said}", "Repeat the call."
                )
    except (aiohttp.ClientError, TimeoutError) as error:
        raise AdminError(
            502,
            "shard_failed",
            f"{shard_name(shard)}: {type(error).__name__} at {master.host}:{master.admin}.",
            "Repeat the call.",
        ) from error


async def open_here(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/topics/{topic}/open: have a topic take messages on this shard too.

    Asked by the masters of other shards: `topic` are its settings there, `groups` those of the
    groups that read it. Groups begin at the start of queues that are new here, whatever their
    consumers do in a topic that they have never seen.
    """
    name = request.match_info["topic"]
    body = await json_body(request)
    refuse_unknown(body, ("topic", "groups"))
    if services.config.broker.shard in services.coordinator.view().cordoned:
        raise AdminError(
            409, "cordoned", "This shard takes no new topics.", "Name another, or uncordon it."
        )
    try:
        wanted = TopicConfig.from_json({**_mapping(body.get("topic")), "name": name})
        groups = [GroupConfig.from_json(value) for value in _mapping(body.get("groups")).values()]
        config = services.topics.create_or_update(_opened(services.topics.get(name), wanted))
        if seal_of(config) is not None:
            config = services.topics.unseal(name) or config
        for group in groups:
            begin(services, group, config)
    except (ValueError, KeyError, TypeError, AttributeError, BrokerError) as error:
        raise bad_request(f"Topic {name!r:.200}: {error}.", "Correct that setting.") from error
    await settled(services, config)
    return json_response({"topic": name, "queues": config.write_queues})


def begin(services: AdminServices, group: GroupConfig, config: TopicConfig) -> None:
    """Make a group known here, which reads a topic's queues from their first message on."""
    if services.groups.get(group.name) is None:
        services.groups.update(group)
    told = services.offsets.of_topic(config.name).get(group.name, {})
    for queue in range(config.queues):
        if queue not in told and services.store.queue_range(config.name, queue) == (0, 0):
            services.offsets.commit(group.name, config.name, queue, 0)


async def settled(services: AdminServices, config: TopicConfig) -> None:
    """Wait until no failover takes a topic's change back, then tell clients."""
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            problem = await services.replicated()
            entry = placement(config, services.config.broker.shard)
            await services.coordinator.publish_topic(entry)
    except TimeoutError:
        problem = "the other members of the shard do not follow"
    except CoordinatorError as error:
        problem = str(error)
    if problem:
        raise AdminError(503, "not_settled", f"Changed here, but {problem}.", "Repeat the call.")


def _opened(current: TopicConfig | None, wanted: TopicConfig) -> TopicConfig:
    """Return the settings with which the topic takes messages: those it has here, if it does."""
    if current is None:
        return wanted
    opened = unsealed(current)
    if takes_messages(opened):
        return current
    write = opened.write_queues or max(1, wanted.write_queues)
    return TopicConfig(
        name=current.name,
        read_queues=max(opened.read_queues, write),
        write_queues=write,
        perm=opened.perm | PERM_WRITE,
        order=opened.order,
        sys_flag=opened.sys_flag,
        filter_type=opened.filter_type,
        attributes=opened.attributes,
    )


def _groups(services: AdminServices, topic: str) -> dict[str, Any]:
    groups = set(services.offsets.of_topic(topic))
    if names.is_derived(topic):
        groups.add(topic.split("%", 2)[2])
    configs = (services.groups.get(group) for group in sorted(groups))
    return {config.name: config.to_json() for config in configs if config is not None}


def _mapping(value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{value!r:.60}, must be an object")  # noqa: TRY004  said to the caller
    return value
