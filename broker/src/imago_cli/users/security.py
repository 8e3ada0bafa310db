"""`imago security`: what a closed cluster begins with."""

from __future__ import annotations

import ipaddress
import os
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path  # noqa: TC003  a type of what the command takes
from typing import TYPE_CHECKING, Annotated, Final

from imago_cli import toml_text
from imago_cli.clusters.admin_http import DEFAULT_ADMIN
from imago_cli.exits import CommandUsageError
from imago_cli.line.declared import Argument, CommandGroup, Option
from imago_cli.output import say

if TYPE_CHECKING:
    from cryptography import x509

AUTHORITY: Final = "Imago CA"
VALID: Final = timedelta(days=825)
EARLIER: Final = timedelta(minutes=5)
"""Clocks of machines differ."""


def attach(root: CommandGroup) -> None:
    """Add the group of commands."""
    security = CommandGroup("Make certificates and an administrator.")
    security.add("init", init)
    root.add("security", security)


def init(
    folder: Annotated[Path, Argument(help="A new folder for the files.")],
    hosts: Annotated[
        list[str] | None,
        Option("--host", help="Name or address that clients reach brokers at; repeatable."),
    ] = None,
) -> None:
    """Make an authority, a certificate for brokers, an administrator's token, and settings.

    The folder and its keys are for you alone (0700, 0600).
    """
    names = dict.fromkeys([*(hosts or []), "localhost", "127.0.0.1"])
    named = [_alternative(name) for name in names]
    old = os.umask(0o077)
    try:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            raise CommandUsageError(f"{folder} is there already", cure="name a new one") from None
        _write_certificates(folder, named)
        token = folder / "admin-token"
        token.write_text(f"{secrets.token_urlsafe(32)}\n", encoding="ascii")
        settings = folder / "security.toml"
        settings.write_text(toml_text.dump(_settings(folder.absolute())), encoding="utf-8")
    finally:
        os.umask(old)
    say(f"made {folder}: add security.toml to each broker's configuration, or run")
    say(f"  imago up --config {settings}")
    say("then, in another terminal:")
    say(f"  export IMAGO_ADMIN_TOKEN_FILE={token} IMAGO_TLS_CA={folder / 'ca.pem'}")
    say(f"  export IMAGO_ADMIN={DEFAULT_ADMIN.replace('http:', 'https:')}")
    say("  imago user create root --super; imago --user root --password-file root.password …")
    say("  imago user create NAME; imago user allow NAME topic:… publish")
    say(f"Clients get {folder / 'ca.pem'}, their name and password. Keep ca.key elsewhere.")


def _settings(folder: Path) -> dict[str, dict[str, object]]:
    return {
        "tls": {
            "certificate_file": str(folder / "server.pem"),
            "key_file": str(folder / "server.key"),
            "ca_file": str(folder / "ca.pem"),
            "mode": "enforcing",
        },
        "acl": {"enabled": True},
        "security": {"allow_open": False},
        "admin": {"token_file": str(folder / "admin-token")},
    }


def _write_certificates(folder: Path, names: list[x509.GeneralName]) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    def begun(name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_common_name(name))
            .issuer_name(_common_name(AUTHORITY))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - EARLIER)
            .not_valid_after(now + VALID)
        )

    signer, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    named = x509.SubjectAlternativeName(names)
    of_authority = x509.BasicConstraints(ca=True, path_length=0)
    authority = begun(AUTHORITY, signer).add_extension(of_authority, critical=True)
    broker = begun("broker", key).add_extension(named, critical=False)
    for name, mine, made in (("ca", signer, authority), ("server", key, broker)):
        private = mine.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / f"{name}.key").write_bytes(private)
        signed = made.sign(signer, hashes.SHA256())
        (folder / f"{name}.pem").write_bytes(signed.public_bytes(Encoding.PEM))


def _common_name(name: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    from cryptography import x509

    if not host.isascii() or not host.isprintable() or set(host) & set(" ,="):
        raise CommandUsageError(f"--host {host!a}: is no name and no address")
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
