"""Asking a broker's admin interface, for commands."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.line.declared import Option

DEFAULT_ADMIN = "http://127.0.0.1:8080"
TOKEN_VARIABLE = "IMAGO_ADMIN_TOKEN_FILE"  # noqa: S105  the name of a variable
SECONDS_MAX = 40.0
"""A handover may have to wait for a member to catch up."""
READ_SECONDS_MAX = 10.0
"""Who looks does not wait so long for a broker that hangs; a broker asks others for less."""
NO_REGISTRY = (
    "this broker does not reach ZooKeeper: what it shows may be old, and masters refuse messages"
    " until they reach it again"
)
_NO_ADMIN = "name a broker's admin interface, port 8080, and no proxy's page: --admin (IMAGO_ADMIN)"
_ANSWER_BYTES_MAX = 64 << 20

Admin = Annotated[
    str,
    Option(
        "--admin", envvar="IMAGO_ADMIN", help="Admin interface of any broker, http://HOST:PORT."
    ),
]


class CallRefusedError(CommandError):
    """A broker refuses; its reason in one word, and the answer's status, beside its own words."""

    def __init__(self, reason: str, message: str, *, cure: str, status: int) -> None:
        super().__init__(message, cure=cure)
        self.reason, self.status = reason, status


def ask(
    admin: str,
    path: str,
    body: object = None,
    *,
    seconds_max: float | None = None,
    found: bool = False,
    method: str | None = None,
) -> dict[str, Any]:
    """Call one path, with POST when there is a body; CommandError in the broker's own words.

    `seconds_max`: as long as a look or a change may take unless given.

    `method`: another one than that.

    `found`: the address is not the user's but stood in a broker's answer, out of the registry. It
    is sent a signature of the call, and not the token.
    """
    address = admin.rstrip("/")
    if not _is_http(address):
        raise CommandUsageError(f"--admin {admin}: must look like http://HOST:PORT")
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(  # noqa: S310  http, see above
        address + path, data=data, headers={"Content-Type": "application/json"}, method=method
    )
    if seconds_max is None:
        seconds_max = READ_SECONDS_MAX if request.get_method() == "GET" else SECONDS_MAX
    if token := _token():
        said = f"Bearer {token}" if not found else _signed(token, request, path)
        request.add_header("Authorization", said)
    try:
        with urllib.request.urlopen(  # noqa: S310  http, see above
            request, timeout=seconds_max, context=_context(address)
        ) as answer:
            return _object(answer.read(_ANSWER_BYTES_MAX), address)
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(error, address) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        words = getattr(reason, "strerror", None) or reason
        raise CommandError(
            f"no admin interface answers at {address}: {words}",
            cure=_cure(admin, reason, found=found),
        ) from error


def _cure(admin: str, reason: object, *, found: bool) -> str:
    """Return what helps where nobody answers, by what failed and where the address is from."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        if "expired" in reason.verify_message:
            return (
                "have a new certificate issued: brokers take it without a restart; until then"
                " http:// answers on the broker's own machine"
            )
        return "IMAGO_TLS_CA names whom to trust; the certificate has to name the host of --admin"
    if isinstance(reason, ssl.SSLError) and not found:
        return "a broker without a certificate (tls.certificate_file) answers http:// only"
    if found:
        return "that broker is down or cut off: see `imago cluster status`, and repeat the command"
    if isinstance(reason, TimeoutError):
        return "that broker hangs or is cut off: give another broker's --admin (IMAGO_ADMIN)"
    if admin == DEFAULT_ADMIN:
        return (
            "`imago up` starts a cluster on this machine and prints the addresses, once it serves;"
            " --admin (IMAGO_ADMIN) names another one"
        )
    return "see whether that broker runs, or give another broker's --admin"


def cluster_to_change(admin: str) -> dict[str, Any]:
    """Return the cluster as a broker shows it; CommandError: it cannot know what there is now."""
    cluster = ask(admin, "/admin/v1/cluster")
    if not cluster["zooKeeperConnected"]:
        raise CommandError(
            NO_REGISTRY,
            cure="start ZooKeeper, or see what keeps the broker from it; or give the --admin of one"
            " that reaches it",
        )
    return cluster


def cluster_at(host: str, port: int) -> dict[str, Any] | None:
    """Return the cluster as a broker of this machine shows it; None when it does not answer."""
    try:
        return ask(f"http://{host}:{port}", "/admin/v1/cluster", seconds_max=2.0)
    except CommandError:
        return None


def _context(address: str) -> ssl.SSLContext | None:
    """Return what `https` is asked with: the files that clients of topics have, too."""
    if not address.startswith("https:"):
        return None
    path = os.environ.get("IMAGO_TLS_CA") or None
    try:
        context = ssl.create_default_context(cafile=path)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as for topics
        if certificate := os.environ.get("IMAGO_TLS_CERTIFICATE"):
            path = certificate
            context.load_cert_chain(certificate, os.environ.get("IMAGO_TLS_KEY") or None)
    except OSError as error:  # SSLError is one
        raise CommandUsageError(f"{path}: {error.strerror or error}") from error
    return context


def _is_http(address: str) -> bool:
    try:
        parts = urlsplit(address)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_whole and address.isascii() and address.isprintable() and " " not in address


def _signed(token: str, request: urllib.request.Request, path: str) -> str:
    from imago_broker.shard_work.signing import SCHEME, signature

    now_ms, target = time.time_ns() // 1_000_000, request.host
    body = request.data if isinstance(request.data, bytes) else b""
    said = signature(token, now_ms, request.get_method(), target, path, body)
    return f"{SCHEME} {now_ms} {said}"


def _token() -> str:
    """Return the admin token; empty where none is named."""
    path = os.environ.get(TOKEN_VARIABLE)
    if not path:
        return ""
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except OSError as error:
        raise CommandUsageError(f"{TOKEN_VARIABLE}={path}: {error.strerror}") from error
    except UnicodeDecodeError:
        token = ""
    if not token.isprintable() or not token:
        raise CommandUsageError(
            f"{TOKEN_VARIABLE}={path}: holds no token, which is a line of ASCII"
        )
    return token


def _refusal(error: urllib.error.HTTPError, address: str) -> CommandError:
    try:
        said = _object(error.read(_ANSWER_BYTES_MAX), address)
        reason, message, cure = (str(said[key]) for key in ("error", "message", "cure"))
        return CallRefusedError(reason, message, cure=cure, status=error.code)
    except (CommandError, KeyError, OSError):
        return CommandError(f"{address} answers {error.code} {error.reason}", cure=_NO_ADMIN)


def _object(data: bytes, address: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise CommandError(
            f"{address} is no admin interface: it answers no JSON", cure=_NO_ADMIN
        ) from error
    if not isinstance(value, dict):
        raise CommandError(
            f"{address} is no admin interface: it answers no JSON object", cure=_NO_ADMIN
        )
    return value
