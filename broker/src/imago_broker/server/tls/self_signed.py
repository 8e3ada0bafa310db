"""What a port shows that has to serve TLS though nobody has given it a certificate.

It keeps nobody out and proves nothing: it is for clients that speak TLS by default and take any
certificate. Made when the first of them comes, and never kept.
"""

from __future__ import annotations

import secrets
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from imago_broker.core.self_signed import ORDER, Secrets, self_signed
from imago_broker.server.tls.tls_certificates import ALPN, ListenerContext

NAME = "imago"


@dataclass(frozen=True, slots=True)
class OwnContexts:
    """In place of those that files give: connections to others need a certificate of theirs."""

    server: ListenerContext
    admin: ListenerContext


class SelfSigned:
    """A certificate of this process alone."""

    @cached_property
    def contexts(self) -> OwnContexts:
        """What handshakes use."""
        numbers = Secrets(
            key=secrets.randbelow(ORDER - 1) + 1,
            once=secrets.randbelow(ORDER - 1) + 1,
            serial=secrets.randbits(64),
        )
        certificate, key = self_signed(NAME, datetime.now(UTC), numbers)
        context = ListenerContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(ALPN)
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # readable by its owner alone
            file.write(key + certificate)
            file.flush()
            context.load_cert_chain(Path(file.name))
        return OwnContexts(context, context)
