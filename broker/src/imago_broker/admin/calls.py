"""Calls of one broker to another: signed with the admin token, which itself is never sent.

Where the other brokers are is what the registry says, and who writes there is not known. So a call
proves that its sender has the token without showing it: it carries a keyed hash of what is asked,
of whom, and when. Whoever gets it can do nothing with it: another broker is not the one it names.
"""

from __future__ import annotations

import hashlib
import hmac
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import aiohttp
from yarl import URL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from imago_broker.admin.services import AdminServices
    from imago_broker.model.cluster import BrokerRecord

SCHEME = "Imago-Signed"
CALLER = "Imago-Caller"
"""Header of a call that is passed on: who asked for it, from where, and a keyed hash of both."""
CLOCKS_DIFFER_MS_MAX = 10 * 60_000
"""An older or newer call counts as none of now: someone may have kept it."""


@asynccontextmanager
async def call(
    session: aiohttp.ClientSession,
    services: AdminServices,
    to: BrokerRecord,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str],
    body: bytes = b"",
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Ask another broker; `path` is as encoded on its way, with its query.

    Over TLS where we have a certificate; without it only if nothing was said over TLS, and the
    configuration does not rule it out.
    """
    target, said = f"{to.host}:{to.admin}", dict(headers)
    token = admin_token(services.config.admin.token_file)
    if token:
        now_ms = services.clock.epoch_ms()
        signed = signature(token, now_ms, method, target, path, body)
        said["Authorization"] = f"{SCHEME} {now_ms} {signed}"
        said["Host"] = target
        if CALLER in said:
            said[CALLER] += f" {_caller_hash(token, said['Authorization'], said[CALLER])}"
    ask = partial(session.request, method, data=body, headers=said)
    context = services.peer_tls()
    if context is not None:
        try:
            found = await ask(URL(f"https://{target}{path}", encoded=True), ssl=context)
        except (aiohttp.ClientConnectorError, aiohttp.ClientSSLError):
            if services.config.tls.calls == "enforcing":
                raise
        else:
            async with found:
                yield found
            return
    async with ask(URL(f"http://{target}{path}", encoded=True)) as found:
        yield found


def signature(token: str, at_ms: int, method: str, target: str, path: str, body: bytes) -> str:
    """Return the keyed hash of a call."""
    digest = hashlib.sha256(body).hexdigest()
    told = "\n".join((SCHEME, str(at_ms), method, target, path, digest))
    return hmac.new(token.encode(), told.encode(), hashlib.sha256).hexdigest()


def is_signed(
    given: str, token: str, now_ms: int, method: str, target: str, path: str, body: bytes
) -> bool:
    """Whether the header `given` was made by somebody who has the token, for this call and now."""
    scheme, _, rest = given.partition(" ")
    at, _, signed = rest.partition(" ")
    if scheme != SCHEME or not token or not (at.isascii() and at.isdecimal() and len(at) < 20):
        return False
    if abs(now_ms - int(at)) > CLOCKS_DIFFER_MS_MAX:
        return False
    wanted = signature(token, int(at), method, target, path, body)
    return hmac.compare_digest(signed.encode(errors="surrogateescape"), wanted.encode())


def caller_text(name: str, address: str) -> str:
    """Return what `CALLER` says of who asked, before it is signed."""
    return f"{quote(name, safe='')} {quote(address, safe=':')}"


def told_caller(given: str, token: str, authorization: str) -> tuple[str, str] | None:
    """Return name and address of who asked a broker that has signed this; None: nobody is told."""
    told, _, signed = given.rpartition(" ")
    name, _, address = told.partition(" ")
    wanted = _caller_hash(token, authorization, told)
    if not name or not hmac.compare_digest(signed.encode(errors="replace"), wanted.encode()):
        return None
    return unquote(name), unquote(address)


def _caller_hash(token: str, authorization: str, told: str) -> str:
    text = "\n".join((CALLER, authorization, told))
    return hmac.new(token.encode(), text.encode(errors="replace"), hashlib.sha256).hexdigest()


def admin_token(token_file: str) -> str:
    """Return the token; "" where there is none, which no caller can match."""
    if not token_file:
        return ""
    try:
        return Path(token_file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
