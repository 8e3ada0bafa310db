"""Signatures by which brokers know each other's calls, made with the admin token.

Where the other brokers are is what the registry says, and who writes there is not known. So a call
proves that its sender has the token without showing it: it carries a keyed hash of what is asked,
of whom, and when. Whoever gets it can do nothing with it: another broker is not the one it names.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from urllib.parse import quote, unquote

SCHEME = "Imago-Signed"
CALLER = "Imago-Caller"
"""Header of a call that is passed on: who asked for it, from where, and a keyed hash of both."""
CLOCKS_DIFFER_MS_MAX = 10 * 60_000
"""An older or newer call counts as none of now: someone may have kept it."""
TOKEN_SIZE_MIN = 16
"""A shorter token may be guessed: who has it may do everything, and nothing slows guessing down."""


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


def caller_text(name: str, address: str, version: str) -> str:
    """Return what `CALLER` says of who asked, before it is signed.

    `version`: of the user's records where its right was decided.
    """
    return f"{quote(name, safe='')} {quote(address, safe=':')} {version or '-'}"


def told_caller(given: str, token: str, authorization: str) -> tuple[str, str, str] | None:
    """Return name, address and version of who asked a broker that has signed this; None: nobody is
    told."""
    told, _, signed = given.rpartition(" ")
    name, address, version = (*told.split(" ", 2), "", "")[:3]
    wanted = caller_hash(token, authorization, told)
    if not name or not hmac.compare_digest(signed.encode(errors="replace"), wanted.encode()):
        return None
    return unquote(name), unquote(address), version


def caller_hash(token: str, authorization: str, told: str) -> str:
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
