"""Who may call.

Health and metrics are open. Everything below `/admin/v1` needs the token of `admin.token_file`, as
it is or as the key of another broker's signature; where access control is on, a user's bearer token
or session with the route's right will do. Only without access control, and where
`admin.loopback_trusted` is set, does a caller on this machine need nothing. Then being here is a
credential, which what a proxy on this machine passes on must not have, nor what a browser sends for
a page that had its name resolved to us. Who shows another credential there that is wrong is refused
all the same: it has taken this broker for another.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from typing import TYPE_CHECKING

from aiohttp import web

from imago_broker.admin.calls.identity import (
    CSRF,
    OPERATOR,
    actor_of,
    bearer_token,
    csrf_of,
    note_caller,
    note_holder_of_token,
    note_operator,
    user_by_session,
    user_by_token,
    user_of,
)
from imago_broker.admin.errors import AdminError
from imago_broker.admin.rights import SHOW_STATE, any_user, open_to_all
from imago_broker.admin.token_review import TokenReviewer
from imago_broker.model.access.access import AccessKind, Need
from imago_broker.model.access.users import MEMBER
from imago_broker.shard_work.signing import SCHEME

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from aiohttp.typedefs import Middleware

    from imago_broker.admin.rights import RouteRight
    from imago_broker.admin.services import AdminServices
    from imago_broker.config import BrokerConfig

_PLAIN = re.compile(r"[A-Za-z0-9_.%@|-]{1,127}")
"""Names that a command line takes as they are."""
SAFE = frozenset({"GET", "HEAD"})
NOBODY = (Need((), AccessKind.CLUSTER, "a path without a right"),)
"""What is asked for where the table of routes says nothing: no rule gives it."""
_WITH_OUTDATED_USERS = (SHOW_STATE, any_user)
"""What users may do as they were known last, where their rights are not known any more."""
OF_PROXIES = ("forwarded", "via", "x-real-ip")
"""Headers that a proxy adds; so are all that begin with `X-Forwarded-`."""


def authorize(
    services: AdminServices,
    rights: Mapping[tuple[str, str], RouteRight],
    allowed: Callable[[web.Request], None],
) -> Middleware:
    """Ask for credentials where some are needed, and for the route's right, by method and path.

    The token is read again at each call, so it may change. `allowed` is told of each request that
    may be served: only then is its body read.
    """

    reviewer = TokenReviewer(services.config.token_review, services.clock)

    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        resource = request.match_info.route.resource
        right = rights.get((request.method, resource.canonical)) if resource is not None else None
        if request.headers.get("Authorization", "").startswith(SCHEME):
            allowed(request)  # a broker's signature is of the body, too
        if right is not open_to_all and not await note_holder_of_token(services, request):
            if services.config.acl.enabled:
                await _check_user(services, request, right, reviewer)
            else:
                check_place(services.config, request)
        allowed(request)
        return await handler(request)

    return check


async def _check_user(
    services: AdminServices,
    request: web.Request,
    right: RouteRight | None,
    reviewer: TokenReviewer,
) -> None:
    """Raise unless a user calls who has the right."""
    bearer = bearer_token(request)
    name = user_by_token(services, request) or await reviewer.user_of(bearer)
    name = name or _user_of_session(services, request)
    if not name:
        check_users_known(services)
        raise AdminError(
            401,
            "unauthorized",
            "The token of this call is not known here." if bearer else "This call needs a user.",
            "Send `Authorization: Bearer …` with a user's token (`imago user token`) or with the"
            " content of admin.token_file, or log in at the dashboard; commands take a token from"
            " the file that IMAGO_ADMIN_TOKEN_FILE names, and no password.",
        )
    note_caller(request, name)
    needs = list(right(services, request)) if right is not None else NOBODY
    if right not in _WITH_OUTDATED_USERS:
        check_users_current(services)
    _check_needs(services, request, needs)


def require(services: AdminServices, request: web.Request, needs: Iterable[Need]) -> None:
    """Raise unless the caller has rights that are known now alone: of what the body names, or of
    messages that are looked up. Who has the admin token needs none."""
    if services.config.acl.enabled and user_of(request) not in {MEMBER, OPERATOR}:
        _check_needs(services, request, needs)


def _check_needs(services: AdminServices, request: web.Request, needs: Iterable[Need]) -> None:
    name, address = actor_of(request)
    allowed = services.access.rights_of(name)
    for need in needs:
        if not allowed.meets(need, address):
            check_users_known(services)
            raise AdminError(
                403,
                "forbidden",
                f"User {name} may not {' or '.join(need.operations)} {need.kind.value}"
                f" {_shown(need, request)} from {address}.",
                _allowing(name, need, request),
            )


def check_users_known(services: AdminServices) -> None:
    """Raise where others may have users that this broker lacks: it must not refuse them."""
    if why := services.access.awaited.why:
        raise AdminError(503, "users_awaited", f"Users may be missing: {why}.", "Repeat the call.")


def check_users_current(services: AdminServices) -> None:
    """Raise where users may be known here as they no longer are."""
    if why := services.access.outdated.why:
        raise AdminError(
            503,
            "users_outdated",
            f"Nobody's rights are known here now: {why}.",
            "Call another broker of the shard, or use the admin token.",
        )


def _allowing(name: str, need: Need, request: web.Request) -> str:
    """Return which command gives what is missing."""
    if not need.operations:
        return "See docs/admin.md for the paths."
    resource = need.kind.value
    if need.kind is not AccessKind.CLUSTER:
        is_told = _is_told(need, request) and _PLAIN.fullmatch(need.name)
        resource += f":{need.name if is_told else need.kind.value.upper()}"
    command = f"imago user allow {name} {resource} {need.operations[0]}"
    return f"An administrator gives rights: `{command}`."


def _is_told(need: Need, request: web.Request) -> bool:
    return need.kind is AccessKind.CLUSTER or need.name in f"{request.path}?{request.query}"


def _shown(need: Need, request: web.Request) -> str:
    """Return the name that the request itself gives: whose a message is, is told to nobody."""
    return f"{need.name!a:.127}" if _is_told(need, request) else "of that message"


def _user_of_session(services: AdminServices, request: web.Request) -> str:
    """Return the user that is logged in; a changing call has to come from a page of ours."""
    name, cookie = user_by_session(services, request)
    shown = request.headers.get(CSRF, "").encode(errors="surrogateescape")
    safe = request.method in SAFE or hmac.compare_digest(shown, csrf_of(cookie).encode())
    if name and not safe:
        raise AdminError(
            403,
            "no_csrf_token",
            "This call changes something and carries a session's cookie alone.",
            f"Send {CSRF} with what GET /admin/v1/session answers, or a bearer token.",
        )
    return name


def check_operator(config: BrokerConfig, request: web.Request) -> None:
    """Raise unless the admin token is shown, or none is needed: where nobody knows users."""
    if note_operator(config.admin.token_file, request):
        return
    if config.acl.enabled:
        raise _unauthorized(config, request)
    check_place(config, request)


def check_place(config: BrokerConfig, request: web.Request) -> None:
    """Raise unless the caller is on this machine, that is enough, and nobody speaks through it."""
    admin = config.admin
    if not admin.loopback_trusted or not is_loopback(request.remote):
        raise _unauthorized(config, request)
    if "Authorization" in request.headers:
        raise AdminError(
            401,
            "unauthorized",
            "What this call shows as its credential is not the admin token of this broker, whose"
            " access control is off: there are no other tokens.",
            "Send none: callers on this machine need none here. Commands send what is in the file"
            " that IMAGO_ADMIN_TOKEN_FILE or a profile names.",
        )
    for name in request.headers:
        if name.lower() in OF_PROXIES or name.lower().startswith("x-forwarded-"):
            raise AdminError(
                401,
                "unauthorized",
                f"This call came through a proxy ({name:.40}): it needs the admin token.",
                "Send `Authorization: Bearer …` with the content of admin.token_file.",
            )
    host = request.headers.get("Host", "")
    if not is_own_name(host, own_address(request), config.broker.host):
        raise AdminError(
            403,
            "foreign_host",
            f"{host!r:.200} is not a name of this machine.",
            "Call it by localhost or 127.0.0.1, or send the admin token.",
        )


def _unauthorized(config: BrokerConfig, request: web.Request) -> AdminError:
    admin = config.admin
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


def own_address(request: web.Request) -> str:
    """Return the address of ours that the connection came to."""
    transport = request.transport
    name = transport.get_extra_info("sockname") if transport is not None else None
    return str(name[0]) if name else ""
