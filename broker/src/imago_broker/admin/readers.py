"""Routes about which groups read which topics, as this shard knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_broker.admin.calls.guard import json_body, json_response
from imago_broker.admin.errors import AdminError, bad_request, refuse_unknown
from imago_broker.admin.paging import page
from imago_broker.errors import RequestError
from imago_broker.service.known_readers import TOLD
from imago_broker.shard_work.readers import here, together, unknown

if TYPE_CHECKING:
    from aiohttp import web

    from imago_broker.admin.services import AdminServices


async def list_all(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/readers: by topic the groups that read it, as far as this shard knows."""
    if problem := unknown(services):
        raise AdminError(503, "readers_unknown", f"{problem}.", "Ask again then.")
    known = here(services)
    shown = page(sorted(known), request.query, lambda n: {"topic": n, "groups": sorted(known[n])})
    return json_response(shown)


async def keep(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/readers {"items"}: between masters; keep who reads what, as another knows."""
    body = await json_body(request)
    refuse_unknown(body, ("items",))
    if not services.store.leading:
        raise AdminError(409, "not_master", "This broker does not lead.", "Ask the master.")
    try:
        items: Any = body.get("items", ())
        told = {str(item["topic"]): [str(group) for group in item["groups"]] for item in items}
    except (KeyError, TypeError) as error:
        raise bad_request("These are no readers.", "Masters alone send them.") from error
    try:
        services.offsets.readers.add(TOLD, together(told))
    except RequestError as error:
        raise AdminError(409, "too_many", f"{error}.", "Delete groups that nobody uses.") from error
    if problem := await services.replicated():
        raise AdminError(503, "not_replicated", f"{problem}.", "Repeat the call.")
    return json_response({})
