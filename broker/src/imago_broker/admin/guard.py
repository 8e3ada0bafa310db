"""Who may call, what is logged, and what a repeated call gets: the middlewares.

Health and metrics are open. Everything below `/admin/v1` needs the bearer token of
`admin.token_file`, unless the caller is on the loopback interface. Every changing call is written
to the audit log; with an `Idempotency-Key` a repeat gets the first answer again.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import socket
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from aiohttp import web

from imago_broker.admin.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp.typedefs import Middleware

audit = logging.getLogger("imago.audit")
log = logging.getLogger(__name__)

KEYS_MAX = 10_000
CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
OPEN = frozenset({"/", "/healthz", "/readyz", "/writez", "/metrics"})


def json_response(body: object, *, status: int = 200) -> web.Response:
    return web.Response(
        body=orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS),
        status=status,
        content_type="application/json",
    )


@web.middleware
async def errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Turn every failure into the one error form; a trace goes to the log, never to the caller."""
    try:
        return await handler(request)
    except AdminError as error:
        return json_response(error.body(), status=error.status)
    except web.HTTPException as error:
        cure = "See docs/admin.md for the paths and methods."
        body = AdminError(error.status, "http", error.reason, cure).body()
        return json_response(body, status=error.status)
    except Exception:
        if request.transport is None:
            raise web.HTTPBadRequest from None  # the caller is gone: nobody reads the answer
        log.exception("%s %s failed", request.method, request.path)
        body = AdminError(500, "internal", "The broker failed at this call.", "See its log.").body()
        return json_response(body, status=500)


def authorize(token_file: str) -> Middleware:
    """Ask for the token where one is needed; it is read again at each call, so it may change."""

    def allowed(request: web.Request) -> bool:
        if request.path in OPEN or is_loopback(request.remote):
            return True
        if not token_file:
            return False
        token = admin_token(token_file)
        given = request.headers.get("Authorization", "")
        return bool(token) and hmac.compare_digest(given.encode(), f"Bearer {token}".encode())

    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not allowed(request):
            raise AdminError(
                401,
                "unauthorized",
                "This call needs the admin token.",
                "Send `Authorization: Bearer …` with the content of admin.token_file, or call "
                "from the broker's own machine.",
            )
        return await handler(request)

    return check


def admin_token(token_file: str) -> str:
    """Return the token; "" when the file is empty, which no caller can match."""
    return Path(token_file).read_text(encoding="utf-8").strip()


def is_loopback(address: str | None) -> bool:
    """Whether the peer is this machine. A proxy on it would be too: do not run one unguarded."""
    try:
        return address is not None and ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


@web.middleware
async def no_foreign_pages(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse what a web page of another site makes a browser on this machine send.

    Being on the loopback interface is a credential here, so a browser's cross-site request must
    not have it: such a request carries an `Origin` that is not ours, and a page that had its name
    resolved to this machine carries that name in `Host`.
    """
    host = request.headers.get("Host", "")
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"{request.scheme}://{host}":
        raise AdminError(
            403, "foreign_origin", f"Asked for by a page of {origin:.200}.", "Use the dashboard."
        )
    if is_loopback(request.remote) and request.path not in OPEN and not is_own_name(host):
        raise AdminError(
            403,
            "foreign_host",
            f"{host!r:.200} is not a name of this machine.",
            "Call it by its address, or by localhost.",
        )
    return await handler(request)


def is_own_name(host: str) -> bool:
    """Whether a Host header names an address, localhost, or this machine."""
    name = host.rsplit(":", 1)[0].strip("[]") if not host.endswith("]") else host.strip("[]")
    if name in {"localhost", socket.gethostname(), ""}:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def repeatable() -> Middleware:
    """Answer a changing call with a known `Idempotency-Key` as the first time; log changes."""
    answers: OrderedDict[tuple[str, str, str], tuple[int, bytes]] = OrderedDict()

    @web.middleware
    async def once(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.method not in CHANGING:
            return await handler(request)
        key = (request.method, request.path, request.headers.get("Idempotency-Key", ""))
        if key[2] and key in answers:
            status, body = answers[key]
            return web.Response(status=status, body=body, content_type="application/json")
        answer = await handler(request)
        audit.info(
            "%s %s from %s: %d key=%s",
            request.method,
            request.path_qs,
            request.remote,
            answer.status,
            key[2] or "-",
        )
        if key[2] and isinstance(answer, web.Response) and isinstance(answer.body, bytes):
            answers[key] = (answer.status, answer.body)
            if len(answers) > KEYS_MAX:
                answers.popitem(last=False)
        return answer

    return once


async def json_body(request: web.Request) -> dict[str, object]:
    """Return the request's JSON object; an empty body is an empty object."""
    raw = await request.read()
    try:
        body = orjson.loads(raw) if raw else {}
    except orjson.JSONDecodeError as error:
        raise AdminError(
            400, "bad_json", f"The body is not JSON: {error}.", "Send one JSON object."
        ) from error
    if not isinstance(body, dict):
        raise AdminError(400, "bad_json", "The body is not a JSON object.", "Send {…}.")
    return body
