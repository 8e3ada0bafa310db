"""What a port shows that has to serve TLS though nobody has given it a certificate.

It keeps nobody out and proves nothing: it is for clients that speak TLS by default and take any
certificate. Made when the first of them comes, and never kept.
"""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Final

from imago_broker.server.tls.tls_certificates import ALPN, ListenerContext

NAME: Final = "imago"
_DAY: Final = timedelta(days=1)
_VALID: Final = timedelta(days=3650)


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
        context = ListenerContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(ALPN)
        with tempfile.NamedTemporaryFile("wb", suffix=".pem") as file:
            # Readable by its owner alone.
            file.write(self_signed(NAME, datetime.now(UTC)))
            file.flush()
            context.load_cert_chain(Path(file.name))
        return OwnContexts(context, context)


def self_signed(name: str, now: datetime) -> bytes:
    """Return a new key and its certificate, as PEM, valid from a day ago for ten years."""
    # Most brokers are never asked for it: 80 ms of CPU and 16 MB.
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _VALID)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, open_ = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(pem, form, open_) + made.public_bytes(pem)
