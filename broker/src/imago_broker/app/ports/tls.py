"""The certificate that the configuration names."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from imago_broker.errors import ExitCode, FatalError
from imago_broker.replication.links.member_tls import MemberTls
from imago_broker.server.tls.handshake_queue import HandshakeQueue
from imago_broker.server.tls.tls_certificates import CertificateError, Certificates, TlsFiles

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_broker.config.sections.security_sections import TlsSection
    from imago_broker.server.listener import Listener


def load_certificates(tls: TlsSection, *, member: str = "") -> Certificates | None:
    """Return what the files have; None: none are named. FatalError: they cannot be used.

    `member`: what they have to name where members connect with them.
    """
    if not tls.certificate_file:
        return None
    files = TlsFiles(
        certificate=tls.certificate_file,
        key=tls.key_file,
        ca=tls.ca_file,
        client_auth=tls.client_auth,
        client_ca=tls.client_ca_file,
        admin_auth=tls.asked_of_admin,
        member=member if tls.replication != "disabled" else "",
    )
    try:
        return Certificates(files)
    except CertificateError as error:
        raise FatalError(
            f"{error}; set tls.certificate_file and tls.key_file to a certificate and its key",
            exit_code=ExitCode.USAGE,
        ) from error


def member_tls(certificates: Certificates, tls: TlsSection, *, uri: str) -> MemberTls | None:
    """Return what members connect with, as `tls.replication` says."""
    if tls.replication == "disabled":
        return None
    return MemberTls(
        uri=uri,
        accepting=lambda: certificates.contexts.members,
        calling=lambda: certificates.contexts.client,
        plain_too=tls.replication == "permissive",
    )


def handshake_queue(tls: TlsSection) -> HandshakeQueue:
    """Return the queue of all listeners of the process."""
    return HandshakeQueue(tls.handshakes_per_second_max, time.monotonic)


def secure(
    listeners: Iterable[Listener],
    certificates: Certificates | None,
    queue: HandshakeQueue,
    tls: TlsSection,
) -> None:
    """Have RocketMQ's listeners serve TLS as `tls.mode` says."""
    if certificates is not None and tls.mode != "disabled":
        for listener in listeners:
            listener.secure(certificates, queue, plain_too=tls.mode == "permissive")
