"""What a connection that was not had, or that has ended, says of its cause and its cure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.errors import ConnectionLostError, why
from imago_wire.errors import ProtocolError

if TYPE_CHECKING:
    from imago_client.tls import TrustSettings

_REFUSED = "the server closed the connection at the TLS handshake"
_NAME_DIFFERS = (62, 64)
"""OpenSSL's numbers: the certificate is of another host name, of another address."""
_EXPIRED, _NOT_YET = 10, 9
_NO_TLS_HERE = (
    "does this port serve TLS? tls_ca_file asks for it: leave it out for a port without TLS"
)
_STOPPED = "was the server stopped?"
_TLS_HERE = f"does this port ask for TLS (tls_ca_file)? Or {_STOPPED}"


def not_had(
    address: str,
    error: Exception,
    settings: TrustSettings,
    *,
    timeout_s: float,
    is_there: bool = False,
) -> ConnectionLostError:
    """Return the error of a connection that could not be opened; `is_there`: or only without TLS.

    asyncio does not tell whether a time-out, or an end, came before TLS.
    """
    waited = isinstance(error, TimeoutError) and not error.errno
    if settings.tls_ca_file is None:
        reason = f"no connection within {timeout_s:g} s" if waited else why(error)
        return ConnectionLostError(address, reason)
    if waited and is_there:
        reason = f"no answer to the TLS handshake within {timeout_s:g} s"
        return ConnectionLostError(address, reason, cure=_NO_TLS_HERE)
    if waited:
        reason = f"no connection with TLS within {timeout_s:g} s"
        cure = f"is the server reachable from here, and {_NO_TLS_HERE}"
        return ConnectionLostError(address, reason, cure=cure)
    if _is_of_tls(error):
        return ConnectionLostError(address, _failed(error), cure=_cure(error, settings))
    if isinstance(error, (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)):
        return ConnectionLostError(address, _REFUSED, cure=_NO_TLS_HERE)
    return ConnectionLostError(address, why(error))


def ended(address: str, error: Exception | None, settings: TrustSettings) -> ConnectionLostError:
    """Return the error of a connection that was there; None: the end was an orderly one."""
    reason = (why(error) if error is not None else "") or "the connection was closed"
    if isinstance(error, ProtocolError):
        return ConnectionLostError(address, reason, wrong_protocol=True)
    if error is not None and _is_of_tls(error):
        return ConnectionLostError(address, _failed(error), cure=_cure(error, settings))
    cure = _STOPPED if settings.tls_ca_file is not None else _TLS_HERE
    return ConnectionLostError(address, reason, cure=cure)


def _is_of_tls(error: Exception) -> bool:
    return type(error).__module__ == "ssl"


def _failed(error: Exception) -> str:
    if getattr(error, "verify_message", ""):
        return why(error)
    if type(error).__name__ in ("SSLEOFError", "SSLZeroReturnError"):
        return _REFUSED
    return f"TLS failed: {why(error)}"


def _cure(error: Exception, settings: TrustSettings) -> str:
    """Return what to do about an error of TLS."""
    code = getattr(error, "verify_code", 0)
    if code in _NAME_DIFFERS:
        return "call the server by a name that its certificate has"
    if code in (_EXPIRED, _NOT_YET):
        return "give the server a new one, and compare the clocks"
    if code:
        return (
            f"tls_ca_file ({settings.tls_ca_file}) must hold the certificate of the authority that"
            " issued the server's"
        )
    if "ALERT" in why(error):  # of a server with TLS, which refuses this client
        return (
            "the server refuses this client: show it a certificate that it trusts"
            " (tls_certificate_file, tls_key_file), or see its log"
        )
    return _NO_TLS_HERE
