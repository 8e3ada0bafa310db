"""What a shell is told that a line may become: commands, options, their values, names of a cluster.

The shell's script calls `imago` with `_IMAGO_COMPLETE` and the line up to the cursor in its
environment. Names come from a function that is given the place, the parameter and what stands of
its name.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from imago_cli.exits import CommandUsageError
from imago_cli.line.declared import Command, CommandGroup
from imago_cli.line.pages import short
from imago_cli.line.reading import HELP, HELP_HELP, Line
from imago_cli.output import print_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_cli.line.declared import Parameter


class Candidate(NamedTuple):
    """What the last word may become, and a word about it."""

    word: str
    help: str = ""


Names: TypeAlias = "Callable[[AskedPlace, Parameter, str], Sequence[str] | None]"
"""Returns what a parameter may name; None: nothing that is listed."""


class AskedPlace(NamedTuple):
    """Where in a line a shell asks."""

    node: Command | CommandGroup
    path: str
    """The command's words, without the program."""
    line: Line
    root: Line
    """What stands before the command."""
    opened: Parameter | None
    """The option whose value comes next."""
    names: Names


def complete(
    top: Command | CommandGroup,
    environment: Mapping[str, str],
    shell: str,
    names: Names,
) -> bool:
    """Print what the line may become that the environment has; return whether to look for files.

    Bash begins a word anew at signs like = and :, and takes what follows: `COMP_LAST` is its word.
    """
    words, last = _line_of(environment)
    try:
        found = candidates(_found(top, words, names), last)
    except CommandUsageError:  # nothing completes a line that is wrong
        return True
    own = environment.get("COMP_LAST", last)
    before = len(last) - len(own) if last.endswith(own) else 0
    for one in found or ():
        if shell == "zsh":
            about = f":{one.help}".replace("\n", " ") if one.help else ""
            print_line(one.word.replace(":", r"\:") + about)
        elif shell == "fish" and one.help:
            print_line(f"{one.word}\t{one.help}")
        else:
            print_line(one.word[before:])
    return found is None


def words_of(environment: Mapping[str, str]) -> list[str]:
    """Return the words of a line, also of one whose quote is not closed yet."""
    text = environment.get("COMP_LINE", "")
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _line_of(environment: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the words behind the program, and the one that is not done yet."""
    words = words_of(environment)
    at = len(words) - (not environment.get("COMP_LINE", "")[-1:].isspace())
    return words[1:at], words[at] if at < len(words) else ""


def candidates(asked: AskedPlace, last: str) -> list[Candidate] | None:
    """Return what the last word of a line may become; None: anything, such as a file's name."""
    if asked.opened is not None:
        return _values(asked, asked.opened, last)
    if last.startswith("-"):
        return _option_value(asked, last) if "=" in last else _options(asked, last)
    if isinstance(asked.node, CommandGroup):
        inner = asked.node.commands.items()
        return [Candidate(name, short(one)) for name, one in inner if name.startswith(last)]
    places = [one for one in asked.node.parameters if not one.is_option]
    at = len(asked.line.placed)
    if at < len(places) or (places and places[-1].is_list):
        return _values(asked, places[min(at, len(places) - 1)], last)
    return []


def _found(
    top: Command | CommandGroup,
    words: Sequence[str],
    names: Names,
) -> AskedPlace:
    node, path, root = top, list[str](), None
    while True:
        parameters, is_group = node.parameters, isinstance(node, CommandGroup)
        opened = None
        if words and "--" not in words:
            opened = next((p for p in parameters if words[-1] in p.words and not p.is_flag), None)
        line = Line(parameters, words[:-1] if opened else words, only_first=is_group)
        root = root or line
        if not isinstance(node, CommandGroup) or not line.placed:
            return AskedPlace(node, " ".join(path), line, root, opened, names)
        name, *words = line.placed
        if name not in node.commands:
            raise CommandUsageError(f"No such command {name!r}")
        path.append(name)
        node = node.commands[name]


def _values(asked: AskedPlace, parameter: Parameter, last: str) -> list[Candidate] | None:
    words = parameter.choices or asked.names(asked, parameter, last)
    return None if words is None else [Candidate(one) for one in words if one.startswith(last)]


def _option_value(asked: AskedPlace, last: str) -> list[Candidate] | None:
    name, _, part = last.partition("=")
    options = (p for p in asked.node.parameters if name in p.words and not p.is_flag)
    found = _values(asked, option, part) if (option := next(options, None)) else []
    return None if found is None else [Candidate(f"{name}={one.word}") for one in found]


def _options(asked: AskedPlace, last: str) -> list[Candidate]:
    shown = [
        one
        for one in asked.node.parameters
        if not one.declared.hidden and (one.is_list or one.name not in asked.line.given)
    ]
    rows = [(word, one.declared.help) for one in shown for word in (*one.words, one.off)]
    rows += [(word, HELP_HELP) for word in HELP]
    return [Candidate(*row) for row in rows if row[0] and row[0].startswith(last)]
