"""Access control as clients do it: a signature over the ext values and the body.

The values of all ext fields, in the order of their names (as UTF-16) and without `Signature`
itself, are joined and followed by the body; the signature is the Base64 form of HMAC-SHA1 of
that with the account's secret. No broker of ours checks it yet.
"""

from __future__ import annotations

import base64
import hmac
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105  # the name of a field

UNSIGNED: Final = frozenset({SIGNATURE})


def signed_content(
    ext: Mapping[str, str], body: bytes, *, leave_out: Collection[str] = UNSIGNED
) -> bytes:
    """Return the bytes that are signed. `leave_out` names ext fields that do not count.

    A Go client leaves its SecurityToken out; servers up to 4.9 leave `_UNIQUE_KEY_QUERY` out.
    """
    names = sorted(
        (name for name in ext if name not in leave_out),
        key=lambda name: name.encode("utf-16-be", "surrogatepass"),
    )
    return "".join([ext[name] for name in names]).encode() + body


def signature(content: bytes, secret_key: str) -> str:
    """Return the signature of what `signed_content` gave."""
    return base64.b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode()


def is_signed_with(content: bytes, secret_key: str, told: str) -> bool:
    """Whether the signature that came is right; takes as long for a wrong one."""
    return hmac.compare_digest(signature(content, secret_key).encode(), told.encode())
