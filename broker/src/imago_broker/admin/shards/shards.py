"""Doing the same on every shard: a change made through one broker reaches all masters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
from aiohttp import web

from imago_broker.admin.calls.guard import CHANGING
from imago_broker.admin.calls.identity import actor_of, user_of
from imago_broker.admin.errors import AdminError
from imago_broker.admin.shards import leadership
from imago_broker.admin.views import MasterSays, MemberLag
from imago_broker.model.registry.cluster import shard_name
from imago_broker.service.access.access_drafts import version_of
from imago_broker.shard_work.calls import FORWARDED, TIMEOUT, call, own_headers, refusal_of
from imago_broker.shard_work.signing import CALLER, caller_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from aiohttp.typedefs import Middleware

    from imago_broker.admin.services import AdminServices
    from imago_broker.admin.views import Lags
    from imago_broker.model.registry.cluster import BrokerRecord, ClusterView

OK, ABSENT = "ok", "absent"
LOGGED = (
    "/admin/v1/topics",
    "/admin/v1/groups",
    "/admin/v1/users",
    "/admin/v1/quotas",
    "/admin/v1/access",
    "/admin/v1/metaq/transactions",
)
"""Paths of what the shard's log holds, which only its master writes."""
PLACED_SECONDS_MAX = 10.0
PLACED_PAUSE_SECONDS = 0.02
LAGS_TIMEOUT = aiohttp.ClientTimeout(total=1)
"""A snapshot does not wait long for masters that may just have died."""


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
    A forwarded request is not forwarded again. Shards that fail, or have no master to be told, make
    the whole call fail with their names and words: it is safe to repeat, since every change is one
    to a wanted state.
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
    silent = [n for n in view.away() if n != own and (only is None or n in only)]
    body = await request.read()
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        answers = await asyncio.gather(
            *(_forward(session, services, request, body, other) for other in others)
        )
    failed = {shard_name(shard): _untold() for shard in silent}
    for other, answer in zip(others, answers, strict=True):
        to = failed if isinstance(answer, AdminError) else done
        to[shard_name(other.shard)] = answer  # type: ignore[assignment]
    if failed:
        raise _of_all(failed, [name for name, said in done.items() if said == OK])
    return done


def may_have(view: ClusterView, topic: str) -> frozenset[int]:
    """Return the shards that may have a topic, even where it was made a moment ago.

    Those with a master can be asked; one that is away has it where the registry says so.
    """
    placed = view.topics.get(topic)
    return (frozenset(view.shards()) - {*view.away()}) | frozenset(placed.shards if placed else ())


def require_masters(view: ClusterView, shards: Collection[int]) -> None:
    """Refuse a change, before any shard is told of it, that one of these could not be told of."""
    if away := sorted({*shards} & {*view.away()}):
        raise no_master(away[0])


async def until_placed(
    services: AdminServices, request: web.Request, topic: str, done: Collection[str]
) -> None:
    """Wait until the registry, as this broker sees it, has a topic on all these shards.

    A master writes it there after its answer, and the next call looks there for the topic's shards.
    """
    if is_forwarded(request) or not services.topics.is_public(topic):
        return
    clock = services.clock
    deadline_ms = clock.monotonic_ms() + int(1000 * PLACED_SECONDS_MAX)
    while missing := _not_placed(services, topic, done):
        if clock.monotonic_ms() > deadline_ms:
            raise AdminError(
                503,
                "not_settled",
                f"Done, but after {PLACED_SECONDS_MAX:g} s the registry does not show the topic on"
                f" {', '.join(missing)}.",
                "Repeat the call; `imago cluster explain` says whether ZooKeeper is reached.",
            )
        await asyncio.sleep(PLACED_PAUSE_SECONDS)


def _not_placed(services: AdminServices, topic: str, done: Collection[str]) -> list[str]:
    placed = services.coordinator.view().topics.get(topic)
    return sorted({*done} - {shard_name(shard) for shard in (placed.shards if placed else ())})


def _untold() -> AdminError:
    return AdminError(
        502,
        "shard_failed",
        "it has no master now",
        "Repeat the call; `imago cluster explain` says what the shard waits for.",
    )


def _of_all(failed: dict[str, AdminError], done: list[str]) -> AdminError:
    """Return the error of a call that shards did not carry out.

    Its status and cure are those of a shard: of one that may do it later, before one that will not.
    """
    told = next((one for one in failed.values() if one.status >= 500), None)
    told = told or next(iter(failed.values()))
    listed = "; ".join(f"{name}: {one.message.removesuffix('.')}" for name, one in failed.items())
    where = f"Done on {', '.join(done)}, but not on every shard" if done else "Not done"
    return AdminError(told.status, told.code, f"{where}: {listed}.", told.cure)


def is_forwarded(request: web.Request) -> bool:
    """Whether another broker of ours asks on behalf of somebody."""
    return FORWARDED in request.headers


async def known_to_masters(
    services: AdminServices, request: web.Request
) -> tuple[Lags, dict[int, MasterSays]]:
    """How far members of all shards are behind, and what else masters know of their shards.

    Those whose master does not answer are left out.
    """
    view, own = services.coordinator.view(), services.coordinator.registered
    found = leadership.lags(services)
    said = {services.config.broker.shard: leadership.says(services)}
    itself = own.uuid if own is not None else ""
    masters = [m for n in view.shards() if (m := view.master(n)) and m.uuid != itself]
    if is_forwarded(request) or not masters:
        return found, said
    headers = forwarded_headers(services, request)
    async with aiohttp.ClientSession(timeout=LAGS_TIMEOUT) as session:
        path = "/admin/v1/shard"
        answers = await asyncio.gather(
            *(_read(session, services, master, path, headers) for master in masters)
        )
    for master, body in zip(masters, answers, strict=True):
        for member in body.get("members", ()):
            found[member["uuid"]] = MemberLag(
                member["lagBytes"], member["lagMs"], member.get("stalled", "")
            )
        if body:
            told = (body.get(each) for each in ("drain", "deletedForRoom", "tier"))
            said[master.shard] = MasterSays(*told)
    return found, said


async def _read(
    session: aiohttp.ClientSession,
    services: AdminServices,
    master: BrokerRecord,
    path: str,
    headers: dict[str, str],
) -> dict[str, Any]:
    """Return what a master answers; nothing where it does not."""
    try:
        async with call(session, services, master, "GET", path, headers=headers) as answer:
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
    return await known_elsewhere(services, request, f"/admin/v1/topics/{quote(name, safe='')}")


async def known_elsewhere(
    services: AdminServices, request: web.Request, path: str
) -> list[dict[str, Any]]:
    """Return what the masters of the other shards show by this path, those that have it.

    AdminError: one does not say, and nothing may be concluded of what the others show.
    """
    if is_forwarded(request):
        return []
    view, own = services.coordinator.view(), services.config.broker.shard
    masters = [m for n in view.shards() if n != own and (m := view.master(n))]
    headers = forwarded_headers(services, request)
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        found = await asyncio.gather(
            *(_look(session, services, master, path, headers) for master in masters)
        )
    failed = {
        shard_name(master.shard): shown
        for master, shown in zip(masters, found, strict=True)
        if isinstance(shown, AdminError)
    }
    if failed:
        raise _of_all(failed, [])
    return [shown for shown in found if shown and not isinstance(shown, AdminError)]


async def _look(
    session: aiohttp.ClientSession,
    services: AdminServices,
    master: BrokerRecord,
    path: str,
    headers: dict[str, str],
) -> dict[str, Any] | AdminError:
    """Return what a master shows, nothing where it has nothing by this path."""
    try:
        async with call(session, services, master, "GET", path, headers=headers) as answer:
            if answer.status == 404:
                return {}
            if answer.status != 200:
                return await refusal_of(answer)
            shown: dict[str, Any] = await answer.json()
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return _silent(master, error)
    return shown


def _silent(master: BrokerRecord, error: Exception) -> AdminError:
    what = f"{type(error).__name__} at {master.host}:{master.admin}"
    return AdminError(502, "shard_failed", what, "Repeat the call.")


def require_shard(view: ClusterView, shard: int) -> None:
    """Refuse a shard that there is not; one without a master is there and comes back."""
    there = sorted({*view.shards(), *view.known})
    if shard not in there:
        listed = ", ".join(map(shard_name, there))
        raise AdminError(404, "shard_not_found", f"There is no shard {shard}.", f"One of {listed}.")


def to_master(services: AdminServices) -> Middleware:
    """Have the shard's master answer what changes topics and groups, whichever broker was asked."""

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
        return await _through(services, request, master)

    return pass_on


async def asked_of_master(
    services: AdminServices, request: web.Request, shard: int
) -> web.Response | None:
    """Return what the master of a shard answers to this request; None where we are it."""
    view, own = services.coordinator.view(), services.coordinator.registered
    require_shard(view, shard)
    master = view.master(shard)
    if master is not None and own is not None and view.leads(own) and own.shard == shard:
        return None
    if master is None or is_forwarded(request):
        raise no_master(shard)
    return await _through(services, request, master, once=True)


def no_master(shard: int) -> AdminError:
    """The answer where only a master can say or do it, and there is none."""
    return AdminError(
        503,
        "no_master",
        f"{shard_name(shard)} has no master now, and only a master knows and changes this.",
        "Repeat the call; `imago cluster explain` says what the shard waits for.",
    )


async def _through(
    services: AdminServices, request: web.Request, master: BrokerRecord, *, once: bool = False
) -> web.Response:
    """Ask the master with the caller's own words, and give back what he says.

    `once`: it goes no further from there.
    """
    headers = forwarded_headers(services, request)
    if not once:
        del headers[FORWARDED]
    method, path, body = request.method, request.path_qs, await request.read()
    try:
        async with (
            aiohttp.ClientSession(timeout=TIMEOUT) as session,
            call(session, services, master, method, path, headers=headers, body=body) as answer,
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


def forwarded_headers(services: AdminServices, request: web.Request) -> dict[str, str]:
    """The caller's own, its name in place of its credentials: the call is signed by this broker."""
    headers = own_headers()
    if user_of(request):
        name, address = actor_of(request)
        headers[CALLER] = caller_text(name, address, version_of(services.access, name))
    for name in ("Idempotency-Key", leadership.OPERATOR_EPOCH):
        if name in request.headers:
            headers[name] = request.headers[name]
    return headers


async def _forward(
    session: aiohttp.ClientSession,
    services: AdminServices,
    request: web.Request,
    body: bytes,
    other: BrokerRecord,
) -> str | AdminError:
    method, path, headers = request.method, request.path_qs, forwarded_headers(services, request)
    try:
        async with call(
            session, services, other, method, path, headers=headers, body=body
        ) as answer:
            if answer.status < 300:
                return OK
            if request.method == "DELETE" and answer.status == 404:
                return ABSENT
            return await refusal_of(answer)
    except (aiohttp.ClientError, TimeoutError) as error:
        return _silent(other, error)
