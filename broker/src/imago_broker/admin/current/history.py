"""The route of what charts are drawn from: figures of the last day, of every broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from imago_broker.admin.calls.guard import json_response
from imago_broker.admin.paging import number
from imago_broker.admin.resources.everywhere import ask_members
from imago_broker.admin.shards.shards import is_forwarded
from imago_broker.core.figures.day_history import SLOT_MS, SLOTS, SeriesPart
from imago_broker.model.registry.cluster import shard_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.core.figures.day_history import DaySeries

SECONDS: Final = 3600
DAY_SECONDS: Final = SLOTS * SLOT_MS // 1000
POINTS: Final = 360
POINTS_MAX: Final = 1000


async def history(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/history?seconds=&points=: each member's counters; ?topic= or ?group=: of that.

    Each item has a member's `series` in equal steps from the answer's `from` on. A topic or group
    that a member keeps no series of has no item of it. `missing`: shards that are away, and
    members that did not answer.
    """
    query = request.query
    seconds = number(query, "seconds", SECONDS, low=SLOT_MS // 1000, high=DAY_SECONDS)
    points = number(query, "points", POINTS, low=1, high=POINTS_MAX)
    now_ms, group = services.clock.epoch_ms(), query.get("group", "")
    cuts = {
        name: services.day.cut(
            series, now_ms, span_ms=seconds * 1000, points=points, peak=bool(group)
        )
        for name, series in _wanted(services, query).items()
    }
    own = [_shown(services, cuts)] if cuts else []
    if is_forwarded(request):
        return json_response({"items": own})
    empty = services.day.nothing(now_ms, span_ms=seconds * 1000, points=points)
    others = await ask_members(services, request)
    items = [_aligned(item, empty) for item in (*own, *others.items)]
    return json_response(
        {
            "from": empty.from_ms,
            "stepMs": empty.step_ms,
            "items": sorted(items, key=lambda item: (item["shard"], item["replica"])),
            "missing": others.missing,
        }
    )


def _wanted(services: AdminServices, query: Mapping[str, str]) -> Mapping[str, DaySeries]:
    day = services.day
    for parameter, name, known in (
        ("topic", "messagesIn", day.topics),
        ("group", "lag", day.groups),
    ):
        if query.get(parameter):
            found = known.get(query[parameter])
            return {} if found is None else {name: found}
    return day.counters


def _shown(services: AdminServices, cuts: Mapping[str, SeriesPart]) -> dict[str, Any]:
    return {
        "shard": shard_name(services.config.broker.shard),
        "replica": services.replica(),
        "from": next(iter(cuts.values())).from_ms,
        "series": {name: cut.values for name, cut in cuts.items()},
    }


def _aligned(item: Mapping[str, Any], wanted: SeriesPart) -> dict[str, Any]:
    """Return what a member shows at our own steps: its clock may be in another one."""
    shifted = {
        name: SeriesPart(item["from"], wanted.step_ms, values).shifted(wanted.from_ms).values
        for name, values in item["series"].items()
    }
    return {"shard": item["shard"], "replica": item["replica"], "series": shifted}
