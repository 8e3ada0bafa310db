"""The commands, from one table: sub-commands are loaded when they are asked for.

A module of the table defines `attach(root)`, which adds its command or group of commands to the
given group. Nothing of it is imported before: no command loads Spark, tables or the other
commands.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Annotated, NamedTuple

from imago_cli import distribution, exits
from imago_cli.line.declared import Command, CommandGroup, Option
from imago_cli.output import print_line

if TYPE_CHECKING:
    from collections.abc import Callable


class CommandRow(NamedTuple):
    module: str
    help: str


COMMANDS: dict[str, CommandRow] = {
    "up": CommandRow(
        "imago_cli.up.command", "Run a whole cluster of real processes on this machine."
    ),
    "down": CommandRow("imago_cli.up.detached", "Stop the cluster that imago up runs on a folder."),
    "demo": CommandRow(
        "imago_cli.demo.command", "Show both protocols and Spark agreeing on real records."
    ),
    "cluster": CommandRow("imago_cli.clusters.cluster", "Show who leads each shard, and why."),
    "shard": CommandRow(
        "imago_cli.clusters.shard", "Show shards, hand leadership over, force an election."
    ),
    "topic": CommandRow(
        "imago_cli.clusters.topic", "Create, change, list, move and delete topics."
    ),
    "export": CommandRow(
        "imago_cli.declared.exporting", "Print all topics and groups with their settings."
    ),
    "apply": CommandRow(
        "imago_cli.declared.applying", "Make topics and groups as a file says; show what differs."
    ),
    "metaq": CommandRow(
        "imago_cli.metaq.command", "MetaQ's own tools: statistics, partitions, ZooKeeper's tree."
    ),
    "group": CommandRow(
        "imago_cli.groups.group", "Show consumer groups, their lag; move, delete them."
    ),
    "client": CommandRow(
        "imago_cli.clusters.client", "Show who is connected; close a client's connections."
    ),
    "user": CommandRow(
        "imago_cli.users.user", "Show, make, change users, their rights and tokens."
    ),
    "security": CommandRow("imago_cli.users.security", "Make certificates and an administrator."),
    "produce": CommandRow("imago_cli.messages.produce", "Send messages."),
    "request": CommandRow(
        "imago_cli.messages.request", "Send a message and print the reply to it."
    ),
    "consume": CommandRow("imago_cli.messages.consume", "Read messages."),
    "message": CommandRow(
        "imago_cli.messages.message",
        "Find messages, see what waits for its time; send one once more.",
    ),
    "dlq": CommandRow("imago_cli.groups.dlq", "Messages that groups gave up; send them back."),
    "profile": CommandRow(
        "imago_cli.clusters.profile", "Name clusters, and choose the one that is meant."
    ),
    "watch": CommandRow(
        "imago_cli.watch", "Show what a command says, again and again in one place."
    ),
    "bench": CommandRow(
        "imago_cli.messages.bench", "Measure a running cluster with Python clients."
    ),
    "broker": CommandRow("imago_cli.servers.broker", "Run one broker process."),
    "namesrv": CommandRow(
        "imago_cli.servers.namesrv", "Run RocketMQ's name service as a process of its own."
    ),
    "backup": CommandRow(
        "imago_cli.backups.command", "Take, check, restore and delete backups of a cluster."
    ),
    "mirror": CommandRow(
        "imago_cli.mirrors.command", "Copy topics to another cluster; fail over to it, and back."
    ),
    "operator": CommandRow("imago_cli.servers.operator", "Run clusters on Kubernetes."),
    "log": CommandRow("imago_cli.log", "Check or show a broker's files while it is stopped."),
    "config": CommandRow(
        "imago_cli.settings.command", "Show, explain, convert and change configurations."
    ),
    "doctor": CommandRow(
        "imago_cli.doctor.command", "Find common mistakes on this machine, with the cure."
    ),
    "spark": CommandRow(
        "imago_cli.servers.spark", "Run an application for Spark: tables of topics, and back."
    ),
    "java-home": CommandRow(
        "imago_cli.servers.java_home", "Print the JAVA_HOME of a Java for Spark."
    ),
}


def build(name: str | None) -> CommandGroup:
    """Return the command with one sub-command loaded, or with the names of all."""
    root = CommandGroup(
        "Imago: a message broker for MetaQ and RocketMQ clients.",
        _before(name),
        epilog=exits.HELP,
    )
    if name in COMMANDS:
        importlib.import_module(COMMANDS[name].module).attach(root)
        return root
    for other, row in COMMANDS.items():
        root.add(other, Command(_placeholder, row.help))
    return root


def _before(name: str | None) -> Callable[..., None]:
    """Return what is done before a command: it is told where the cluster is, and as whom."""

    def before(
        version: Annotated[bool, Option("--version", help="Show the version and exit.")] = False,
        profile: Annotated[
            str | None,
            Option(
                envvar="IMAGO_PROFILE",
                help="Addresses, user and files of a cluster, out of"
                " ~/.config/imago/profiles.toml.",
            ),
        ] = None,
        user: Annotated[
            str | None,
            Option(envvar="IMAGO_USER", help="Whose requests these are, where brokers ask."),
        ] = None,
        password_file: Annotated[
            str | None,
            Option(envvar="IMAGO_PASSWORD_FILE", help="File with the user's password alone."),
        ] = None,
        install_completion: Annotated[
            bool,
            Option("--install-completion", help="Install completion for the current shell."),
        ] = False,
        show_completion: Annotated[
            bool,
            Option(
                "--show-completion",
                help="Show completion for the current shell, to copy it or customize the"
                " installation.",
            ),
        ] = False,
    ) -> None:
        if version:
            print_line(f"imago {distribution.version()}")
        if install_completion or show_completion:
            from imago_cli.line import shells

            (shells.install if install_completion else shells.show)()
        if version or install_completion or show_completion:
            sys.exit(exits.Exit.DONE)
        # Commands read them where they connect; a password itself is never on a line that
        # `ps` shows.
        given = {"IMAGO_USER": user, "IMAGO_PASSWORD_FILE": password_file}
        said = {
            name: value
            for name, value in given.items()
            if value is not None and value != os.getenv(name)
        }
        from imago_cli import profiles

        is_of_profiles = name == "profile"  # it has to mend a wrong choice, too
        is_said = profile not in (None, os.getenv("IMAGO_PROFILE"))  # on the line, and meant
        if profile := profile or ("" if is_of_profiles else profiles.chosen(os.environ)):
            profiles.apply(profile, os.environ, over=is_said)
        os.environ.update(said)

    return before


def _placeholder() -> None:
    raise AssertionError("only listed, never called: a named command is loaded instead")
