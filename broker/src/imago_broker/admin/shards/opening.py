"""Opening a topic's queues on other shards, over the admin interfaces of their masters."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from imago_broker.admin.calls.guard import json_body, json_response
from imago_broker.admin.errors import AdminError, bad_request, refuse_unknown
from imago_broker.errors import BrokerError
from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics.attributes import of_every_shard
from imago_broker.model.topics.placed import placement
from imago_broker.model.topics.sealing import seal_of, takes_messages, unsealed
from imago_broker.model.topics.topics import PERM_WRITE, TopicConfig
from imago_broker.ports import CoordinatorError
from imago_wire.errors import WrongError, in_our_words

if TYPE_CHECKING:
    from aiohttp import web

    from imago_broker.admin.services import AdminServices

WAIT_SECONDS_MAX = 10.0


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
        wanted = TopicConfig.said({**_mapping(body.get("topic")), "name": name})
        said = _mapping(body.get("groups")).values()
        groups = [GroupConfig.said(_mapping(value)) for value in said]
        opened = _opened(services.topics.get(name), wanted)
        config = services.topics.create_or_update(opened, sent_to=True)
        if seal_of(config) is not None:
            config = services.topics.unseal(name) or config
        for group in groups:
            begin(services, group, config)
    except (ValueError, BrokerError) as error:
        raise bad_request(
            f"Topic {name!r:.200}: {in_our_words(error)}.", "Correct that setting."
        ) from error
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
        return replace(wanted, attributes=of_every_shard(wanted.attributes))
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


def _mapping(value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise WrongError(f"{value!r:.60}, must be an object")
    return value
