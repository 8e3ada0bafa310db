"""The route of who changed what: the last lines of every broker's audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.admin.calls.audit_tail import TAIL
from imago_broker.admin.calls.guard import json_response
from imago_broker.admin.paging import LIMIT, LIMIT_MAX, number
from imago_broker.admin.resources.everywhere import ask_members
from imago_broker.admin.shards.shards import is_forwarded
from imago_broker.model.registry.cluster import shard_name

if TYPE_CHECKING:
    from aiohttp import web

    from imago_broker.admin.services import AdminServices


async def audit(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/audit?limit=: the newest lines of all members, the newest first.

    `missing`: shards that are away, and members that did not answer.
    """
    limit = number(request.query, "limit", LIMIT, low=1, high=LIMIT_MAX)
    member = {"shard": shard_name(services.config.broker.shard), "replica": services.replica()}
    own = [member | line for line in request.app[TAIL].newest(limit)]
    if is_forwarded(request):
        return json_response({"items": own})
    others = await ask_members(services, request)
    items = sorted(own + others.items, key=lambda line: line["at"], reverse=True)
    return json_response({"items": items[:limit], "missing": others.missing})
