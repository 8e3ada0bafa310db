"""What stands around every call: the one form of errors, the audit log, requests of other pages.

Who may call at all is `access`; what a repeated call gets, `repeating`.
"""

from __future__ import annotations

import logging
import re
from http import HTTPStatus
from typing import TYPE_CHECKING

import orjson
from aiohttp import web

from imago_broker.admin.calls.identity import actor_of
from imago_broker.admin.errors import AdminError, bad_request, of_store
from imago_broker.model.bounds import as_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

audit = logging.getLogger("imago.audit")
log = logging.getLogger(__name__)

UNCHANGED = web.RequestKey("unchanged", bool)
"""Set in a request that changes nothing: it gets a former answer, or brought nothing new."""
ADMINISTRATION = "/admin/"
"""Messages of MetaQ's clients have other paths: a put is nothing for the audit log."""
_OF_KUBERNETES = re.compile("/(api|apis|openapi|version)(/|$)")
"""What kubectl asks for."""
CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def json_response(
    body: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.Response(
        body=orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS),
        status=status,
        headers=headers,
        content_type="application/json",
    )


def _no_kubernetes(request: web.Request) -> web.Response:
    """Tell who takes this for a Kubernetes. kubectl prints the words of a 403 in text alone."""
    error = AdminError(
        404,
        "no_kubernetes",
        "This is the admin interface of an Imago broker, and no Kubernetes API server.",
        "Without a kubeconfig kubectl calls localhost:8080: name yours in KUBECONFIG or with"
        " --kubeconfig.",
    )
    if request.headers.get("User-Agent", "").startswith("kubectl"):
        return web.Response(status=HTTPStatus.FORBIDDEN, text=f"{error.message} {error.cure}")
    return json_response(error.body(), status=error.status)


@web.middleware
async def errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Turn every failure into the one error form; a trace goes to the log, never to the caller."""
    try:
        return await handler(request)
    except AdminError as error:
        return json_response(error.body(), status=error.status, headers=error.headers)
    except web.HTTPException as error:
        if error.status == HTTPStatus.NOT_FOUND and _OF_KUBERNETES.match(request.path):
            return _no_kubernetes(request)
        cure = "See docs/admin.md for the paths and methods."
        body = AdminError(error.status, "http", error.reason, cure).body()
        return json_response(body, status=error.status)
    except Exception as error:
        if (refusal := of_store(error)) is not None:
            log.info("not_changed path=%.200s reason=%s", ascii(request.path)[1:-1], error)
            return json_response(refusal.body(), status=refusal.status)
        if request.transport is None:
            raise web.HTTPBadRequest from None  # the caller is gone: nobody reads the answer
        log.exception("admin_call_failed method=%s path=%s", request.method, request.path)
        body = AdminError(500, "internal", "The broker failed at this call.", "See its log.").body()
        return json_response(body, status=500)


@web.middleware
async def audited(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Write every changing call to the audit log, also those that fail or are refused."""
    if request.method not in CHANGING or not request.path.startswith(ADMINISTRATION):
        return await handler(request)
    outcome = "broken off"
    try:
        answer = await handler(request)
        outcome = str(answer.status)
    finally:
        if UNCHANGED not in request:
            audit.info(
                "%s %.500s by %s from %s: %s key=%s",
                request.method,
                request.path_qs,
                *actor_of(request),
                outcome,
                ascii(request.headers.get("Idempotency-Key", "-")[:200])[1:-1],
            )
    return answer


@web.middleware
async def no_foreign_pages(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse what a web page of another site makes a browser send: its `Origin` is not ours."""
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"{request.scheme}://{request.headers.get('Host', '')}":
        raise AdminError(
            403, "foreign_origin", f"Asked for by a page of {origin:.200}.", "Use the dashboard."
        )
    return await handler(request)


def boolean(body: Mapping[str, object], key: str) -> bool:
    """Return what a body says by this key, false unless it says anything."""
    value = body.get(key, False)
    if not isinstance(value, bool):
        raise bad_request(f"{key}: {as_json(value)}, must be true or false.", "Correct it.")
    return value


def text_of(body: Mapping[str, object], key: str) -> str:
    """Return the text that a body has by this key, empty unless it has any."""
    value = body.get(key, "")
    if not isinstance(value, str):
        raise bad_request(f"{key}: {as_json(value)}, must be a text.", "Correct it.")
    return value


async def json_body(request: web.Request, bytes_max: int = 0) -> dict[str, object]:
    """Return the request's JSON object; an empty body is an empty object.

    `bytes_max`: how large it may be, where that is less than for others.
    """
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise AdminError(
            415, "encoded", f"The body is encoded: {encoding!a:.40}.", "Send it as it is."
        )
    raw = await _read(request, bytes_max) if bytes_max else await request.read()
    try:
        body = orjson.loads(raw) if raw else {}
    except orjson.JSONDecodeError as error:
        raise AdminError(
            400,
            "bad_json",
            f"The body is not JSON: line {error.lineno}, column {error.colno}.",
            "Send one JSON object.",
        ) from error
    if not isinstance(body, dict):
        raise AdminError(400, "bad_json", "The body is not a JSON object.", "Send {…}.")
    return body


async def _read(request: web.Request, bytes_max: int) -> bytes:
    raw = bytearray()
    async for piece in request.content.iter_any():
        raw += piece
        if len(raw) > bytes_max:
            raise AdminError(
                413, "too_large", f"The body has more than {bytes_max} bytes.", "Send less."
            )
    return bytes(raw)
