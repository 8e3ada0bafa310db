"""Routes about pipelines: which of their runs may write.

Whoever starts runs raises the epoch first and gives it to the run. A run of a lower epoch is
refused from then on: when it asks for its next batch, and when it reports one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.admin.calls.guard import json_body, json_response
from imago_broker.admin.errors import AdminError, bad_request, refuse_unknown
from imago_broker.admin.shards.leadership import unavailable
from imago_broker.model.pipelines import is_pipeline_name, read_number
from imago_broker.ports import CoordinatorConflictError, CoordinatorError

if TYPE_CHECKING:
    from aiohttp import web

    from imago_broker.admin.services import AdminServices


async def show(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/pipelines/{name}: its epoch, and what its last run said of itself."""
    name = _name(request)
    try:
        found = await services.pipelines.read_pipeline(name)
    except CoordinatorError as error:
        raise unavailable(error) from error
    return json_response({"pipeline": name} | found.to_json())


async def raise_epoch(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/pipelines/{name}/epoch {"epoch": n}: shut out every run of a lower one."""
    name, body = _name(request), await json_body(request)
    refuse_unknown(body, ("epoch", "requestId"))
    try:
        epoch = read_number(body, "epoch")
    except ValueError as error:
        raise bad_request(f"{error}.", 'Send {"epoch": n}.') from error
    try:
        await services.pipelines.raise_pipeline_epoch(name, epoch)
    except CoordinatorConflictError as error:
        cure = f"Read GET /admin/v1/pipelines/{name} and take a higher one."
        raise AdminError(409, "stale_epoch", f"{error}.", cure) from error
    except CoordinatorError as error:
        raise unavailable(error) from error
    return json_response({"pipeline": name, "epoch": epoch})


def _name(request: web.Request) -> str:
    name = request.match_info["name"]
    if not is_pipeline_name(name):
        raise bad_request(
            f"{name!r:.80} is no name of a pipeline.", "1 to 200 letters, digits, . _ or -."
        )
    return name
