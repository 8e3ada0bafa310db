"""Routes about messages that nobody can read yet: those that wait for their time, and half ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from imago_broker.admin.calls.guard import json_response
from imago_broker.admin.message_ids import checked
from imago_broker.admin.paging import LIMIT, number
from imago_broker.admin.resources.cluster_lists import leads
from imago_broker.admin.resources.everywhere import ask_others
from imago_broker.admin.resources.messages import TIME_MAX
from imago_broker.admin.shards.shards import is_forwarded, no_master
from imago_broker.core.away import AwayShard
from imago_broker.model.registry.cluster import shard_name
from imago_broker.service.transactions.transaction_log import NoHalf, group_of, read_half
from imago_wire.remoting.texts.handles import RecallHandle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.service.delays.waiting_messages import WaitingPlace
    from imago_broker.service.puts.copies import StoredCopy

SHOWN_LIMIT: Final = 200
HALVES_LOOKED_MAX: Final = 10_000
"""Open half messages that are looked at to find those that are wanted."""
HALVES_BYTES_MAX: Final = 64 << 20
"""Of the records that are read for one answer."""
NOT_KNOWN = "its master does not know yet which transactions are open; repeat the call"


async def scheduled(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/cluster/scheduled: what waits for its time on each shard, due first first.

    `?id=`: what has this unique id. `?topic=`: what will be in that topic. `?from=` (epoch ms):
    what is due from then on. `?limit=` of each shard. No bodies.
    """
    query = request.query
    limit = number(query, "limit", LIMIT, low=1, high=SHOWN_LIMIT)
    from_ms = number(query, "from", 0, low=0, high=TIME_MAX)
    unique = checked(query["id"]) if "id" in query else ""

    async def here() -> dict[str, Any]:
        if unique:
            answer = await services.waiting.named(unique)
        else:
            answer = await services.waiting.find(query.get("topic", ""), from_ms, limit)
        shown = [_scheduled(services, place, copy) for place, copy in answer.found]
        return {"waiting": services.waiting.count, "messages": shown, "cut": answer.cut}

    return json_response(await _of_masters(services, request, here))


async def halves(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/cluster/halves: messages of open transactions on each shard, oldest first.

    `?topic=` and `?group=` (of producers) choose; `?limit=` of each shard. No bodies.
    """
    limit = number(request.query, "limit", LIMIT, low=1, high=SHOWN_LIMIT)
    topic, group = request.query.get("topic", ""), request.query.get("group", "")

    async def here() -> dict[str, Any]:
        opened = services.transactions.halves
        offsets = sorted(opened)
        shown: list[dict[str, Any]] = []
        left, looked = HALVES_BYTES_MAX, 0
        for offset in offsets:
            if len(shown) == limit or looked == HALVES_LOOKED_MAX or left <= 0:
                break
            looked += 1
            half = opened.get(offset)
            if half is None or (group and half.group not in ("", group)):
                continue
            copy = read_half(services.store, offset)
            await asyncio.sleep(0)
            if isinstance(copy, NoHalf):
                continue
            left -= copy.size
            if topic in ("", copy.text(b"REAL_TOPIC")) and group in ("", group_of(copy)):
                shown.append(_half(services, copy, half.checks))
        return {"waiting": len(opened), "messages": shown, "cut": looked < len(offsets)}

    def not_known() -> str:
        return "" if services.transactions.ready else NOT_KNOWN

    return json_response(await _of_masters(services, request, here, not_known))


async def _of_masters(
    services: AdminServices,
    request: web.Request,
    here: Callable[[], Awaitable[dict[str, Any]]],
    not_known: Callable[[], str] = lambda: "",
) -> dict[str, Any]:
    """Return what the masters of all shards show, each with its `shard`."""
    own = services.config.broker.shard
    items: list[dict[str, Any]] = []
    missing: list[dict[str, object]] = []
    if leads(services):
        if why := not_known():
            missing.append(AwayShard(own, None, why).to_json())
        else:
            items.append(await here() | {"shard": shard_name(own)})
    if is_forwarded(request):
        if not items:  # the asker lists the shard as one that did not answer
            raise no_master(own)
        return {"items": items, "missing": []}
    others = await ask_others(services, request, own_too=not leads(services))
    items = sorted(items + others.items, key=lambda item: str(item["shard"]))
    return {"items": items, "missing": missing + others.missing}


def _message(copy: StoredCopy) -> dict[str, Any]:
    queue = copy.text(b"REAL_QID")
    return {
        "topic": copy.text(b"REAL_TOPIC"),
        "queue": int(queue) if queue.isdecimal() else 0,
        "uniqueId": copy.text(b"UNIQ_KEY"),
        "keys": copy.text(b"KEYS"),
        "tags": copy.text(b"TAGS"),
        "bornTime": copy.born_ms,
        "storeTime": copy.store_ms,
        "size": len(copy.body),
    }


def _scheduled(services: AdminServices, place: WaitingPlace, copy: StoredCopy) -> dict[str, Any]:
    shown = _message(copy)
    handle = None
    if place.level is None and shown["uniqueId"]:
        name = services.config.broker_name
        handle = str(RecallHandle(shown["topic"], name, place.due_ms, shown["uniqueId"]))
    return shown | {"deliverTime": place.due_ms, "level": place.level, "recallHandle": handle}


def _half(services: AdminServices, copy: StoredCopy, checks: int) -> dict[str, Any]:
    age_ms = max(0, services.clock.epoch_ms() - copy.store_ms)
    return _message(copy) | {
        "producerGroup": group_of(copy),
        "ageSeconds": age_ms // 1000,
        "checks": checks,
    }
