"""The certificate of the listeners: loaded, tried out, and taken again when its files change.

What is new is tried in a handshake with itself before it is used. Certificates that are expired,
half written, or of another key than the file beside them are refused: what was loaded before stays
in force, for connections to come too, and a log line and a metric say why. Connections that are
open keep the certificate of their handshake.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

ALPN: Final = ["h2"]
"""What clients of gRPC ask for, and fail without; others ask for nothing."""
CHECK_SECONDS: Final = 1.0
"""How often the files are checked."""
RETRY_SECONDS: Final = 10.0
"""How often files that were refused are tried again: a certificate may begin to be valid."""
_HANDSHAKE_STEPS_MAX: Final = 8
_VERIFY: Final[Mapping[str, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class CertificateError(Exception):
    """Files that no listener can use; the text names file and cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Where the certificate is, and how clients' are checked."""

    certificate: str
    """PEM: the certificate, then those that lead to its authority."""
    key: str
    ca: str = ""
    """PEM: authorities of clients and of other brokers; empty: those in `certificate`."""
    client_auth: str = "none"
    client_ca: str = ""
    """PEM: those that alone sign for clients; empty: those in `ca` do."""
    admin_auth: str = "none"
    """As `client_auth`, of the admin port."""
    member: str = ""
    """What the certificate has to name, as that of a member of a shard; empty: nothing."""

    def state(self) -> tuple[object, ...]:
        """Return what changes when a file is written or replaced."""
        found: list[object] = []
        for path in (self.certificate, self.key, self.ca, self.client_ca):
            try:
                status = Path(path).stat() if path else None
            except OSError as error:
                found.append(error.errno)
            else:
                found.append(status and (status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)


Issuers = frozenset[object]
"""Names of authorities, as certificates say who has signed them."""


class ListenerContext(ssl.SSLContext):
    """What a listener shows, and whose certificates say who its clients are."""

    client_issuers: Issuers | None = None
    """Authorities that sign for clients; of others certificates name nobody. None: all do."""


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """What one state of the files gives."""

    server: ListenerContext
    admin: ListenerContext
    """For the admin port."""
    client: ssl.SSLContext
    """For connections to other brokers."""
    members: ssl.SSLContext
    """For connections that other members make: each shows a certificate."""
    expires_s: float
    """When the certificate ends, in seconds since 1970; 0: it has ended, or not begun."""


def load(files: TlsFiles) -> TlsContexts:
    """Return contexts of what the files have now; CertificateError: they cannot be used.

    A certificate that is not valid at this time can be used: `expires_s` is 0 then.
    """
    server, admin = (
        _with_certificate(ListenerContext(ssl.PROTOCOL_TLS_SERVER), files) for _ in range(2)
    )
    server.set_alpn_protocols(ALPN)
    client = _with_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), files)
    # Members are addressed by what ZooKeeper says, which certificates need not name.
    client.check_hostname = False
    client.verify_mode = ssl.CERT_REQUIRED
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _trust(client, files.ca or files.certificate)
    members = _with_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files)
    members.options |= ssl.OP_NO_RENEGOTIATION
    members.verify_mode = ssl.CERT_REQUIRED
    members.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _trust(members, files.ca or files.certificate)
    expires_s = _expires_s(server, files)
    if files.member and expires_s:
        _check_member(members, client, files)
    _check_clients(server, files.client_auth, files)
    _check_clients(admin, files.admin_auth, files)
    return TlsContexts(server, admin, client, members, expires_s)


def _check_clients(context: ListenerContext, asked: str, files: TlsFiles) -> None:
    """Have a listener ask for certificates, and know whose say who somebody is.

    Other brokers pass clients on with their own: they are let in, and that makes them no user.
    """
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_mode = _VERIFY[asked]
    if asked == "none":
        return
    _trust(context, files.ca or files.certificate)
    if files.client_ca:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _trust(context, files.client_ca)
        context.client_issuers = _subjects(files.client_ca)


def _subjects(path: str) -> Issuers:
    """Return the names of the authorities in a file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _trust(context, path)
    found = frozenset(one["subject"] for one in context.get_ca_certs())
    if not found:
        raise CertificateError(f"{path}: no certificate of an authority (CA:TRUE)")
    return found


_ContextT = TypeVar("_ContextT", bound=ssl.SSLContext)


def _with_certificate(context: _ContextT, files: TlsFiles) -> _ContextT:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except ssl.SSLError as error:
        both = f"{files.certificate} and {files.key}"
        if error.reason == "KEY_VALUES_MISMATCH":
            raise CertificateError(f"{both}: the key is not that of the certificate") from error
        raise CertificateError(f"{both}: {error.reason or 'not whole PEM files'}") from error
    except OSError as error:
        raise CertificateError(_unreadable(files, error)) from error
    return context


def _no_password() -> str:
    raise CertificateError("the key needs a password: store it without one, readable by its owner")


def _trust(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        raise CertificateError(f"{path}: {error.strerror or error}") from error


def _unreadable(files: TlsFiles, error: OSError) -> str:
    for path in (files.certificate, files.key):
        if not os.access(path, os.R_OK):
            return f"{path}: {error.strerror}"
    return f"{files.certificate}: {error.strerror}"


def _expires_s(server: ssl.SSLContext, files: TlsFiles) -> float:
    """Return when the certificate ends, after a handshake with somebody who trusts it."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _trust(client, files.certificate)
    try:
        found = _handshake(server, client)
    except ssl.SSLCertVerificationError as error:
        if error.verify_message in ("certificate has expired", "certificate is not yet valid"):
            return 0.0
        raise CertificateError(f"{files.certificate}: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise CertificateError(f"{files.certificate}: {error.reason}") from error
    return float(ssl.cert_time_to_seconds(str(found["notAfter"])))


def _check_member(members: ssl.SSLContext, client: ssl.SSLContext, files: TlsFiles) -> None:
    """CertificateError: other members would not take this certificate for one of theirs."""
    try:
        found = _handshake(members, client)
    except ssl.SSLCertVerificationError as error:
        text = f"{files.certificate}: no certificate of a member: {error.verify_message}"
        raise CertificateError(text) from error
    except ssl.SSLError as error:
        raise CertificateError(f"{files.certificate}: {error.reason}") from error
    if ("URI", files.member) not in found.get("subjectAltName", ()):  # type: ignore[operator]  # pairs
        raise CertificateError(f"{files.certificate}: does not name URI:{files.member}")


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> Mapping[str, object]:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_HANDSHAKE_STEPS_MAX):
        waiting = False
        for side in (asking, answering):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting = True
        if not waiting:
            break
    return asking.getpeercert() or {}


class Certificates:
    """The contexts in force, and why newer files are not."""

    def __init__(self, files: TlsFiles) -> None:
        """CertificateError: the files cannot be used."""
        self._files = files
        self._state = files.state()
        self.contexts = load(files)
        self.problem = "" if self.contexts.expires_s else "the certificate is not valid now"
        """Why the files as they are now are not in force, or are no good; empty: they are."""
        self.loaded = 1
        """How often certificates came into force."""
        self._task: asyncio.Task[None] | None = None
        if self.problem:
            log.warning("tls_certificate_invalid file=%s: clients refuse it", files.certificate)

    def start(self) -> None:
        """Read the files again and again."""
        self._task = asyncio.get_running_loop().create_task(self._watch())

    def stop(self) -> None:
        """Read them no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def refresh(self) -> None:
        """Take what the files have now, if it can be used."""
        self._state = self._files.state()
        try:
            contexts = load(self._files)
        except CertificateError as error:
            self._refuse(str(error))
            return
        if not contexts.expires_s:
            self._refuse(f"{self._files.certificate}: expired, or not valid yet")
            return
        self.contexts = contexts
        self.problem = ""
        self.loaded += 1
        log.info(
            "tls_certificate_loaded file=%s expires_s=%d",
            self._files.certificate,
            contexts.expires_s,
        )

    def _refuse(self, reason: str) -> None:
        if reason != self.problem:
            log.warning("tls_certificate_refused reason=%s; the former one stays in force", reason)
        self.problem = reason

    async def _watch(self) -> None:
        since_s = 0.0
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            since_s += CHECK_SECONDS
            again = bool(self.problem) and since_s >= RETRY_SECONDS
            if again or self._files.state() != self._state:
                since_s = 0.0
                await asyncio.to_thread(self.refresh)
