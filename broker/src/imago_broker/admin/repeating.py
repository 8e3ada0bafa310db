"""What a changing call with an `Idempotency-Key` gets when it comes again: the first answer."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING

from aiohttp import web

from imago_broker.admin.guard import CHANGING, UNCHANGED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp.typedefs import Middleware

KEYS_MAX = 10_000
KEY_LENGTH_MAX = 256

_Call = tuple[str, str, str, bytes]
"""Key, method, path with query, and a digest of the body."""


def repeatable() -> Middleware:
    """Answer a changing call with a known key as the first time; equal ones at once run once.

    The key stands for this very call: with another path, query or body it is another one. A call
    that fails is not remembered: it may be repeated.
    """
    answers: OrderedDict[_Call, tuple[int, bytes]] = OrderedDict()
    running: dict[_Call, asyncio.Future[tuple[int, bytes]]] = {}

    @web.middleware
    async def once(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        named = request.headers.get("Idempotency-Key", "")
        if request.method not in CHANGING or not named:
            return await handler(request)
        digest = hashlib.sha256(await request.read()).digest()
        call = (named[:KEY_LENGTH_MAX], request.method, request.path_qs, digest)
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
            raise
        finally:
            del running[call]
        first.set_result(told)
        answers[call] = told
        if len(answers) > KEYS_MAX:
            answers.popitem(last=False)
        return answer

    return once


def _told(answer: web.StreamResponse) -> tuple[int, bytes]:
    assert isinstance(answer, web.Response), "changing calls answer at once"
    assert isinstance(answer.body, bytes), "with JSON"
    return answer.status, answer.body


def _again(told: tuple[int, bytes]) -> web.Response:
    status, body = told
    return web.Response(status=status, body=body, content_type="application/json")
