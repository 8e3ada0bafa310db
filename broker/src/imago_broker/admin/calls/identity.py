"""Whose call it is: the admin token's, another broker's, a user's by token or by its session.

A session is a cookie that every broker of the cluster can check: the user's name, when it ends and
the number of the token that it was opened with, if one was, under a keyed hash. It ends with the
user's password or that token, too, which is part of what is hashed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final

from aiohttp import web

from imago_broker.admin.errors import AdminError
from imago_broker.model.access.users import MEMBER, name_problem, token_hash, token_parts
from imago_broker.service.access.access_drafts import version_of
from imago_broker.service.access.access_edits import Actor
from imago_broker.shard_work.signing import CALLER, SCHEME, admin_token, is_signed, told_caller

if TYPE_CHECKING:
    from imago_broker.admin.services import AdminServices
    from imago_broker.model.access.users import BearerToken, User

COOKIE: Final = "imago_session"
CSRF: Final = "X-Imago-CSRF"
SESSION_SECONDS: Final = 8 * 3600
ENDED_MAX: Final = 10_000
"""Sessions of which a broker remembers that they were logged out, the newest."""
OPERATOR: Final = "(admin token)"
_CALLER: Final = web.RequestKey("caller", Actor)


class EndedSessions:
    """Sessions that were logged out here before they ended; in other brokers they end by time."""

    def __init__(self) -> None:
        self._ended: OrderedDict[bytes, None] = OrderedDict()

    def add(self, cookie: str) -> None:
        """Have a session count no more."""
        self._ended[_digest(cookie)] = None
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)

    def __contains__(self, cookie: str) -> bool:
        return bool(self._ended) and _digest(cookie) in self._ended


ENDED: Final = web.AppKey("ended", EndedSessions)


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode(errors="surrogateescape")).digest()


def user_of(request: web.Request) -> str:
    """Return whose call it is, as `note_caller` said; "" where that was not asked."""
    return actor_of(request).name if _CALLER in request else ""


def actor_of(request: web.Request) -> Actor:
    """Return who asks and from where, for the audit log: behind a broker that passes a call on,
    whoever asked that one."""
    found: Actor | None = request.get(_CALLER)
    return found or Actor("(not checked)", request.remote or "?")


def note_caller(request: web.Request, name: str, address: str | None = None) -> None:
    """Say whose call it is; `address`: where it was asked first, if that was another broker."""
    request[_CALLER] = Actor(name, address or request.remote or "?")


def note_operator(token_file: str, request: web.Request) -> bool:
    """Note who calls with the admin token as it is; False: nobody does."""
    given = request.headers.get("Authorization", "")
    token = admin_token(token_file) if given else ""
    right = bool(token) and hmac.compare_digest(
        given.encode(errors="surrogateescape"), f"Bearer {token}".encode()
    )
    if right:
        note_caller(request, OPERATOR)
    return right


async def note_holder_of_token(services: AdminServices, request: web.Request) -> bool:
    """Note who calls with the admin token, or signed with it; False: nobody does."""
    given = request.headers.get("Authorization", "")
    token = admin_token(services.config.admin.token_file) if given else ""
    if not token:
        return False
    if note_operator(services.config.admin.token_file, request):
        return True
    own = services.coordinator.registered
    if own is None or not given.startswith(SCHEME):
        return False
    target = f"{own.host}:{own.admin}"
    if request.headers.get("Host") != target:
        return False
    now_ms, body = services.clock.epoch_ms(), await request.read()
    if not is_signed(given, token, now_ms, request.method, target, request.path_qs, body):
        return False
    told = told_caller(request.headers.get(CALLER, ""), token, given)
    name, address, version = told or (MEMBER, None, "")
    note_caller(request, name, address)
    if services.config.acl.enabled and name not in {MEMBER, OPERATOR}:
        _check_version(services, name, version)
    return True


def _check_version(services: AdminServices, name: str, version: str) -> None:
    """Raise unless who passes a call on knows of its caller what is known here.

    Its copy of the users may be old, and the right is not asked for again.
    """
    if version != version_of(services.access, name):
        raise AdminError(
            503,
            "users_differ",
            f"The broker that passes this call on knows another user {name!a:.80}.",
            "Repeat the call in a moment, or ask the shard's master.",
        )


def bearer_token(request: web.Request) -> str:
    """Return the bearer token that a call shows; "": none."""
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""


def user_by_token(services: AdminServices, request: web.Request) -> str:
    """Return the user whose bearer token is shown; "": none."""
    found = token_of(services, bearer_token(request))
    return found[0].name if found else ""


def token_of(services: AdminServices, text: str) -> tuple[User, BearerToken] | None:
    """Return a user and its token, which this is and which counts; None: it is none."""
    parts = token_parts(text)
    user = services.access.users.get(parts[0]) if parts else None
    token = user.token(parts[1]) if parts and user and user.enabled else None
    if parts is None or user is None or token is None:
        return None
    right = hmac.compare_digest(token_hash(parts[2]).encode(), token.hashed.encode())
    ended = token.has_ended(services.clock.epoch_ms())
    return (user, token) if right and not ended else None


def session_of(services: AdminServices, user: User, token: BearerToken | None = None) -> str:
    """Return the cookie of a new session, opened with a password or with a token."""
    ends_ms = services.clock.epoch_ms() + SESSION_SECONDS * 1000
    number = ""
    if token is not None:
        number, ends_ms = token.number, token.ending_by(ends_ms).expires_ms
    told = f"{number}|" if number else ""
    return f"{user.name}|{ends_ms}|{told}{_hash(services, user, ends_ms, number)}"


def csrf_of(cookie: str) -> str:
    """Return what changing calls of a session show beside its cookie: a page of ours can read it,
    another's cannot."""
    return hashlib.sha256(f"csrf:{cookie}".encode()).hexdigest()


def user_by_session(services: AdminServices, request: web.Request) -> tuple[str, str]:
    """Return the user of a session and its cookie; "" and "": there is none."""
    cookie = session_cookie(request)
    name, _, rest = cookie.partition("|")
    ends, _, rest = rest.partition("|")
    number, _, given = rest.rpartition("|")
    user = services.access.users.get(name) if not name_problem(name) else None
    if user is None or not user.enabled or not (ends.isascii() and ends.isdecimal()):
        return "", ""
    if len(ends) > 16 or int(ends) <= services.clock.epoch_ms():
        return "", ""
    wanted = _hash(services, user, int(ends), number)
    # Without the admin token there is no key, and so no session: "" must not match "".
    right = bool(wanted) and hmac.compare_digest(
        given.encode(errors="surrogateescape"), wanted.encode()
    )
    return (name, cookie) if right and cookie not in request.app[ENDED] else ("", "")


def session_cookie(request: web.Request) -> str:
    """Return the session's cookie as it was sent; "" where there is none."""
    try:
        found = SimpleCookie(request.headers.get("Cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _hash(services: AdminServices, user: User, ends_ms: int, number: str) -> str:
    """Return the hash of a session; "": there can be none, or its token counts no more."""
    key, token = admin_token(services.config.admin.token_file), user.token(number)
    if not key or (number and (token is None or token.has_ended(services.clock.epoch_ms()))):
        return ""
    proof = (number, token.hashed) if token is not None else (user.secret, user.hashed)
    told = "\n".join((COOKIE, user.name, str(ends_ms), *proof))
    return hmac.new(key.encode(), told.encode(), hashlib.sha256).hexdigest()
