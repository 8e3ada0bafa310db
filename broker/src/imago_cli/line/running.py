"""Runs a command line: finds the command, gives its function what was said, and ends as it says."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from imago_cli.exits import CommandUsageError, Exit
from imago_cli.line.declared import Command, CommandGroup
from imago_cli.line.reading import Line, near
from imago_cli.output import print_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_cli.line.declared import Parameter

_WAYS: Final = {
    "--bootstrap": "a name service (IMAGO_BOOTSTRAP)",
    "--admin": "a broker's admin interface (IMAGO_ADMIN)",
}
"""The options by which commands are told where the cluster is, and what each one names."""


def invoke(top: Command | CommandGroup, program: str, words: Sequence[str] | None = None) -> None:
    """Run a command line, by default this process's, and exit with the command's code.

    UsageError: it names no command, or wrong options or values; one sentence, and where help is.
    """
    node, path, before = top, program, list[str]()
    words = sys.argv[1:] if words is None else words
    while isinstance(node, CommandGroup):
        try:
            name, words = _descend(node, path, words)
        except CommandUsageError as error:
            raise _told(error, path, words, before) from error
        before += [option for one in node.parameters for option in one.words]
        node, path = node.commands[name], f"{path} {name}"
    try:
        line = Line(node.parameters, words)
        if line.wants_help:
            _explain(node, path, Exit.DONE)
        values = line.values()
    except CommandUsageError as error:
        raise _told(error, path, words, before, node.parameters) from error
    try:
        node.call(values)
    except CommandUsageError as error:
        error.cure = error.cure or f"{path} --help"
        raise
    sys.exit(Exit.DONE)


def _descend(group: CommandGroup, path: str, words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Do what comes before a group's commands; return which one is meant, and the rest."""
    line = Line(group.parameters, words, only_first=True)
    if line.wants_help or not words:
        _explain(group, path, Exit.DONE if line.wants_help else Exit.USAGE)
    name = line.placed[0] if line.placed else None
    if name is not None and name not in group.commands:
        close = near(name, group.commands)
        meant = f". Did you mean {', '.join(map(repr, close))}?" if close else ""
        raise CommandUsageError(f"No such command {name!r}{meant}")
    group.begin(line.values(taken=len(line.placed)))
    if name is None:
        raise CommandUsageError("Missing command")
    return name, line.placed[1:]


def _explain(node: Command | CommandGroup, path: str, code: Exit) -> None:
    from imago_cli.line.pages import page

    print_line(page(node, path))
    sys.exit(code)


def _told(
    error: CommandUsageError,
    path: str,
    words: Sequence[str],
    before: Sequence[str],
    parameters: Sequence[Parameter] = (),
) -> CommandUsageError:
    """Return the error with where help is, or where an option belongs that stands in the line."""
    program, _, command = path.partition(" ")
    own = {option for one in parameters for option in one.words}
    cure = f"{path} --help"
    for word in words:
        if word in own or f"option: {word}" not in error.message:
            continue
        if word in before:
            cure = f"it stands before the command: {program} {word} … {command}"
        elif word in _WAYS:
            other = next((one for one in _WAYS if one in own), None)
            if other:
                cure = f"this command reaches the cluster by {other}, {_WAYS[other]}"
    return CommandUsageError(error.message, cure=error.cure or cure)
