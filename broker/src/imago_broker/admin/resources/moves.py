"""Routes that move topics between shards.

Any broker takes them: a topic leaves a shard by its master (`from`; this broker's shard unless
given), and comes to more shards through one that has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.admin.calls.guard import json_body, json_response
from imago_broker.admin.errors import CURE_ROOM, AdminError, bad_request
from imago_broker.admin.resources.topics import known, shard_number
from imago_broker.admin.shards.leadership import OPERATOR_EPOCH, expected
from imago_broker.admin.shards.opening import settled
from imago_broker.admin.shards.shards import asked_of_master, require_masters
from imago_broker.core.placing.placement import rooms
from imago_broker.model import names
from imago_broker.model.registry.cluster import shard_name
from imago_broker.model.topics.sealing import MOVE, seal_of
from imago_broker.shard_work.calls import own_headers
from imago_broker.shard_work.draining import open_elsewhere
from imago_broker.shard_work.opening import open_on
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.model.topics.topics import TopicConfig

CURE_OTHER = f"Name another: `imago cluster status` lists them. {CURE_ROOM}"
ANY = "any"
"""In place of shards: as many as the topic loses, chosen as a drain chooses them."""


async def move(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/topics/{topic}/move {"from": shard, "to": [shards]}: open there, seal here.

    `to` may be "any": then it keeps the number of shards that it has, as in a drain.
    """
    if answer := await _elsewhere(services, request):
        return answer
    body = await expected(services, request, ("from", "to"))
    config = known(services, _client_topic(services, request))
    headers = _headers(request)
    if body.get("to") == ANY:
        try:
            to: Collection[int] = await open_elsewhere(services, config, headers)
        except ValueError as error:
            raise AdminError(409, "no_room", f"{error}.", CURE_ROOM) from error
    else:
        to = _named(services, body.get("to")) - {services.config.broker.shard}
        if not to:
            raise bad_request(
                "to: no shard but this one.",
                "Name the shards that take the topic (`imago cluster status` lists them). Is there"
                f" one alone? {CURE_ROOM}",
            )
        for shard in sorted(to):
            await open_on(services, shard, config, headers)
    return await _sealed(services, config, to)


async def seal(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/topics/{topic}/seal {"from": shard}: it takes no more messages there."""
    if answer := await _elsewhere(services, request):
        return answer
    await expected(services, request, ("from",))
    return await _sealed(services, known(services, _client_topic(services, request)), ())


async def _sealed(
    services: AdminServices, config: TopicConfig, to: Collection[int]
) -> web.Response:
    until_ms = services.clock.epoch_ms() + services.config.broker.seal_linger_ms
    config = services.topics.seal(config.name, until_ms=until_ms, cause=MOVE) or config
    await settled(services, config)
    found = seal_of(config)
    return json_response(
        {
            "topic": config.name,
            "from": shard_name(services.config.broker.shard),
            "to": [shard_name(shard) for shard in sorted(to)],
            "takesMessagesUntil": found.until_ms if found else None,
        }
    )


async def _elsewhere(services: AdminServices, request: web.Request) -> web.Response | None:
    """Have the master of the shard that a topic leaves answer; None: it leaves ours."""
    named = (await json_body(request)).get("from")
    try:
        shard = services.config.broker.shard if named is None else shard_number(named)
    except ValueError as error:
        raise bad_request(f"from: {error}.", "Name a shard.") from error
    if shard == services.config.broker.shard:
        return None
    return await asked_of_master(services, request, shard)


async def spread(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/topics/{topic}/spread {"to": [shards]}: open it on more shards, or on all."""
    own = services.config.broker.shard
    placed = services.coordinator.view().topics.get(_client_topic(services, request))
    elsewhere = sorted(placed.shards) if placed is not None and own not in placed.shards else []
    if elsewhere and (answer := await asked_of_master(services, request, elsewhere[0])):
        return answer
    body = await expected(services, request, ("to",))
    config = known(services, _client_topic(services, request))
    view = services.coordinator.view()
    free = {room.shard for room in rooms(view)}
    if body.get("to") is None:
        require_masters(view, frozenset(view.away()) - view.cordoned)
    to = free if body.get("to") is None else _named(services, body["to"])
    for shard in sorted(to - {own}):
        await open_on(services, shard, config, _headers(request))
    if own in to and seal_of(config) is not None:
        config = services.topics.unseal(config.name) or config
        await settled(services, config)
    return json_response(
        {"topic": config.name, "shards": [shard_name(shard) for shard in sorted(to)]}
    )


def _client_topic(services: AdminServices, request: web.Request) -> str:
    name = request.match_info["topic"]
    if names.is_system(name, services.topics.cluster) or names.is_derived(name):
        raise AdminError(
            403,
            "system_topic",
            f"{name!r:.200} is the broker's or a group's own.",
            "It leaves a shard that is drained.",
        )
    return name


def _named(services: AdminServices, asked: object) -> set[int]:
    try:
        if not isinstance(asked, list):
            raise WrongError(f"to: {asked!r:.60}, must be a list of shards")
        wanted = {shard_number(entry) for entry in asked}
    except ValueError as error:
        raise bad_request(f"{error}.", 'Send like ["shard-1"].') from error
    free = {room.shard for room in rooms(services.coordinator.view())}
    if unknown := sorted(wanted - free - {services.config.broker.shard}):
        listed = ", ".join(map(shard_name, unknown))
        raise AdminError(409, "no_room", f"{listed}: not there, or cordoned.", CURE_OTHER)
    return wanted


def _headers(request: web.Request) -> dict[str, str]:
    headers = own_headers()
    if OPERATOR_EPOCH in request.headers:
        headers[OPERATOR_EPOCH] = request.headers[OPERATOR_EPOCH]
    return headers
