"""What a shell completes beside commands and options: topics, groups, shards, profiles.

It asks the cluster that the line is about, for a moment only. Where that does not answer the shell
gets nothing, and no word of why: a person types on.
"""

from __future__ import annotations

import logging
import os
import signal
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from imago_cli import profiles
from imago_cli.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_cli.line.completing import AskedPlace
    from imago_cli.line.declared import Parameter
    from imago_cli.line.reading import Line

SECONDS_MAX: Final = 1.0
"""For the cluster's answer; the process itself has started by then."""
ITEMS_MAX: Final = 200
_ADMIN, _BOOTSTRAP = "--admin", "--bootstrap"


class Named(Enum):
    """Of what a word on the line is the name."""

    TOPIC = "topics"
    GROUP = "groups"
    SHARD = "shards"
    PROFILE = "profiles"


PARAMETERS: Final[Mapping[str, Named]] = {
    "topic": Named.TOPIC,
    "trace_topic": Named.TOPIC,
    "group": Named.GROUP,
    "to_group": Named.GROUP,
    "shard": Named.SHARD,
    "profile": Named.PROFILE,
}
"""By the parameter's name, in whatever command."""
OF_COMMANDS: Final[Mapping[tuple[str, str], Named | None]] = {
    ("log dump", "topic"): None,  # of files, while the broker is stopped
    ("profile show", "name"): Named.PROFILE,
    ("profile use", "name"): Named.PROFILE,
    ("topic move", "source"): Named.SHARD,
    ("topic move", "to"): Named.SHARD,
    ("topic create", "topic"): None,  # a new one
    ("topic spread", "to"): Named.SHARD,
}
"""By the command, too, where its parameter is called otherwise or means something else."""


def named_by(command: str, parameter: str) -> Named | None:
    """Return of what a command's parameter is the name; None: of nothing that is listed."""
    return OF_COMMANDS.get((command, parameter), PARAMETERS.get(parameter))


def names_for(asked: AskedPlace, parameter: Parameter, last: str) -> list[str] | None:
    """Return what a word may become that a parameter takes; nothing where that takes long.

    None: it takes no such names.
    """
    kind = named_by(asked.path, parameter.name)
    if kind is None:
        return None
    before, comma, part = last.rpartition(",") if kind is Named.SHARD else ("", "", last)
    found: list[str] = []
    with suppress(Exception), _silently():
        found = sorted(name for name in _names(kind, asked, part) if name)
    return [f"{before}{comma}{name}" for name in found if name.startswith(part)][:ITEMS_MAX]


class _silently:  # noqa: N801  reads as a word
    """End the process without a word where the block takes too long; no log meanwhile."""

    def __enter__(self) -> None:
        logging.disable()
        signal.signal(signal.SIGALRM, lambda *_: os._exit(Exit.FAILED))
        signal.setitimer(signal.ITIMER_REAL, SECONDS_MAX)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        logging.disable(logging.NOTSET)


def _names(kind: Named, asked: AskedPlace, part: str) -> Iterable[str]:
    if kind is Named.PROFILE:
        return profiles.profiles_of(os.environ)
    _choose_cluster({name: given[-1] for name, given in asked.root.given.items()})
    ways = {word: one for one in asked.node.parameters for word in one.words}
    if way := ways.get(_ADMIN):
        return _of_admin(kind, _address(way, asked.line), part)
    return _of_client(kind, _address(ways[_BOOTSTRAP], asked.line)) if _BOOTSTRAP in ways else ()


def _choose_cluster(said: Mapping[str, str]) -> None:
    """Do what the command itself would: its profile and user are in the environment then."""
    given = said.get("profile")
    if profile := given or profiles.chosen(os.environ):
        over = given not in (None, os.environ.get("IMAGO_PROFILE"))
        profiles.apply(profile, os.environ, over=over)
    for name in ("user", "password_file"):
        if value := said.get(name):
            os.environ[f"IMAGO_{name.upper()}"] = value


def _address(way: Parameter, line: Line) -> str:
    """Return what an option says; a profile has come into the environment by now."""
    said = line.given.get(way.name)
    return str(said[-1] if said else os.environ.get(way.declared.envvar) or way.default)


def _of_admin(kind: Named, admin: str, part: str) -> list[str]:
    from imago_cli.clusters.admin_http import ask

    if kind is Named.SHARD:
        shards = ask(admin, "/admin/v1/cluster", seconds_max=SECONDS_MAX)["shards"]
        return [str(shard["name"]) for shard in shards]
    path = f"/admin/v1/cluster/{kind.value}?limit={ITEMS_MAX}&contains={quote(part)}"
    return [str(item["name"]) for item in ask(admin, path, seconds_max=SECONDS_MAX)["items"]]


def _of_client(kind: Named, bootstrap: str) -> list[str]:
    from imago_cli.connect import client_config, is_system
    from imago_client.blocking import Client

    config = replace(
        client_config(bootstrap),
        connect_timeout_s=SECONDS_MAX,
        request_timeout_s=SECONDS_MAX,
        failover_timeout_s=SECONDS_MAX,
    )
    with Client(config) as client:
        if kind is Named.GROUP:
            return list(client.admin.groups())
        return [topic for topic in client.admin.topics() if not is_system(topic)]
