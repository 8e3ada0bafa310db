"""`imago security`: what a closed cluster begins with."""

from __future__ import annotations

import ipaddress
import os
import secrets
import subprocess
from pathlib import Path  # noqa: TC003  typer reads the annotation
from typing import Annotated

import typer

from imago_cli import toml_text
from imago_cli.clusters.admin_http import DEFAULT_ADMIN
from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.output import say

DAYS = 825
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def attach(root: typer.Typer) -> None:
    """Add the group of commands."""
    security = typer.Typer(no_args_is_help=True, help="Make certificates and an administrator.")
    security.command("init")(init)
    # A group of its own, also while it has one command.
    security.callback()(lambda: None)
    root.add_typer(security, name="security")


def init(
    folder: Annotated[Path, typer.Argument(help="A new folder for the files.")],
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", help="Name or address that clients reach brokers at; repeatable."),
    ] = None,
) -> None:
    """Make an authority, a certificate for brokers, an administrator's token, and settings.

    Needs the command `openssl`. The folder and its keys are for you alone (0700, 0600).
    """
    names = [*dict.fromkeys([*(hosts or []), "localhost", "127.0.0.1"])]
    wanted = ",".join(map(_alternative, names))
    old = os.umask(0o077)
    try:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            raise CommandUsageError(f"{folder} is there already", cure="name a new one") from None
        _make_certificates(folder, wanted)
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


def _make_certificates(folder: Path, names: str) -> None:
    of_ca = ("-keyout", "ca.key", "-out", "ca.pem", "-days", str(DAYS), "-subj", "/CN=Imago CA")
    _openssl(folder, "req", "-x509", *_KEY, *of_ca)
    _openssl(
        folder, "req", *_KEY, "-keyout", "server.key", "-out", "request", "-subj", "/CN=broker"
    )
    (folder / "extensions").write_text(f"subjectAltName={names}\n", encoding="ascii")
    signed_by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", str(DAYS))
    request = ("-req", "-in", "request", "-extfile", "extensions", "-out", "server.pem")
    _openssl(folder, "x509", *request, *signed_by)
    for name in ("request", "extensions", "ca.srl"):
        (folder / name).unlink(missing_ok=True)


def _openssl(folder: Path, *words: str) -> None:
    try:
        done = subprocess.run(  # noqa: S603  words of ours
            ["openssl", *words],  # noqa: S607  wherever the system has it
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise CommandError("the command openssl is not here", cure="install openssl") from None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["it says nothing"]
        raise CommandError(f"openssl {words[0]}: {last[0]}")


def _alternative(name: str) -> str:
    if not name.isascii() or not name.isprintable() or set(name) & set(" ,\n\r="):
        raise CommandUsageError(f"--host {name!a}: is no name and no address")
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"
