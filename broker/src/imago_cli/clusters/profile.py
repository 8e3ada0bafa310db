"""`imago profile`: under which names clusters are known here, and which one is meant."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from imago_cli.connect import AsJson
from imago_cli.exits import CommandUsageError
from imago_cli.line.declared import Argument, CommandGroup, Option
from imago_cli.output import print_json, print_table, say
from imago_cli.profiles import PATHS, TEXTS, add_to, choose, chosen, named, profiles_of

if TYPE_CHECKING:
    from collections.abc import Mapping

Name = Annotated[str, Argument(help="The profile's name.")]


def attach(root: CommandGroup) -> None:
    """Add the group of commands."""
    group = CommandGroup("Name clusters, and choose one of them.")
    group.add("list", list_profiles)
    group.add("show", show)
    group.add("add", add)
    group.add("use", use)
    root.add("profile", group)


def list_profiles(as_json: AsJson = False) -> None:
    """List the profiles; the one with a star is meant where none is named."""
    current = chosen(os.environ)
    rows = [
        ("*" if name == current else "", name, _where(profile))
        for name, profile in sorted(profiles_of(os.environ).items())
    ]
    if as_json:
        print_json([{"name": row[1], "chosen": bool(row[0]), "cluster": row[2]} for row in rows])
    else:
        print_table("", ("", "profile", "cluster"), rows)


def show(name: Name, as_json: AsJson = False) -> None:
    """Show what a profile stands for. It holds no secret: passwords are in files that it names."""
    profile = named(name, os.environ)
    if as_json:
        print_json({"name": name, **profile})
    else:
        variables = {**TEXTS, **PATHS}
        rows = [(key, value, variables.get(key, "")) for key, value in profile.items()]
        print_table(name, ("key", "value", "stands for"), rows)


def add(
    name: Name,
    bootstrap: Annotated[str | None, Option(help="Name-service addresses.")] = None,
    metaq: Annotated[str | None, Option(help="Addresses of MetaQ brokers.")] = None,
    admin: Annotated[str | None, Option(help="A broker's admin interface.")] = None,
    user: Annotated[str | None, Option("--as", help="The user's name.")] = None,
    password_file: Annotated[str | None, Option(help="File with the password.")] = None,
    admin_token_file: Annotated[str | None, Option(help="File with the token.")] = None,
    tls_ca_file: Annotated[str | None, Option(help="PEM file of authorities.")] = None,
    tls_certificate_file: Annotated[str | None, Option(help="One's certificate.")] = None,
    tls_key_file: Annotated[str | None, Option(help="Its key.")] = None,
) -> None:
    """Write a new profile into the file; what the file says already stays as it is."""
    given = {
        "bootstrap": bootstrap,
        "metaq": metaq,
        "admin": admin,
        "user": user,
        "password_file": password_file,
        "admin_token_file": admin_token_file,
        "tls_ca_file": tls_ca_file,
        "tls_certificate_file": tls_certificate_file,
        "tls_key_file": tls_key_file,
    }
    profile = {key: value for key, value in given.items() if value is not None}
    if not profile:
        raise CommandUsageError("nothing is named for the profile", cure="add --bootstrap …")
    file = add_to(name, profile, os.environ)
    say(f"profile {name}: added to {file}; imago profile use {name} chooses it")


def use(name: Name) -> None:
    """Have commands mean this cluster where neither --profile nor the environment says another."""
    named(name, os.environ)
    choose(name, os.environ)
    say(f"profile {name}: is meant from now on")


def _where(profile: Mapping[str, str]) -> str:
    return profile.get("bootstrap") or profile.get("admin") or profile.get("metaq") or ""
