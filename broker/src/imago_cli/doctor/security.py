"""What `imago doctor` says about certificates, files with secrets, and secrets that all know."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imago_broker.server.tls.tls_certificates import CertificateError, TlsFiles, load
from imago_broker.shard_work.signing import TOKEN_SIZE_MIN
from imago_cli.doctor.checks import CheckFinding, CheckLevel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_broker.config import BrokerConfig
    from imago_broker.config.sections.cluster_sections import ZookeeperSection

SOON_SECONDS: Final = 30 * 86_400
"""A certificate that ends earlier is reported."""
KNOWN_SECRETS: Final = frozenset(
    {
        *("admin", "administrator", "changeit", "changeme", "default", "guest", "imago", "letmein"),
        *("metaq", "password", "qwerty", "rocketmq", "rocketmq2", "root", "secret", "sesame"),
        *("test", "token", "zookeeper", "super", "12345", "123456", "12345678", "123456789"),
    }
)
"""What installations begin with, and guesses too."""
_DAY: Final = 86_400
_HERE: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


def check_security(config: BrokerConfig, now_s: float) -> Iterator[CheckFinding]:
    """Check everything that the configuration trusts or keeps secret."""
    tls, zookeeper = config.tls, config.zookeeper
    yield from _certificate("tls", tls.certificate_file, tls.key_file, now_s)
    yield from _certificate(
        "zookeeper.tls", zookeeper.tls_certificate_file, zookeeper.tls_key_file, now_s
    )
    for key, path in (
        ("tls.ca_file", tls.ca_file),
        ("tls.client_ca_file", tls.client_ca_file),
        ("zookeeper.tls_ca_file", zookeeper.tls_ca_file),
    ):
        yield from _authorities(key, path, now_s)
    for key, path in (
        ("tls.key_file", tls.key_file),
        ("zookeeper.tls_key_file", zookeeper.tls_key_file),
        ("zookeeper.password_file", zookeeper.password_file),
        ("admin.token_file", config.admin.token_file),
    ):
        yield from _permissions(key, path)
    yield from _known(
        "admin.token_file",
        config.admin.token_file,
        size_min=TOKEN_SIZE_MIN,
        cure="write another into it: openssl rand -hex 32",
    )
    yield from _known(
        "zookeeper.password_file",
        zookeeper.password_file,
        size_min=1,
        cure="give ZooKeeper's user another (docs/security.md)",
    )
    yield from _registry(zookeeper)


def _registry(zookeeper: ZookeeperSection) -> Iterator[CheckFinding]:
    """Say that others may change the brokers' nodes in a ZooKeeper of other machines."""
    servers = zookeeper.connect.partition("/")[0].split(",")
    away = [server for server in servers if server.rpartition(":")[0] not in _HERE]
    if zookeeper.connect == "none" or not away or (zookeeper.user and zookeeper.protect):
        return
    what = "zookeeper.protect is false" if zookeeper.user else "zookeeper.user is not set"
    yield CheckFinding(
        "access",
        CheckLevel.WARNING,
        f"{what}: anyone who reaches {', '.join(away)} may change the brokers' nodes",
        "give all brokers a user there, step by step (docs/security.md)",
    )


def _certificate(prefix: str, path: str, key_path: str, now_s: float) -> Iterator[CheckFinding]:
    if not path or not key_path:
        return
    name = f"{prefix}_certificate_file" if "." in prefix else f"{prefix}.certificate_file"
    try:
        expires_s = load(TlsFiles(certificate=path, key=key_path)).expires_s
    except CertificateError as error:
        yield CheckFinding(
            "certificates", CheckLevel.ERROR, f"{name}: {error}", "make both files anew"
        )
    else:
        yield _expiry(f"{name}: {path}", expires_s, now_s)


def _authorities(key: str, path: str, now_s: float) -> Iterator[CheckFinding]:
    if not path:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=path)
    except (OSError, ssl.SSLError) as error:
        text = f"{key}: {path} cannot be used: {error}"
        yield CheckFinding("certificates", CheckLevel.ERROR, text, "put the authority's there")
        return
    ends = [
        float(ssl.cert_time_to_seconds(str(found["notAfter"])))
        for found in context.get_ca_certs()
        if "notAfter" in found
    ]
    if ends:
        yield _expiry(f"{key}: {path}", min(ends), now_s)


def _expiry(what: str, expires_s: float, now_s: float) -> CheckFinding:
    left_s = expires_s - now_s
    if left_s <= 0:
        text, level = "is not valid now", CheckLevel.ERROR
    elif left_s < SOON_SECONDS:
        text, level = f"ends in {left_s / _DAY:.1f} days", CheckLevel.WARNING
    else:
        return CheckFinding(
            "certificates", CheckLevel.OK, f"{what} is valid for {left_s / _DAY:.0f} days"
        )
    cure = "have a new one issued and put it there: brokers take it over without a restart"
    return CheckFinding("certificates", level, f"{what} {text}", cure)


def _permissions(key: str, path: str) -> Iterator[CheckFinding]:
    if not path:
        return
    try:
        mode = stat.S_IMODE(Path(path).stat().st_mode)
    except OSError as error:
        text = f"{key}: {path} cannot be read: {error.strerror}"
        yield CheckFinding("secrets", CheckLevel.ERROR, text, "name a file that is there")
        return
    others = mode & (stat.S_IRWXG | stat.S_IRWXO)
    # A group that may read is how Kubernetes gives a Secret to a process that is not root.
    allowed = stat.S_IRGRP if Path(path).is_symlink() else 0
    if others & ~allowed:
        yield CheckFinding(
            "secrets",
            CheckLevel.WARNING,
            f"{key}: {path} may be read or changed by others ({mode:04o})",
            f"chmod 600 {path}",
        )
    else:
        yield CheckFinding("secrets", CheckLevel.OK, f"{key}: {path} is closed to others")


def _known(key: str, path: str, *, size_min: int, cure: str) -> Iterator[CheckFinding]:
    if not path:
        return
    try:
        secret = Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return  # said already
    except ValueError:
        text = f"{key}: {path} is no text"
        yield CheckFinding("secrets", CheckLevel.ERROR, text, cure)
        return
    if not secret:
        yield CheckFinding("secrets", CheckLevel.ERROR, f"{key}: {path} is empty", cure)
    elif secret.lower() in KNOWN_SECRETS:
        text = f"{key}: {path} holds a password that everybody tries first"
        yield CheckFinding("secrets", CheckLevel.ERROR, text, cure)
    elif len(secret) < size_min:
        text = f"{key}: {path} holds {len(secret)} characters, which can be guessed"
        yield CheckFinding("secrets", CheckLevel.WARNING, text, cure)
