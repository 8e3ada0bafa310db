"""Signatures of requests: HMAC-SHA1 over the header's fields and the body, as RocketMQ's clients.

The values of all fields but the signature itself, in the order of their names (by UTF-16 code
units, as Java sorts), then the body. A field without a value counts as not there.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_wire.remoting.command import RemotingCommand

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105  a field's name
CREDENTIALS: Final = frozenset({ACCESS_KEY, SIGNATURE, SECURITY_TOKEN})
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""A field that clients add behind their signature."""


def signature(secret: str, ext: Mapping[str, str], body: bytes, left_out: str = "") -> str:
    """Return the signature of a request with these fields; one more field may be left out."""
    made = hmac.digest(secret.encode(), _signed_text(ext, left_out) + body, "sha1")
    return b64encode(made).decode()


def _signed_text(ext: Mapping[str, str], left_out: str) -> bytes:
    """Return what is signed in front of the body."""
    names = [name for name in ext if name != SIGNATURE and name != left_out]
    if all(map(str.isascii, names)):
        names.sort()
    else:
        names.sort(key=_utf16)
    return "".join([ext[name] for name in names]).encode(errors="surrogatepass")


def is_signed(secret: str, command: RemotingCommand) -> bool:
    """Whether who sent the request has the secret key.

    Java's brokers leave `_UNIQUE_KEY_QUERY` out; Go's client leaves the session token out.
    """
    ext, body = command.ext, command.body
    given = ext.get(SIGNATURE, "").encode(errors="replace")
    right = False
    for left_out in _ways(ext):
        right |= hmac.compare_digest(signature(secret, ext, body, left_out).encode(), given)
    return right


def _ways(ext: Mapping[str, str]) -> list[str]:
    """Return which fields known clients leave out, one a way."""
    return ["", *(name for name in (UNIQUE_KEY_QUERY, SECURITY_TOKEN) if name in ext)]


class BodySignatures:
    """The same while the body still comes, which nobody keeps."""

    def __init__(self, secrets: Iterable[str], ext: Mapping[str, str]) -> None:
        """Any of these secret keys will do."""
        self._given = ext.get(SIGNATURE, "").encode(errors="replace")
        self._made = [
            hmac.new(secret.encode(), _signed_text(ext, left_out), "sha1")
            for secret in secrets
            for left_out in _ways(ext)
        ]

    def update(self, body: bytes | bytearray | memoryview) -> None:
        """Add a piece of the body."""
        for made in self._made:
            made.update(body)

    def is_right(self) -> bool:
        """Whether who sent the request has one of the keys, now that the body is whole."""
        right = False
        for made in self._made:
            right |= hmac.compare_digest(b64encode(made.digest()), self._given)
        return right


def unsigned(ext: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a request without its credentials: who else gets it shall not have
    them, since a signature holds for other requests of the same text, too."""
    return {name: value for name, value in ext.items() if name not in CREDENTIALS}


def signed(
    ext: Mapping[str, str], body: bytes, *, access_key: str, secret: str, security_token: str = ""
) -> dict[str, str]:
    """Return the fields of a request with its signature."""
    fields = {**ext, ACCESS_KEY: access_key}
    if security_token:
        fields[SECURITY_TOKEN] = security_token
    fields[SIGNATURE] = signature(secret, fields, body)
    return fields


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", errors="surrogatepass")
