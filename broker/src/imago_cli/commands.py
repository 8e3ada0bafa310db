"""The commands, from one table: sub-commands are loaded when they are asked for.

A module of the table defines `attach(root)`, which adds its command or group of commands to the
given `typer.Typer`. Nothing of it is imported before: no command loads Spark, tables or the other
commands.
"""

from __future__ import annotations

import importlib
import os
from typing import Annotated, NamedTuple

import typer

from imago_cli import distribution, exits


class CommandRow(NamedTuple):
    module: str
    help: str


COMMANDS: dict[str, CommandRow] = {
    "up": CommandRow(
        "imago_cli.up.command", "Run a whole cluster of real processes on this machine."
    ),
    "demo": CommandRow(
        "imago_cli.demo.command", "Show both protocols and Spark agreeing on real records."
    ),
    "cluster": CommandRow("imago_cli.cluster", "Show who leads each shard, and why."),
    "shard": CommandRow("imago_cli.shard", "Show shards, hand leadership over, force an election."),
    "topic": CommandRow("imago_cli.topic", "Create, change, list, move and delete topics."),
    "metaq": CommandRow(
        "imago_cli.metaq.command", "MetaQ's own tools: statistics, partitions, ZooKeeper's tree."
    ),
    "group": CommandRow("imago_cli.group", "Show consumer groups, their lag; move, delete them."),
    "user": CommandRow("imago_cli.user", "Show, make, change users, their rights and tokens."),
    "security": CommandRow("imago_cli.security", "Make certificates and an administrator."),
    "produce": CommandRow("imago_cli.produce", "Send messages."),
    "request": CommandRow("imago_cli.request", "Send a message and print the reply to it."),
    "consume": CommandRow("imago_cli.consume", "Read messages."),
    "bench": CommandRow("imago_cli.bench", "Measure a running cluster with Python clients."),
    "broker": CommandRow("imago_cli.broker", "Run one broker process."),
    "namesrv": CommandRow(
        "imago_cli.namesrv", "Run RocketMQ's name service as a process of its own."
    ),
    "operator": CommandRow("imago_cli.operator", "Run clusters on Kubernetes."),
    "log": CommandRow("imago_cli.log", "Check or show a broker's files while it is stopped."),
    "config": CommandRow("imago_cli.config", "Show, explain and convert configurations."),
    "doctor": CommandRow(
        "imago_cli.doctor.command", "Find common mistakes on this machine, with the cure."
    ),
    "java-home": CommandRow("imago_cli.java_home", "Print the JAVA_HOME of a Java for Spark."),
}


def build(name: str | None) -> typer.Typer:
    """Return the command with one sub-command loaded, or with the names of all."""
    root = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        epilog=exits.HELP,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    root.callback()(_root)
    if name in COMMANDS:
        importlib.import_module(COMMANDS[name].module).attach(root)
        return root
    for other, row in COMMANDS.items():
        root.command(other, help=row.help)(_placeholder)
    return root


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"imago {distribution.version()}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(
            envvar="IMAGO_PROFILE",
            help="Addresses, user and files of a cluster, out of ~/.config/imago/profiles.toml.",
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(envvar="IMAGO_USER", help="Whose requests these are, where brokers ask."),
    ] = None,
    password_file: Annotated[
        str | None,
        typer.Option(envvar="IMAGO_PASSWORD_FILE", help="File with the user's password alone."),
    ] = None,
) -> None:
    """Imago: a message broker for MetaQ and RocketMQ clients."""
    del version
    # Commands read them where they connect; a password itself is never on a line that `ps` shows.
    for name, value in (("IMAGO_USER", user), ("IMAGO_PASSWORD_FILE", password_file)):
        if value is not None:
            os.environ[name] = value
    if profile:
        from imago_cli.profiles import apply

        apply(profile, os.environ)


def _placeholder() -> None:
    raise AssertionError("only listed, never called: a named command is loaded instead")
