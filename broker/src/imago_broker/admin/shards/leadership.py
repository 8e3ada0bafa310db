"""Routes about who leads: the shard, handover, election, restarts, the operator's fence.

Cordons and drains are in `marks`.

A changing call may name the broker (`brokerId`, its uuid) and the shard's epoch (`epoch`) that the
caller has seen: it is refused with 409 when either is another one by now. `requestId`, or else
the header `Idempotency-Key`, names the request. The header `Imago-Operator-Epoch` is compared with
the fence that `POST /admin/v1/operator-epoch` raises; a lower one gets 409.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from aiohttp import web

from imago_broker.admin import views
from imago_broker.admin.calls.guard import CHANGING, json_body, json_response
from imago_broker.admin.errors import AdminError, bad_request, refuse_unknown
from imago_broker.admin.paging import whole_of
from imago_broker.core.restart import risks
from imago_broker.core.shard.steps.handing_over import LEADS_ALREADY
from imago_broker.model.registry.cluster import shard_name
from imago_broker.ports import (
    CoordinatorConflictError,
    CoordinatorError,
    ShardRefusedError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp.typedefs import Middleware

    from imago_broker.admin.services import AdminServices
    from imago_broker.core.restart import RestartRisks
    from imago_broker.model.registry.cluster import BrokerRecord

OPERATOR_EPOCH = "Imago-Operator-Epoch"
EXPECTED = ("brokerId", "epoch", "requestId")
NOTHING_TO_DO = "Nothing is to be done."
CURE_WAIT = "Wait until it is: `imago shard show`, or GET /admin/v1/shard, says who is in sync."
CURE_AGAIN = "Look again (`imago shard show`, or GET /admin/v1/shard) and decide again."


async def shard(services: AdminServices, _: web.Request) -> web.Response:
    """GET /admin/v1/shard: the shard of this broker as the broker itself sees it."""
    return json_response(describe(services))


def says(services: AdminServices) -> views.MasterSays:
    """What this broker knows of its shard: what is left while it leads and drains it, and more."""
    left = services.work.drainer.progress.remaining
    return views.MasterSays(
        drain=None if left is None else left.to_json(),
        deleted_for_room=views.deleted_for_room(services.store.forced.newest()),
        tier=services.tier(),
    )


def describe(services: AdminServices) -> dict[str, Any]:
    view, status = services.coordinator.view(), services.control.shard_status()
    number = services.config.broker.shard
    shown = views.shard(
        view, number, lags(services), least=services.config.min_in_sync, said=says(services)
    )
    return shown | {
        "brokerId": services.uuid,
        "role": str(status.role),
        "settled": status.settled,
        "reason": status.reason,
        "logEnd": services.store.log_end,
        "highWatermark": services.store.high_watermark,
        "minInSync": services.config.min_in_sync,
        "followers": [views.follower(follower) for follower in status.followers],
    }


def lags(services: AdminServices) -> views.Lags:
    """How far the members of this broker's shard are behind; empty unless it leads."""
    own = services.coordinator.registered
    if own is None or not services.coordinator.view().leads(own):
        return {}
    found: views.Lags = {
        follower.uuid: views.MemberLag(follower.lag_bytes, follower.lag_ms, follower.stalled)
        for follower in services.control.shard_status().followers
    }
    return found | {own.uuid: views.MemberLag(0, 0)}


async def restart_check(services: AdminServices, _: web.Request) -> web.Response:
    """GET /admin/v1/restart-check: whether this broker may be restarted now, and what if."""
    found = found_risks(services)
    body = {"safe": not found.risks, "risks": list(found.risks)}
    return json_response(body | {"unreplicatedBytes": found.unreplicated_bytes} | who(services))


def found_risks(services: AdminServices) -> RestartRisks:
    """Return what the shard would lose with this broker now."""
    return risks(
        services.coordinator.view(),
        registered(services),
        services.control.shard_status(),
        log_end=services.store.log_end,
        least=services.config.min_in_sync,
        replicas=services.config.broker.replicas,
    )


async def restart_done(services: AdminServices, _: web.Request) -> web.Response:
    """GET /admin/v1/restart-done: whether this broker has caught up since its start."""
    own, view = registered(services), services.coordinator.view()
    state, status = view.states.get(own.shard), services.control.shard_status()
    in_sync = state is None or (own.uuid, own.incarnation) in state.in_sync
    caught_up = status.settled and in_sync
    body = {"caughtUp": caught_up, "percent": 100 if caught_up else percent(services)}
    return json_response(body | {"reason": status.reason} | who(services))


def percent(services: AdminServices) -> int:
    """How much of the leader's log is here, below 100."""
    end = services.control.shard_status().leader_end
    return 0 if not end else min(99, services.store.log_end * 100 // end)


async def handover(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/handover {"target": uuid or replica}: give leadership away."""
    body = await expected(services, request, ("target",))
    target = member(services, body.get("target"))
    try:
        await services.control.handover(target, request_id(request, body))
    except ShardRefusedError as error:
        cure = error.cure or (NOTHING_TO_DO if str(error) == LEADS_ALREADY else CURE_WAIT)
        raise AdminError(409, "not_handed_over", f"{error}.", cure) from error
    return json_response({"handedOver": True, "leader": leader(services)} | who(services))


async def elect(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/elect {"allowDataLoss": true}: have this broker lead where nobody does."""
    body = await expected(services, request, ("allowDataLoss",))
    allowed = body.get("allowDataLoss", False)
    if not isinstance(allowed, bool):
        raise bad_request(f"allowDataLoss: {allowed!r:.60}.", "Send true or false.")
    try:
        await services.control.elect(request_id(request, body), allow_data_loss=allowed)
    except ShardRefusedError as error:
        raise AdminError(409, "not_elected", f"{error}.", error.cure or CURE_AGAIN) from error
    return json_response({"elected": True} | who(services))


async def operator_epoch(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/operator-epoch {"epoch": n}: shut out operators with a lower one."""
    body = await json_body(request)
    refuse_unknown(body, ("epoch", "requestId"))
    epoch = number(body, "epoch")
    if epoch is None:
        raise bad_request("epoch is missing.", 'Send {"epoch": n}.')
    try:
        await services.marks.raise_operator_epoch(epoch)
    except CoordinatorConflictError as error:
        raise stale_operator(str(error)) from error
    except CoordinatorError as error:
        raise unavailable(error) from error
    return json_response({"operatorEpoch": epoch})


def operator_fence(services: AdminServices) -> Middleware:
    """Refuse changing calls of an operator whose epoch is over."""

    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        said = request.headers.get(OPERATOR_EPOCH)
        if said is None or request.method not in CHANGING:
            return await handler(request)
        epoch = whole_of(said)
        if epoch is None or epoch < 0:
            raise bad_request(f"{OPERATOR_EPOCH}: {said!r:.60}.", "Send a number.")
        try:
            stands = await services.marks.read_operator_epoch()
        except CoordinatorError as error:
            raise unavailable(error) from error
        if epoch < stands:
            raise stale_operator(f"operator epoch {epoch}: {stands} is in force already")
        return await handler(request)

    return check


async def expected(
    services: AdminServices, request: web.Request, keys: tuple[str, ...]
) -> Mapping[str, Any]:
    """Return the body once it is sure that the caller means this broker and this epoch."""
    body = await json_body(request)
    refuse_unknown(body, (*keys, *EXPECTED))
    broker_id, epoch = body.get("brokerId"), number(body, "epoch")
    if broker_id not in (None, services.uuid):
        raise AdminError(
            409, "other_broker", f"This is broker {services.uuid}, not that one.", CURE_AGAIN
        )
    stands = services.shard_epoch
    if epoch not in (None, stands):
        raise AdminError(
            409, "stale_epoch", f"The shard is in epoch {stands}, not {epoch}.", CURE_AGAIN
        )
    return body


def leader(services: AdminServices) -> str | None:
    """Return the uuid of the member that leads the shard now."""
    state = services.coordinator.view().states.get(services.config.broker.shard)
    return state.leader.uuid if state is not None and state.leader is not None else None


def who(services: AdminServices) -> dict[str, Any]:
    """What an answer says of its sender."""
    shard = services.config.broker.shard
    return {
        "shard": shard_name(shard),
        "brokerId": services.uuid,
        "epoch": services.shard_epoch,
    }


def registered(services: AdminServices) -> BrokerRecord:
    own = services.coordinator.registered
    if own is None:
        raise AdminError(
            503, "not_registered", "This broker is not in the registry now.", "Ask again later."
        )
    return own


def member(services: AdminServices, named: object) -> str | None:
    """Return the uuid of a member that is named by uuid or replica number."""
    if named is None:
        return None
    members = services.coordinator.view().members(services.config.broker.shard)
    for record in members:
        if named in (record.uuid, record.replica, str(record.replica)) and not isinstance(
            named, bool
        ):
            return record.uuid
    listed = ", ".join(f"{record.replica} ({record.uuid})" for record in members)
    raise bad_request(f"target: {named!r:.80} is no live member.", f"Live members: {listed}.")


def number(body: Mapping[str, Any], key: str) -> int | None:
    value = body.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise bad_request(f"{key}: {value!r:.60}.", "Send a whole number, not negative.")


def request_id(request: web.Request, body: Mapping[str, Any]) -> str:
    said = body.get("requestId") or request.headers.get("Idempotency-Key")
    return str(said)[:128] if said else uuid4().hex


def stale_operator(reason: str) -> AdminError:
    return AdminError(409, "stale_operator", f"{reason}.", "Another operator has taken over.")


def unavailable(error: CoordinatorError) -> AdminError:
    return AdminError(503, "registry_unavailable", f"{error}.", "Repeat the call.")
