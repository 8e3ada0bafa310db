"""Tokens of Kubernetes' service accounts as credentials: the API server says whose they are.

The broker asks with a TokenReview, for tokens of an audience of its own: one that was made for
somebody else counts nothing here, and one for us opens nothing elsewhere. What the API server said
is kept for a while, so that not every call asks it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import ssl
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import aiohttp
import orjson

from imago_broker.admin.errors import AdminError
from imago_broker.model.access.users import name_problem
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from imago_broker.config.sections.security_sections import TokenReviewSection
    from imago_broker.ports import Clock

log = logging.getLogger(__name__)

PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
TIMEOUT: Final = aiohttp.ClientTimeout(total=5, sock_connect=2)
KEPT_MS: Final = 30_000
"""How long an answer counts: so long a token may outlive its account here."""
REFUSED_MS: Final = 5_000
KEPT_MAX: Final = 1000
ASKED_MAX: Final = 4
"""Questions at one time."""
TOKEN_SIZE_MAX: Final = 16 << 10
ANSWER_MAX: Final = 64 << 10
_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_ACCOUNT: Final = "system:serviceaccount:"


class Said(NamedTuple):
    """What the API server said, and until when it counts."""

    user: str
    until_ms: int


class TokenReviewer:
    """Knows whose tokens are."""

    def __init__(self, section: TokenReviewSection, clock: Clock) -> None:
        self._section, self._clock = section, clock
        self._known: OrderedDict[bytes, Said] = OrderedDict()
        self._asking = asyncio.Semaphore(ASKED_MAX)

    async def user_of(self, token: str) -> str:
        """Return the user of a token, `ACCOUNT@NAMESPACE`; "": nobody's. AdminError: not known."""
        if not self._section.url or len(token) > TOKEN_SIZE_MAX or not _TOKEN.fullmatch(token):
            return ""
        key = hashlib.sha256(token.encode()).digest()
        now_ms = self._clock.epoch_ms()
        known = self._known.get(key)
        if known is not None and now_ms < known.until_ms:
            return known.user
        async with self._asking:
            user = account_of(await self._ask(token), self._section.audience)
        self._known[key] = Said(user, now_ms + (KEPT_MS if user else REFUSED_MS))
        self._known.move_to_end(key)
        while len(self._known) > KEPT_MAX:
            self._known.popitem(last=False)
        return user

    async def _ask(self, token: str) -> object:
        section = self._section
        spec = {"token": token, "audiences": [section.audience]}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        try:
            own = _read(section.token_file)
            context = ssl.create_default_context(cafile=section.ca_file or None)
            headers = {"Authorization": f"Bearer {own}"}
            async with (
                aiohttp.ClientSession(timeout=TIMEOUT) as session,
                session.post(section.url + PATH, json=body, headers=headers, ssl=context) as answer,
            ):
                found = _decoded(answer.status, await answer.content.read(ANSWER_MAX))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            text = str(error) or type(error).__name__
            log.warning("token_review_failed url=%s error=%s", section.url, text)
            raise AdminError(
                503,
                "token_not_reviewed",
                f"Kubernetes does not say whose token this is: {text[:200]}.",
                "Repeat the call; see token_review.url, and the broker's right to create"
                " TokenReviews.",
            ) from error
        return found


def _read(path: str) -> str:
    """Return our own token, as it is now: it is replaced every hour or so."""
    return Path(path).read_text(encoding="utf-8").strip()


def _decoded(status: int, raw: bytes) -> object:
    if status >= 300:
        raise WrongError(f"it answers {status}: {raw[:200]!r}")
    found: object = orjson.loads(raw)
    return found


def account_of(answer: object, audience: str) -> str:
    """Return the service account that an answer names, as a user's name; "": none for us."""
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(status, dict) or status.get("authenticated") is not True:
        return ""
    # A server that knows no audiences names none: then the token is for itself, not for us.
    if audience not in (status.get("audiences") or ()):
        return ""
    user = status.get("user")
    name = str(user.get("username", "")) if isinstance(user, dict) else ""
    namespace, colon, account = name.removeprefix(_ACCOUNT).partition(":")
    if not name.startswith(_ACCOUNT) or not colon:
        return ""
    found = f"{account}@{namespace}"
    return "" if name_problem(found) else found
