"""Who may call.

Health and metrics are open. Everything below `/admin/v1` needs the token of `admin.token_file`: as
it is, or as the key of another broker's signature. Only where `admin.loopback_trusted` is set does
a caller on this machine need none. Then being here is a credential, which what a proxy on this
machine passes on must not have, nor what a browser sends for a page that had its name resolved
to us.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from typing import TYPE_CHECKING

from aiohttp import web

from imago_broker.admin.calls import SCHEME, admin_token, is_signed
from imago_broker.admin.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp.typedefs import Middleware

    from imago_broker.admin.services import AdminServices

OPEN = frozenset({"/", "/healthz", "/readyz", "/writez", "/metrics"})
OF_PROXIES = ("forwarded", "via", "x-real-ip")
"""Headers that a proxy adds; so are all that begin with `X-Forwarded-`."""


def authorize(services: AdminServices) -> Middleware:
    """Ask for the token where one is needed; it is read again at each call, so it may change."""

    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.path not in OPEN and not await _has_token(services, request):
            _check_place(services, request)
        return await handler(request)

    return check


async def _has_token(services: AdminServices, request: web.Request) -> bool:
    given = request.headers.get("Authorization", "")
    token = admin_token(services.config.admin.token_file) if given else ""
    if not token:
        return False
    if hmac.compare_digest(given.encode(errors="surrogateescape"), f"Bearer {token}".encode()):
        return True
    own = services.coordinator.registered
    if own is None or not given.startswith(SCHEME):
        return False
    target = f"{own.host}:{own.admin}"
    if request.headers.get("Host") != target:
        return False
    now_ms, body = services.clock.epoch_ms(), await request.read()
    return is_signed(given, token, now_ms, request.method, target, request.path_qs, body)


def _check_place(services: AdminServices, request: web.Request) -> None:
    """Raise unless the caller is on this machine, that is enough, and nobody speaks through it."""
    admin = services.config.admin
    if not admin.loopback_trusted or not is_loopback(request.remote):
        raise _unauthorized(services, request)
    for name in request.headers:
        if name.lower() in OF_PROXIES or name.lower().startswith("x-forwarded-"):
            raise AdminError(
                401,
                "unauthorized",
                f"This call came through a proxy ({name:.40}): it needs the admin token.",
                "Send `Authorization: Bearer …` with the content of admin.token_file.",
            )
    host = request.headers.get("Host", "")
    if not is_own_name(host, _own_address(request), services.config.broker.host):
        raise AdminError(
            403,
            "foreign_host",
            f"{host!r:.200} is not a name of this machine.",
            "Call it by localhost or 127.0.0.1, or send the admin token.",
        )


def _unauthorized(services: AdminServices, request: web.Request) -> AdminError:
    admin = services.config.admin
    if admin.token_file:
        signed = request.headers.get("Authorization", "").startswith(SCHEME)
        clocks = " If both have the same token, compare the brokers' clocks." if signed else ""
        return AdminError(
            401,
            "unauthorized",
            "This call needs the admin token.",
            "Send `Authorization: Bearer …` with the content of admin.token_file; commands take it"
            f" from the file that IMAGO_ADMIN_TOKEN_FILE names.{clocks}",
        )
    cure = (
        "Set admin.token_file (IMAGO__ADMIN__TOKEN_FILE) to a file with a secret, start the broker"
        " again, and send `Authorization: Bearer …` with what is in it; commands take it from the"
        " file that IMAGO_ADMIN_TOKEN_FILE names."
    )
    if is_loopback(request.remote):
        cure += (
            " Or let everybody on this machine administer it: admin.loopback_trusted = true"
            " (IMAGO__ADMIN__LOOPBACK_TRUSTED=true), as under `imago up`."
        )
    return AdminError(
        401, "unauthorized", "This call needs the admin token, and this broker has none.", cure
    )


def is_loopback(address: str | None) -> bool:
    """Whether the peer is this machine."""
    try:
        return address is not None and ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def is_own_name(host: str, *own: str) -> bool:
    """Whether a Host header names localhost, this machine, or one of its own addresses.

    Of addresses only loopback ones and those in `own`: a page can have its name resolved to this
    machine, and a proxy passes on the address that it was asked by.
    """
    name = host.rsplit(":", 1)[0].strip("[]") if not host.endswith("]") else host.strip("[]")
    if name in {"localhost", socket.gethostname(), "", *own}:
        return True
    return is_loopback(name)


def _own_address(request: web.Request) -> str:
    """Return the address of ours that the connection came to."""
    transport = request.transport
    name = transport.get_extra_info("sockname") if transport is not None else None
    return str(name[0]) if name else ""
