"""What a changing call with an `Idempotency-Key` gets when it comes again: the first answer."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING

from aiohttp import web

from imago_broker.admin.calls.guard import ADMINISTRATION, CHANGING, UNCHANGED
from imago_broker.admin.calls.identity import user_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp.typedefs import Middleware

KEYS_MAX = 10_000
KEY_LENGTH_MAX = 256
SHOWN_ONCE = frozenset({"/admin/v1/users/{user}/tokens"})
"""Paths whose answers have a secret; so they do where the call is passed on to a master."""

_Call = bytes
"""A digest of caller, key, method, path with query, and body."""


def repeatable() -> Middleware:
    """Answer a changing call with a known key as the first time; equal ones at once run once.

    The key stands for this very call: by another caller, with another path, query or body it is
    another one. A call
    that fails is not remembered: it may be repeated. Nor is an answer that is shown once.
    """
    answers: OrderedDict[_Call, tuple[int, bytes]] = OrderedDict()
    running: dict[_Call, asyncio.Future[tuple[int, bytes]]] = {}

    @web.middleware
    async def once(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        named = request.headers.get("Idempotency-Key", "")
        administers = request.path.startswith(ADMINISTRATION)  # of others nobody knows who calls
        if request.method not in CHANGING or not named or not administers:
            return await handler(request)
        call = await _call(request, named[:KEY_LENGTH_MAX])
        if call in answers or call in running:
            request[UNCHANGED] = True
            return _again(answers[call] if call in answers else await asyncio.shield(running[call]))
        first = running[call] = asyncio.get_running_loop().create_future()
        try:
            answer = await handler(request)
            told = _told(answer)
        except BaseException as error:
            # Those who wait for the same get the same; where nobody does it is no loss.
            first.set_exception(
                web.HTTPServiceUnavailable() if isinstance(error, asyncio.CancelledError) else error
            )
            first.exception()
            del first  # or the error would hold its frame, and that by this the error
            raise
        finally:
            del running[call]
        first.set_result(told)
        if not _is_shown_once(request):
            answers[call] = told
        if len(answers) > KEYS_MAX:
            answers.popitem(last=False)
        return answer

    return once


async def _call(request: web.Request, key: str) -> _Call:
    said = (user_of(request), key, request.method, request.path_qs)
    digest = hashlib.sha256("\0".join(said).encode(errors="surrogateescape"))
    digest.update(b"\0" + await request.read())
    return digest.digest()


def _is_shown_once(request: web.Request) -> bool:
    resource = request.match_info.route.resource
    return resource is not None and resource.canonical in SHOWN_ONCE


def _told(answer: web.StreamResponse) -> tuple[int, bytes]:
    assert isinstance(answer, web.Response), "changing calls answer at once"
    assert isinstance(answer.body, bytes), "with JSON"
    return answer.status, answer.body


def _again(told: tuple[int, bytes]) -> web.Response:
    status, body = told
    return web.Response(status=status, body=body, content_type="application/json")
