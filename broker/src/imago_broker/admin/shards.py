"""Doing the same on every shard: a change made through one broker reaches all masters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
from aiohttp import web

from imago_broker.admin import leadership
from imago_broker.admin.errors import AdminError
from imago_broker.admin.guard import CHANGING, admin_token
from imago_broker.admin.views import Lag
from imago_broker.core.placement import Room
from imago_broker.model.cluster import shard_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from aiohttp.typedefs import Middleware

    from imago_broker.admin.services import AdminServices
    from imago_broker.admin.views import Lags
    from imago_broker.config import BrokerConfig
    from imago_broker.model.cluster import BrokerRecord, ClusterView

FORWARDED = "Imago-Forwarded"
OK, ABSENT = "ok", "absent"
LOGGED = ("/admin/v1/topics", "/admin/v1/groups")
"""Paths of what stands in the shard's log, which only its master writes."""
LAGS_TIMEOUT = aiohttp.ClientTimeout(total=1)
"""A snapshot does not wait long for masters that may just have died."""
TIMEOUT = aiohttp.ClientTimeout(total=10)


async def on_other_shards(
    services: AdminServices,
    request: web.Request,
    *,
    here: bool = True,
    only: Collection[int] | None = None,
) -> dict[str, str]:
    """Repeat a changing request on the master of every other shard; return how each answered.

    "ok", or "absent" where there was nothing to delete (`here`: whether there was on this one).
    `only`: the shards it concerns; all unless given.
    A forwarded request is not forwarded again. Shards that fail make the whole call fail with
    their names: it is safe to repeat, since every change is one to a wanted state.
    """
    own = services.config.broker.shard
    done = {shard_name(own): OK if here else ABSENT}
    if only is not None and own not in only:
        done.clear()
    if is_forwarded(request):
        return done
    view = services.coordinator.view()
    wanted = [n for n in view.shards() if n != own and (only is None or n in only)]
    others = [master for shard in wanted if (master := view.master(shard))]
    body = await request.read()
    headers = forwarded_headers(request, services.config.admin.token_file)
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        answers = await asyncio.gather(
            *(_forward(session, request, body, headers, o) for o in others)
        )
    for other, answer in zip(others, answers, strict=True):
        done[shard_name(other.shard)] = answer
    failed = {name: answer for name, answer in done.items() if answer not in {OK, ABSENT}}
    if failed:
        listed = "; ".join(f"{name}: {answer}" for name, answer in failed.items())
        raise AdminError(
            502, "shard_failed", f"Done here, but not on every shard: {listed}.", "Repeat the call."
        )
    return done


def is_forwarded(request: web.Request) -> bool:
    """Whether another broker of ours asks on behalf of somebody."""
    return FORWARDED in request.headers


def rooms(view: ClusterView) -> list[Room]:
    """The shards that can take new topics: those that have a master and are not cordoned."""
    found = []
    for shard in view.shards():
        master = view.master(shard)
        if master is not None and shard not in view.cordoned:
            placed = (topic.shards.get(shard) for topic in view.topics.values())
            found.append(Room(shard, sum(queues.write for queues in placed if queues), master.zone))
    return found


async def known_to_masters(
    services: AdminServices, request: web.Request
) -> tuple[Lags, dict[int, Any]]:
    """How far members of all shards are behind, and what is left on shards that are drained.

    Those whose master does not answer are left out.
    """
    view, own = services.coordinator.view(), services.coordinator.registered
    found = leadership.lags(services)
    drains = leadership.drains(services, request)
    masters = [m for n in view.shards() if (m := view.master(n)) and m != own]
    if is_forwarded(request) or not masters:
        return found, drains
    headers = forwarded_headers(request, services.config.admin.token_file)
    async with aiohttp.ClientSession(timeout=LAGS_TIMEOUT) as session:
        answers = await asyncio.gather(*(_shard_of(session, m, headers) for m in masters))
    for master, body in zip(masters, answers, strict=True):
        for member in body.get("members", ()):
            found[member["uuid"]] = Lag(
                member["lagBytes"], member["lagMs"], member.get("stalled", "")
            )
        if body.get("drain"):
            drains[master.shard] = body["drain"]
    return found, drains


async def _shard_of(
    session: aiohttp.ClientSession, master: BrokerRecord, headers: dict[str, str]
) -> dict[str, Any]:
    return await _read(session, master, "/admin/v1/shard", headers)


async def _read(
    session: aiohttp.ClientSession, master: BrokerRecord, path: str, headers: dict[str, str]
) -> dict[str, Any]:
    """Return what a master answers; nothing where it does not."""
    url = f"http://{master.host}:{master.admin}{path}"
    try:
        async with session.get(url, headers=headers) as answer:
            body: dict[str, Any] = await answer.json() if answer.status == 200 else {}
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return {}
    return body


async def topic_elsewhere(
    services: AdminServices, request: web.Request, name: str
) -> list[dict[str, Any]]:
    """Return a topic as the masters of the other shards show it; those without it are left out.

    A forwarded request looks no further than its own shard.
    """
    if is_forwarded(request):
        return []
    view, own = services.coordinator.view(), services.config.broker.shard
    masters = [m for n in view.shards() if n != own and (m := view.master(n))]
    headers = forwarded_headers(request, services.config.admin.token_file)
    path = f"/admin/v1/topics/{quote(name, safe='')}"
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        found = await asyncio.gather(*(_read(session, m, path, headers) for m in masters))
    return [topic for topic in found if topic]


def to_master(services: AdminServices) -> Middleware:
    """Have the shard's master answer what changes topics and groups, whoever was asked."""

    @web.middleware
    async def pass_on(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.method not in CHANGING or not request.path.startswith(LOGGED):
            return await handler(request)
        view, own = services.coordinator.view(), services.coordinator.registered
        if own is None or view.leads(own):
            return await handler(request)
        master = view.master(own.shard)
        if master is None or is_forwarded(request):
            raise no_master(own.shard)
        return await _through(request, master, services.config.admin.token_file)

    return pass_on


async def asked_of_master(
    services: AdminServices, request: web.Request, shard: int
) -> web.Response | None:
    """Return what the master of a shard answers to this request; None where we are it."""
    view, own = services.coordinator.view(), services.coordinator.registered
    master = view.master(shard)
    if master is not None and own is not None and view.leads(own) and own.shard == shard:
        return None
    if master is None or is_forwarded(request):
        raise no_master(shard)
    return await _through(request, master, services.config.admin.token_file, once=True)


def no_master(shard: int) -> AdminError:
    """The answer where only a master can say or do it, and there is none."""
    return AdminError(
        503,
        "no_master",
        f"{shard_name(shard)} has no master now, and only a master knows and changes this.",
        "Repeat the call; `imago cluster explain` says what the shard waits for.",
    )


async def _through(
    request: web.Request, master: BrokerRecord, token_file: str, *, once: bool = False
) -> web.Response:
    """Ask the master with the caller's own words, and give back what he says.

    `once`: it goes no further from there.
    """
    headers = forwarded_headers(request, token_file)
    if not once:
        del headers[FORWARDED]
    url, body = f"http://{master.host}:{master.admin}{request.path_qs}", await request.read()
    try:
        async with (
            aiohttp.ClientSession(timeout=TIMEOUT) as session,
            session.request(request.method, url, data=body, headers=headers) as answer,
        ):
            return web.Response(
                body=await answer.read(), status=answer.status, content_type=answer.content_type
            )
    except (aiohttp.ClientError, TimeoutError) as error:
        raise AdminError(
            502,
            "master_unreachable",
            f"The master at {master.host}:{master.admin} does not answer: {type(error).__name__}.",
            "Repeat the call: whether it was carried out is unknown.",
        ) from error


def own_headers(config: BrokerConfig) -> dict[str, str]:
    """What this broker sends with calls of its own to other masters."""
    headers = {FORWARDED: "1", "Content-Type": "application/json"}
    if token_file := config.admin.token_file:
        headers["Authorization"] = f"Bearer {admin_token(token_file)}"
    return headers


def forwarded_headers(request: web.Request, token_file: str) -> dict[str, str]:
    """The caller's own, and this broker's token: the caller may have needed none here."""
    headers = {FORWARDED: "1", "Content-Type": "application/json"}
    for name in ("Authorization", "Idempotency-Key", leadership.OPERATOR_EPOCH):
        if name in request.headers:
            headers[name] = request.headers[name]
    if token_file and "Authorization" not in headers:
        headers["Authorization"] = f"Bearer {admin_token(token_file)}"
    return headers


async def _forward(
    session: aiohttp.ClientSession,
    request: web.Request,
    body: bytes,
    headers: dict[str, str],
    other: BrokerRecord,
) -> str:
    url = f"http://{other.host}:{other.admin}{request.path_qs}"
    try:
        async with session.request(request.method, url, data=body, headers=headers) as answer:
            if answer.status < 300:
                return OK
            if request.method == "DELETE" and answer.status == 404:
                return ABSENT
            return (await answer.text())[:200]
    except (aiohttp.ClientError, TimeoutError) as error:
        return f"{type(error).__name__} at {other.host}:{other.admin}"
