"""What a shell is told that a line may become: commands, options, their values, names of a cluster.

The shell's script calls `imago` with `_IMAGO_COMPLETE` and the line in its environment. Names come
from a function that is given the place, the parameter and what stands of its name.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NamedTuple

from imago_cli.exits import CommandUsageError
from imago_cli.line.declared import Command, CommandGroup
from imago_cli.line.pages import short
from imago_cli.line.reading import HELP, HELP_HELP, Line
from imago_cli.output import print_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from imago_cli.line.declared import Parameter


class Candidate(NamedTuple):
    """What the last word may become, and a word about it."""

    word: str
    help: str = ""


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
    names: Callable[[AskedPlace, Parameter, str], Sequence[str]]


def complete(
    top: Command | CommandGroup,
    environment: Mapping[str, str],
    shell: str,
    names: Callable[[AskedPlace, Parameter, str], Sequence[str]],
) -> None:
    """Print what the line may become that the environment has."""
    words, last = _line_of(environment)
    try:
        asked = _found(top, words, names)
    except CommandUsageError:  # nothing completes a line that is wrong
        return
    for one in candidates(asked, last):
        if shell == "zsh":
            about = one.help.replace("\n", " ") or one.word
            print_line(f"{one.word.replace(':', chr(92) + ':')}:{about}")
        elif shell == "fish" and one.help:
            print_line(f"{one.word}\t{one.help}")
        else:
            print_line(one.word)


def words_of(environment: Mapping[str, str]) -> list[str]:
    """Return the words of a line, also of one whose quote is not closed yet."""
    text = environment.get("COMP_LINE") or environment.get("COMP_WORDS", "")
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _line_of(environment: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the words behind the program, and the one that is not done yet."""
    words = words_of(environment)
    if "COMP_LINE" in environment:
        at = len(words) - (not environment["COMP_LINE"][-1:].isspace())
    else:
        at = int(environment.get("COMP_CWORD", len(words)))
    return words[1:at], words[at] if at < len(words) else ""


def candidates(asked: AskedPlace, last: str) -> Iterator[Candidate]:
    """Yield what the last word of a line may become."""
    if asked.opened is not None:
        yield from _values(asked, asked.opened, last)
    elif last.startswith("-"):
        yield from _option_value(asked, last) if "=" in last else _options(asked, last)
    elif isinstance(asked.node, CommandGroup):
        for name, inner in asked.node.commands.items():
            if name.startswith(last):
                yield Candidate(name, short(inner))
    else:
        places = [one for one in asked.node.parameters if not one.is_option]
        at = len(asked.line.placed)
        if at < len(places) or (places and places[-1].is_list):
            yield from _values(asked, places[min(at, len(places) - 1)], last)


def _found(
    top: Command | CommandGroup,
    words: Sequence[str],
    names: Callable[[AskedPlace, Parameter, str], Sequence[str]],
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


def _values(asked: AskedPlace, parameter: Parameter, last: str) -> Iterator[Candidate]:
    words = parameter.choices or asked.names(asked, parameter, last)
    yield from (Candidate(one) for one in words if one.startswith(last))


def _option_value(asked: AskedPlace, last: str) -> Iterator[Candidate]:
    name, _, part = last.partition("=")
    options = (p for p in asked.node.parameters if name in p.words and not p.is_flag)
    for one in _values(asked, option, part) if (option := next(options, None)) else ():
        yield Candidate(f"{name}={one.word}")


def _options(asked: AskedPlace, last: str) -> Iterator[Candidate]:
    shown = [
        one
        for one in asked.node.parameters
        if not one.declared.hidden and (one.is_list or one.name not in asked.line.given)
    ]
    rows = [(word, one.declared.help) for one in shown for word in (*one.words, one.off)]
    rows += [(word, HELP_HELP) for word in HELP]
    yield from (Candidate(*row) for row in rows if row[0] and row[0].startswith(last))
