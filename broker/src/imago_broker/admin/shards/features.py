"""Routes about the cluster's feature level: what it is, who holds it back, and its rise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_broker.admin.calls.guard import json_body, json_response
from imago_broker.admin.errors import AdminError, bad_request, refuse_unknown
from imago_broker.admin.shards.leadership import number, unavailable
from imago_broker.core import levelling
from imago_broker.model import feature_level
from imago_broker.ports import CoordinatorConflictError, CoordinatorError

if TYPE_CHECKING:
    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.model.registry.cluster import ClusterView

PATH = "/admin/v1/features"


async def show(services: AdminServices, _: web.Request) -> web.Response:
    """GET /admin/v1/features: the level, and what the next one waits for."""
    return json_response(_shown(services.coordinator.view()))


async def finalize(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/features {"level": n, "withoutAbsent": false}: raise it for good."""
    body = await json_body(request)
    refuse_unknown(body, ("level", "withoutAbsent", "requestId"))
    level, without = number(body, "level"), body.get("withoutAbsent", False)
    if level is None or not isinstance(without, bool):
        raise bad_request(
            f"level: {level!r:.60}, withoutAbsent: {without!r:.60}.",
            "Send a number, true or false.",
        )
    try:
        await services.marks.raise_feature_level(level, without_absent=without)
    except CoordinatorConflictError as error:
        raise AdminError(
            409, "not_raised", f"{error}.", "`imago cluster features` says who understands what."
        ) from error
    except CoordinatorError as error:
        raise unavailable(error) from error
    return json_response(_shown(services.coordinator.view()))


def _shown(view: ClusterView) -> dict[str, Any]:
    highest = levelling.highest(view)
    above = range(view.feature_level + 1, highest + 1)
    return {
        "level": view.feature_level,
        "highest": highest,
        "newest": feature_level.NEWEST,
        "behind": levelling.behind(view, feature_level.NEWEST),
        "absent": levelling.absent(view),
        "switchesOn": [feature_level.NEWS[level] for level in above if level in feature_level.NEWS],
    }
