"""The dashboard's login: a name and a password, or a token, for a session's cookie."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from aiohttp import web

from imago_broker.admin.access import check_users_known
from imago_broker.admin.calls.guard import audit, json_body, json_response
from imago_broker.admin.calls.identity import (
    COOKIE,
    ENDED,
    SESSION_SECONDS,
    csrf_of,
    session_cookie,
    session_of,
    token_of,
    user_by_session,
    user_of,
)
from imago_broker.admin.errors import AdminError
from imago_broker.model.access.users import User
from imago_broker.shard_work.signing import admin_token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from imago_broker.admin.services import AdminServices
    from imago_broker.model.access.users import BearerToken

AT_ONCE_MAX: Final = 2
"""Passwords that are compared at the same time: each takes tens of milliseconds, on purpose."""
WAITING_MAX: Final = 32
"""Logins that wait for that, or are compared."""
OF_ADDRESS_MAX: Final = 4
"""The same, from one address: it shuts nobody else out."""
RETRY_SECONDS: Final = 1
BODY_BYTES_MAX: Final = 8 << 10
"""Of a login, which anybody may send: a name and a password."""
_NOBODY: Final = User(name="nobody", hashed="")


class LoginQueue:
    """Logins in turn; those without a place are refused, to be repeated."""

    def __init__(self) -> None:
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)
        self._waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for a turn. AdminError: too many wait already."""
        waiting = self._waiting
        if waiting.total() >= WAITING_MAX or waiting[address] >= OF_ADDRESS_MAX:
            raise AdminError(
                429,
                "too_many_logins",
                "Too many logins wait for their passwords to be compared.",
                "Try again in a moment.",
                headers={"Retry-After": str(RETRY_SECONDS)},
            )
        waiting[address] += 1
        try:
            async with self._at_once:
                yield
        finally:
            waiting[address] -= 1
            if not waiting[address]:
                del waiting[address]


LOGINS: Final = web.AppKey("logins", LoginQueue)


async def log_in(services: AdminServices, request: web.Request) -> web.Response:
    """POST /login with `{"user": …, "password": …}` or `{"token": …}`: 200 and a cookie, or 401;
    429: come again; 409: there are no users to log in as."""
    if not services.config.acl.enabled:
        raise AdminError(
            409,
            "access_control_off",
            "Nobody logs in here: access control is off, so this broker knows no users.",
            "Callers on its machine need nothing where admin.loopback_trusted is set, others the"
            " admin token; for users set acl.enabled = true and admin.token_file.",
        )
    if not admin_token(services.config.admin.token_file):
        raise AdminError(
            503,
            "no_key",
            "Sessions are signed with the admin token, and this broker has none.",
            "Set admin.token_file to a file with a secret.",
        )
    body = await json_body(request, BODY_BYTES_MAX)
    if "token" in body:
        user, token = _by_token(services, request, str(body["token"]))
    else:
        user, token = await _by_password(services, request, body), None
    by = f" token={token.number}" if token is not None else ""
    audit.info("login user=%s from %s%s", user.name, request.remote, by)
    cookie = session_of(services, user, token)
    answer = json_response({"user": user.name, "csrf": csrf_of(cookie)})
    answer.set_cookie(
        COOKIE,
        cookie,
        max_age=SESSION_SECONDS,
        httponly=True,
        samesite="Strict",
        secure=request.secure,
        path="/",
    )
    return answer


def _by_token(services: AdminServices, request: web.Request, text: str) -> tuple[User, BearerToken]:
    """Return whose token it is; it is random, so no turn has to be waited for."""
    found = token_of(services, text.strip())
    if found is None:
        check_users_known(services)
        # Of what was sent nothing is told: it may be a part of a token that counts.
        audit.info("login refused by token from %s", request.remote)
        raise AdminError(
            401,
            "wrong_token",
            "The token is not known here, or has ended.",
            "An administrator makes another: `imago user token`.",
        )
    return found


async def _by_password(
    services: AdminServices, request: web.Request, body: Mapping[str, object]
) -> User:
    name, password = str(body.get("user", "")), str(body.get("password", ""))
    user = services.access.users.get(name)
    async with request.app[LOGINS].turn(request.remote or ""):
        right = await asyncio.to_thread((user or _NOBODY).has_password, password[:1024])
    if user is None or not user.enabled or not right:
        check_users_known(services)
        audit.info("login refused user=%a from %s", name[:64], request.remote)
        raise AdminError(
            401,
            "wrong_password",
            "There is no such user, or the password is another.",
            "Try again; an administrator sets passwords: `imago user password`.",
        )
    return user


async def log_out(services: AdminServices, request: web.Request) -> web.Response:
    """POST /logout: the session counts no more on this broker, and its cookie is forgotten."""
    name, cookie = user_by_session(services, request)
    if name:
        request.app[ENDED].add(cookie)
        audit.info("logout user=%s from %s", name, request.remote)
    answer = json_response({})
    answer.del_cookie(COOKIE, path="/")
    return answer


async def session(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/session: who calls, and what changing calls of a session have to show."""
    cookie, name = session_cookie(request), user_of(request)
    csrf = csrf_of(cookie) if cookie and name in services.access.users else ""
    return json_response({"user": name, "csrf": csrf})
