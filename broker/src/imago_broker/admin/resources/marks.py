"""Routes about whether a shard takes anything new, and whether anything is left on it.

Each stands alone for the broker's own shard, and below `/admin/v1/shards/{shard}` for any shard at
any broker: the registry holds what is wanted of a shard, and what is left on it is asked of its
master.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.admin.calls.guard import json_body, json_response
from imago_broker.admin.errors import CURE_ROOM, AdminError, bad_request, refuse_unknown
from imago_broker.admin.resources.topics import shard_number
from imago_broker.admin.shards.leadership import expected, request_id, unavailable, who
from imago_broker.admin.shards.shards import asked_of_master, require_shard
from imago_broker.core.placing.placement import rooms
from imago_broker.model.bounds import as_json
from imago_broker.model.registry.cluster import shard_name
from imago_broker.ports import CoordinatorConflictError, CoordinatorError, UnknownShardError
from imago_broker.shard_work import readers
from imago_broker.shard_work.draining import close_for_good
from imago_broker.shard_work.remaining import measure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.model.registry.cluster import ClusterView


async def cordon(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/cordon, /admin/v1/shards/{shard}/cordon: the shard takes no new topics."""
    shard, _ = await _asked(services, request)
    try:
        await services.marks.mark_shard(shard, cordoned=True)
    except CoordinatorError as error:
        raise unavailable(error) from error
    return json_response({"cordoned": True} | _said(services, shard))


async def drain(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/drain, /admin/v1/shards/{shard}/drain {"move": true}: close its topics here.

    They go on on other shards, or with `"move": false` nowhere. Repeat it as you like.
    """
    shard, body = await _asked(services, request, "move")
    move = body.get("move", True)
    if not isinstance(move, bool):
        raise bad_request(f"move: {as_json(move)}.", "Send true or false.")
    view = services.coordinator.view()
    if move and shard not in view.draining and (reason := _no_room(view, shard)):
        raise AdminError(409, "too_few_shards", reason, CURE_ROOM)
    try:
        await services.marks.drain_shard(shard, request_id(request, body), move=move)
    except CoordinatorConflictError as error:
        raise AdminError(409, "taken_back", f"{error}.", "Ask with a new request id.") from error
    except CoordinatorError as error:
        raise unavailable(error) from error
    services.work.drainer.wake()
    return json_response({"draining": True, "move": move} | _said(services, shard))


async def undrain(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/undrain, uncordon, and below /admin/v1/shards/{shard}: take topics again.

    First those come back that the drain has closed.
    """
    shard, _ = await _asked(services, request)
    try:
        await services.marks.undrain_shard(shard)
    except CoordinatorError as error:
        raise unavailable(error) from error
    services.work.drainer.reconsider()
    return json_response({"draining": False, "cordoned": False} | _said(services, shard))


async def remaining(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/shards/{shard}/remaining: what somebody may need of it still."""
    shard = _shard(services, request)
    if answer := await asked_of_master(services, request, shard):
        return answer
    left = await measure(services, "")
    return json_response(left.to_json() | who(services))


async def mark_drained(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/shards/{shard}/drained: put on record that nothing of value is left on it.

    Its master looks again itself, and refuses with 409 where something is, or may come.
    """
    shard, _ = await _asked(services, request)
    if answer := await asked_of_master(services, request, shard):
        return answer
    if shard not in services.coordinator.view().cordoned:
        raise AdminError(
            409, "not_cordoned", f"{shard_name(shard)} takes new topics.", "Cordon or drain it."
        )
    drainer = services.work.drainer
    with services.topics.intake.shut():  # what is recorded then stays true
        await _require_read_out(services, shard)
        recorded = False
        try:
            close_for_good(services)
            if problem := await services.replicated():
                raise AdminError(503, "not_replicated", f"{problem}.", "Ask again.")
            await _require_read_out(services, shard)
            await readers.tell(services)
            await services.marks.mark_shard(shard, cordoned=True, drained=True)
            recorded = True
        except CoordinatorError as error:
            raise unavailable(error) from error
        finally:
            if not recorded:
                drainer.reconsider()
    return json_response({"drained": True} | _said(services, shard))


async def _require_read_out(services: AdminServices, shard: int) -> None:
    left = await measure(services, "")
    if not left.done:
        raise AdminError(
            409,
            "not_drained",
            f"{shard_name(shard)} is not empty: queues that take messages: "
            f"{left.open_queues}, unread messages: {left.unread.messages}, delayed messages: "
            f"{left.delayed}, transactions: {left.transactions}"
            + (f"; {left.blocked}" if left.blocked else "."),
            f"`imago shard drained {shard}`, or GET /admin/v1/shards/{shard}/remaining, says.",
        )


async def remove(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/shards/{shard}/remove: forget a shard that is drained and stopped."""
    shard, _ = await _asked(services, request, gone=True)
    try:
        await services.marks.forget_shard(shard)
    except UnknownShardError as error:
        raise AdminError(
            404,
            "shard_not_found",
            f"There is no {shard_name(shard)}.",
            "If it was removed just now, nothing is left to do.",
        ) from error
    except CoordinatorConflictError as error:
        raise AdminError(
            409, "in_use", f"{error}.", "Drain it, wait until it is drained, stop its brokers."
        ) from error
    except CoordinatorError as error:
        raise unavailable(error) from error
    return json_response({"removed": shard_name(shard)})


async def _asked(
    services: AdminServices, request: web.Request, *keys: str, gone: bool = False
) -> tuple[int, Mapping[str, object]]:
    """Return the shard that is meant, and the body.

    Only calls for the broker's own shard may name the broker and the epoch that they mean.
    `gone`: a shard that there is not is as it is to be.
    """
    shard = _shard(services, request)
    if not gone and "shard" in request.match_info:
        require_shard(services.coordinator.view(), shard)
    if "shard" not in request.match_info:
        return shard, await expected(services, request, keys)
    body = await json_body(request)
    refuse_unknown(body, (*keys, "requestId"))
    return shard, body


def _shard(services: AdminServices, request: web.Request) -> int:
    named = request.match_info.get("shard")
    try:
        return services.config.broker.shard if named is None else shard_number(named)
    except ValueError as error:
        raise bad_request(f"{error}.", "Name a shard.") from error


def _said(services: AdminServices, shard: int) -> dict[str, object]:
    if shard == services.config.broker.shard:
        return who(services)
    return {"shard": shard_name(shard)}


def _no_room(view: ClusterView, leaving: int) -> str:
    """Return why no other shard can take this one's topics; empty when one can."""
    others = sorted({*view.shards(), *view.known} - {leaving})
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
