"""What is looked at, again and again, as server-sent events: a page asks once and is told."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import orjson
from aiohttp import web

from imago_broker.admin.errors import AdminError, bad_request
from imago_broker.admin.paging import number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_broker.admin.services import AdminServices

PATH: Final = "/admin/v1/live"
ADMINISTRATION: Final = "/admin/v1/"
PATHS_MAX: Final = 16
"""What one page looks at."""
STREAMS_MAX: Final = 64
"""At once at one broker: who gets none asks for himself, less often."""
EVERY_MS, EVERY_MS_MIN, EVERY_MS_MAX = 5000, 1000, 60_000
STREAMS: Final = web.AppKey("live streams", set[asyncio.Event])
_HEADERS: Final = {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}


def keep_streams(app: web.Application) -> None:
    """Have the streams of an application end with it."""
    app[STREAMS] = set()

    async def end(_: web.Application) -> None:
        for ended in app[STREAMS]:
            ended.set()

    app.on_shutdown.append(end)


async def live(_: AdminServices, request: web.Request) -> web.StreamResponse:
    """GET /admin/v1/live?path=…&path=…: what these paths answer, as it changes.

    An event each `every` ms, with `{path: {"status", "body"}}` of those whose answer is another
    than in the event before. Each path is asked with the rights that the caller has by then.
    """
    paths = request.query.getall("path", [])
    if not 0 < len(paths) <= PATHS_MAX or not all(map(_is_asked_so, paths)):
        raise bad_request(
            f"path: {len(paths)} of them, not all of this interface.",
            f"Name 1 to {PATHS_MAX} paths below {ADMINISTRATION} that a GET takes.",
        )
    every_ms = number(request.query, "every", EVERY_MS, low=EVERY_MS_MIN, high=EVERY_MS_MAX)
    streams = request.app[STREAMS]
    if len(streams) >= STREAMS_MAX:
        text = f"{STREAMS_MAX} pages are kept up to date by this broker already."
        raise AdminError(503, "too_many_streams", text, "Ask the paths themselves, or another one.")
    ended = asyncio.Event()
    streams.add(ended)
    response = web.StreamResponse(headers=_HEADERS)
    try:
        await response.prepare(request)
        await _tell(request, response, paths, every_ms / 1000, ended)
    except ConnectionError:
        pass  # the page is gone
    finally:
        streams.discard(ended)
    return response


async def _tell(
    request: web.Request,
    response: web.StreamResponse,
    paths: Sequence[str],
    seconds: float,
    ended: asyncio.Event,
) -> None:
    known: Mapping[str, tuple[int, bytes]] = {}
    while not ended.is_set():
        now = {path: await _answer(request, path) for path in paths}
        changed = {
            path: {"status": status, "body": orjson.Fragment(body)}
            for path, (status, body) in now.items()
            if known.get(path) != (status, body)
        }
        await response.write(b"data: " + orjson.dumps(changed) + b"\n\n")
        known = now
        try:
            async with asyncio.timeout(seconds):
                await ended.wait()
        except TimeoutError:
            pass


def _is_asked_so(path: str) -> bool:
    return path.startswith(ADMINISTRATION) and not unquote(path).startswith(PATH)


class _Asked:
    """A request for another path, in the place of one that came over a connection.

    aiohttp tells requests which application and which path they are of as they come, and has no
    public way to do so later: this one knows it by itself.
    """

    def __init__(self, request: web.Request, path: str) -> None:
        self._request = request.clone(rel_url=path)
        self.app = request.app
        self.match_info: web.UrlMappingMatchInfo

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def __getitem__(self, key: Any) -> Any:
        return self._request[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._request[key] = value

    def __contains__(self, key: object) -> bool:
        return key in self._request

    async def answer(self) -> web.StreamResponse:
        """Ask, each time through all that stands around every call."""
        self.match_info = await self.app.router.resolve(self._request)
        handler: Any = self.match_info.handler
        for middleware in reversed(self.app.middlewares):
            handler = partial(middleware, handler=handler)
        answer: web.StreamResponse = await handler(self)
        return answer


async def _answer(request: web.Request, path: str) -> tuple[int, bytes]:
    """Ask one path in the caller's place."""
    answer = await _Asked(request, path).answer()
    body = answer.body if isinstance(answer, web.Response) else None
    return answer.status, body if isinstance(body, bytes) and body else b"null"
