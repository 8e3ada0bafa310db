"""What a client trusts and shows when it connects with TLS."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from imago_client.errors import UsageError

if TYPE_CHECKING:
    import ssl


class TrustSettings(Protocol):
    """What a client's configuration says of TLS."""

    @property
    def tls_ca_file(self) -> str | None: ...

    @property
    def tls_certificate_file(self) -> str | None: ...

    @property
    def tls_key_file(self) -> str | None: ...


def check_tls(config: TrustSettings) -> None:
    """UsageError: there is a certificate to show, and nothing says whom to trust."""
    if config.tls_ca_file is None and (config.tls_certificate_file or config.tls_key_file):
        raise UsageError("tls_certificate_file: means nothing without tls_ca_file")


def client_context(config: TrustSettings) -> ssl.SSLContext | None:
    """Return how connections are secured; None: they are not. UsageError: a file is no good."""
    if config.tls_ca_file is None:
        return None
    import ssl  # connections without TLS do without

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the server's own certificate will do
    try:
        context.load_verify_locations(config.tls_ca_file)
    except OSError as error:
        raise UsageError(f"tls_ca_file: {config.tls_ca_file}: {_cause(error)}") from error
    if config.tls_certificate_file is not None:
        try:
            context.load_cert_chain(config.tls_certificate_file, config.tls_key_file)
        except OSError as error:
            named = f"tls_certificate_file: {config.tls_certificate_file}"
            raise UsageError(f"{named}: {_cause(error)}") from error
    return context


class Trust:
    """Secures the connections of a client; its files are read again for each, for they change."""

    def __init__(self, config: TrustSettings) -> None:
        self._config = config
        self._context = client_context(config)

    def context(self) -> ssl.SSLContext | None:
        """Return how the next connection is secured; None: it is not."""
        with suppress(UsageError):  # they are being replaced: the former ones hold meanwhile
            self._context = client_context(self._config)
        return self._context


def _cause(error: OSError) -> str:
    import ssl

    if isinstance(error, ssl.SSLError):
        return f"{error.reason or error}"
    return error.strerror or str(error)
