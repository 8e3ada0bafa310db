"""Routes that move topics between shards, and take shards that hold nothing any more away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from imago_broker.admin.draining import Drainer
from imago_broker.admin.errors import AdminError, bad_request, refuse_unknown
from imago_broker.admin.guard import json_body, json_response
from imago_broker.admin.leadership import OPERATOR_EPOCH, expected, request_id, unavailable, who
from imago_broker.admin.opening import open_on, settled
from imago_broker.admin.shards import own_headers, rooms
from imago_broker.admin.topics import known, shard_number
from imago_broker.model import names
from imago_broker.model.cluster import shard_name
from imago_broker.model.sealing import MOVE, seal_of
from imago_broker.ports import CoordinatorConflictError, CoordinatorError

if TYPE_CHECKING:
    from imago_broker.admin.services import AdminServices
    from imago_broker.model.cluster import ClusterView

DRAINER = web.AppKey("drainer", Drainer)


async def drain(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/drain: move all topics of this shard to others; repeat it as you like."""
    body = await expected(services, request, ())
    view, own = services.coordinator.view(), services.config.broker.shard
    if own not in view.draining and (reason := _no_room(view, own)):
        raise AdminError(409, "too_few_shards", reason, "Add a shard, or uncordon one.")
    try:
        await services.coordinator.drain_shard(own, request_id(request, body))
    except CoordinatorConflictError as error:
        raise AdminError(409, "taken_back", f"{error}.", "Ask with a new request id.") from error
    except CoordinatorError as error:
        raise unavailable(error) from error
    request.app[DRAINER].wake()
    return json_response({"draining": True} | who(services))


async def undrain(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/undrain and uncordon: this shard takes topics again, first its own."""
    await expected(services, request, ())
    try:
        await services.coordinator.undrain_shard(services.config.broker.shard)
    except CoordinatorError as error:
        raise unavailable(error) from error
    request.app[DRAINER].wake()
    return json_response({"draining": False, "cordoned": False} | who(services))


async def remove(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/shards/{shard}/remove: forget a shard that is drained and stopped."""
    refuse_unknown(await json_body(request), ("requestId",))
    try:
        shard = shard_number(request.match_info["shard"])
        await services.coordinator.forget_shard(shard)
    except ValueError as error:
        raise bad_request(f"{error}.", "Name a shard.") from error
    except CoordinatorConflictError as error:
        raise AdminError(
            409, "in_use", f"{error}.", "Drain it, wait until it is drained, stop its brokers."
        ) from error
    except CoordinatorError as error:
        raise unavailable(error) from error
    return json_response({"removed": shard_name(shard)})


async def move(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/topics/{topic}/move {"to": [shards]}: open it there, seal it here."""
    body = await expected(services, request, ("to",))
    config = known(services, _client_topic(request))
    own = services.config.broker.shard
    to = _named(services, body.get("to")) - {own}
    if not to:
        raise bad_request("to: no shard but this one.", "Name the shards that take the topic.")
    for shard in sorted(to):
        await open_on(services, shard, config, _headers(services, request))
    until_ms = services.clock.epoch_ms() + services.config.broker.seal_linger_ms
    config = services.topics.seal(config.name, until_ms=until_ms, cause=MOVE) or config
    await settled(services, config)
    seal = seal_of(config)
    return json_response(
        {
            "topic": config.name,
            "from": shard_name(own),
            "to": [shard_name(shard) for shard in sorted(to)],
            "takesMessagesUntil": seal.until_ms if seal else None,
        }
    )


async def spread(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/topics/{topic}/spread {"to": [shards]}: open it on more shards, or on all."""
    body = await expected(services, request, ("to",))
    config = known(services, _client_topic(request))
    own = services.config.broker.shard
    free = {room.shard for room in rooms(services.coordinator.view())}
    to = free if body.get("to") is None else _named(services, body["to"])
    for shard in sorted(to - {own}):
        await open_on(services, shard, config, _headers(services, request))
    if own in to and seal_of(config) is not None:
        config = services.topics.unseal(config.name) or config
        await settled(services, config)
    return json_response(
        {"topic": config.name, "shards": [shard_name(shard) for shard in sorted(to)]}
    )


def _no_room(view: ClusterView, own: int) -> str:
    """Return why no other shard can take this one's topics; empty when one can."""
    others = sorted({*view.shards(), *view.known} - {own})
    if not others:
        return "There is no other shard"
    free = {room.shard for room in rooms(view)}
    if any(n in free and (m := view.master(n)) and m.admin for n in others):
        return ""
    causes = (f"{shard_name(n)} {_closed(view, n)}" for n in others)
    return f"No other shard takes topics: {', '.join(causes)}."


def _closed(view: ClusterView, shard: int) -> str:
    if shard in view.cordoned:
        return "is cordoned"
    return "has no master" if view.master(shard) is None else "has no admin interface"


def _client_topic(request: web.Request) -> str:
    name = request.match_info["topic"]
    if names.is_system(name) or names.is_derived(name):
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
            raise ValueError(f"to: {asked!r:.60}, must be a list of shards")  # noqa: TRY301, TRY004
        wanted = {shard_number(entry) for entry in asked}
    except ValueError as error:
        raise bad_request(f"{error}.", 'Send like ["shard-1"].') from error
    free = {room.shard for room in rooms(services.coordinator.view())}
    if unknown := sorted(wanted - free - {services.config.broker.shard}):
        listed = ", ".join(map(shard_name, unknown))
        raise AdminError(409, "no_room", f"{listed}: not there, or cordoned.", "Name another.")
    return wanted


def _headers(services: AdminServices, request: web.Request) -> dict[str, str]:
    headers = own_headers(services.config)
    if OPERATOR_EPOCH in request.headers:
        headers[OPERATOR_EPOCH] = request.headers[OPERATOR_EPOCH]
    return headers
