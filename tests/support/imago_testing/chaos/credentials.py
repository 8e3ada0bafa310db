"""What clients show to a cluster that is closed: a certificate, the key that they sign with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from imago_wire.remoting.signing import signed

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

_GOODBYE_SECONDS_MAX = 1.0
"""A broker that stands still does not end TLS; nobody waits for it."""


@dataclass(slots=True)
class Credentials:
    """Of one user; the secret may change while connections are open."""

    user: str = ""
    secret: str = ""
    tls: ssl.SSLContext | None = None

    def transport(self) -> dict[str, Any]:
        """Return how a connection is opened."""
        if self.tls is None:
            return {}
        return {"ssl": self.tls, "ssl_shutdown_timeout": _GOODBYE_SECONDS_MAX}

    def signed(self, ext: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """Return the fields of a request, signed where the user signs."""
        if not self.secret:
            return ext
        return signed(ext, body, access_key=self.user, secret=self.secret)


OPEN: Final = Credentials()
"""Those of a client that shows nothing."""


class Address(NamedTuple):
    """Where to connect to, and with what."""

    host: str
    port: int
    credentials: Credentials = OPEN
