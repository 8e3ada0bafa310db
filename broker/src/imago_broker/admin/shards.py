"""Doing the same on every shard: a change made through one broker reaches all masters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp

from imago_broker.admin.errors import AdminError
from imago_broker.admin.guard import admin_token
from imago_broker.model.cluster import shard_name

if TYPE_CHECKING:
    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.model.cluster import BrokerRecord

FORWARDED = "Imago-Forwarded"
OK, ABSENT = "ok", "absent"
TIMEOUT = aiohttp.ClientTimeout(total=10)


async def on_other_shards(
    services: AdminServices, request: web.Request, *, here: bool = True
) -> dict[str, str]:
    """Repeat a changing request on the master of every other shard; return how each answered.

    "ok", or "absent" where there was nothing to delete (`here`: whether there was on this one).
    A forwarded request is not forwarded again. Shards that fail make the whole call fail with
    their names: it is safe to repeat, since every change is one to a wanted state.
    """
    own = services.config.broker.shard
    done = {shard_name(own): OK if here else ABSENT}
    if FORWARDED in request.headers:
        return done
    view = services.coordinator.view()
    others = [m for shard in view.shards() if shard != own and (m := view.master(shard))]
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


def forwarded_headers(request: web.Request, token_file: str) -> dict[str, str]:
    """The caller's own, and this broker's token: the caller may have needed none here."""
    headers = {FORWARDED: "1", "Content-Type": "application/json"}
    for name in ("Authorization", "Idempotency-Key"):
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
