"""`imago apply`: makes topics and groups as a file says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from imago_cli.clusters.admin_http import DEFAULT_ADMIN, Admin, CallRefusedError, ask
from imago_cli.clusters.missing import end_with_told
from imago_cli.connect import AsJson, Yes, confirm
from imago_cli.declared.changes import DeclaredChange, changes, kept_by_prune
from imago_cli.declared.present import present_state
from imago_cli.declared.wanted import wanted_state
from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.line.declared import CommandGroup, Option
from imago_cli.output import counted, print_json, print_line, say
from imago_cli.yaml_text import read

_HIDES = "hides_messages"


def attach(root: CommandGroup) -> None:
    """Add the command."""
    root.add("apply", apply)


def apply(
    file: Annotated[
        str,
        Option("--file", "-f", help="YAML or JSON as `imago export` prints it; -: stdin."),
    ],
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    prune: Annotated[
        bool,
        Option(
            "--prune",
            help="Delete topics, with all their messages, and groups that the file does not have,"
            " of the kinds that it names: never what `export` leaves out. Asks first.",
        ),
    ] = False,
    hide_messages: Annotated[
        bool,
        Option("--hide-messages", help="Allow fewer queues even if they hide messages."),
    ] = False,
    admin: Admin = DEFAULT_ADMIN,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make and change topics and groups so that they are as a file says, and show what differs.

    What the file does not name stays as it is. The whole file is read first; brokers refuse where
    they make a change what would hide messages. Repeat the command where it ends midway. Exit code
    1: something could not be changed, or a shard is away.
    """
    wanted = wanted_state(read(_text(file), file), file, prune=prune)
    present, missing = present_state(admin)
    if prune and missing:
        end_with_told(missing, partial=False, lacks="unknown, and so nothing was changed")
    todo = changes(wanted, present, prune=prune)
    _say_kept(kept_by_prune(wanted, present, prune=prune))
    gone = [one for one in todo if one.method == "DELETE"]
    if not as_json:
        for one in todo:
            print_line(str(one))
    if not dry_run:
        if gone:
            confirm(f"Delete {_listed(gone)}?", yes=yes)
        for number, one in enumerate(todo):
            _make(admin, one, number, len(todo), hide_messages=hide_messages)
    if as_json:
        print_json({"changes": [*map(_shown, todo)], "made": not dry_run, "missing": missing})
    else:
        end = " would be made" if dry_run else " made"
        say(counted(len(todo), "change") + end if todo else "nothing differs")
    end_with_told(missing, partial=False, lacks="not compared")


def _make(
    admin: str, change: DeclaredChange, number: int, count: int, *, hide_messages: bool
) -> None:
    """Have a broker make one change on all shards; say how far it came where that fails."""
    hides = hide_messages and change.kind == "topic" and change.method == "PUT"
    body = None if change.method == "DELETE" else change.body
    if body is not None and hides:
        body = body | {"hideMessages": True}
    try:
        said = ask(admin, change.path, body, method=change.method)
    except CallRefusedError as error:
        cure = error.cure
        if error.reason == _HIDES:
            cure = "keep the number of queues, or add --hide-messages"
        raise CommandError(
            f"{change.kind} {change.name}: {error.message} {number} of {count} changes were made",
            cure=cure,
        ) from error
    if hidden := said.get("hiddenMessages"):
        say(f"{change.kind} {change.name}: hidden from readers now: {counted(hidden, 'message')}")


def _text(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode()
    except UnicodeDecodeError as error:
        raise CommandUsageError(f"{file}: is no text in UTF-8") from error
    except OSError as error:
        raise CommandUsageError(
            f"--file {file}: {error.strerror}", cure="`imago export` prints such a file"
        ) from error


def _say_kept(names: list[str]) -> None:
    for name in names:
        say(f"note: topic {name} stays: it accepts messages on no shard; see topic delete")


def _shown(change: DeclaredChange) -> dict[str, Any]:
    """Return a change as JSON has it."""
    word = "create" if change.new else "change"
    if change.method == "DELETE":
        word = "delete"
    return {"kind": change.kind, "name": change.name, "change": word, "settings": change.body}


def _listed(gone: list[DeclaredChange]) -> str:
    parts = []
    for kind, with_what in (("topic", " with all messages"), ("group", " with all offsets")):
        if names := [one.name for one in gone if one.kind == kind]:
            parts.append(f"{counted(len(names), kind)}{with_what} ({', '.join(names)})")
    return " and ".join(parts)
