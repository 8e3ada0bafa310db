"""Connections between members over TLS: both sides show who they are, and both look.

A member's certificate names its cluster and shard as a URI. An authority that vouches for it is not
enough: it vouches for clients and for the members of other shards, too.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NAMED_MAX: Final = 4
"""Names of a certificate that a refusal repeats."""


def member_uri(cluster: str, shard: int) -> str:
    """Return how a certificate names the members of a shard."""
    return f"imago://{quote(cluster, safe='')}/shard-{shard}"


@dataclass(frozen=True, slots=True)
class MemberTls:
    """What the connections of one shard's members are made with."""

    uri: str
    """What the certificate of each member has to name."""
    accepting: Callable[[], ssl.SSLContext]
    """Context for who calls; another one once the files have changed."""
    calling: Callable[[], ssl.SSLContext]
    plain_too: bool
    """Whether members without TLS are served, and called where they do not answer with TLS."""

    def problem(self, certificate: Mapping[str, Any] | None) -> str:
        """Return why the other side, whose authority we trust, is no member; empty: it is one."""
        names = (certificate or {}).get("subjectAltName", ())
        if ("URI", self.uri) in names:
            return ""  # no other kind of name: authorities issue hosts' to who has the host
        shown = ", ".join(f"{kind}:{name!s:.80}" for kind, name in names[:NAMED_MAX]) or "nobody"
        return f"the certificate names {shown}, not {self.uri}"


def reason_of(error: ssl.SSLError) -> str:
    """Return in a few words what the handshake ended with."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the other side's certificate: {error.verify_message}"
    return str(error.reason or error.strerror or type(error).__name__).lower().replace("_", " ")
