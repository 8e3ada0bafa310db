"""The page of a command or a group: what it does, what it takes."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Final

from imago_cli.line.declared import Command, CommandGroup
from imago_cli.line.reading import HELP, HELP_HELP
from imago_cli.output import WIDTH_MAX, terminal_width

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imago_cli.line.declared import Parameter

_LEFT_WIDTH: Final = 32
"""Characters of a left column; longer ones have a line of their own."""
_UNBROKEN: Final = "\xa0"
"""A space at which no line ends."""
_BOLD: Final = ("\x1b[1m", "\x1b[0m")


def page(node: Command | CommandGroup, path: str) -> str:
    """Return all about a command or a group that is called by these words."""
    parameters = [one for one in node.parameters if not one.declared.hidden]
    places = [one for one in parameters if not one.is_option]
    bold, plain = _BOLD if sys.stdout.isatty() else ("", "")
    width = min(terminal_width(), WIDTH_MAX)
    usage = " ".join([path, "[OPTIONS]", *map(_place, places)])
    if isinstance(node, CommandGroup):
        usage += " COMMAND [ARGS]..."
    lines = [f"{bold}Usage:{plain} {usage}", ""]
    for paragraph in node.help.split("\n\n"):
        lines += [*_filled(paragraph, width, "  "), ""]
    options = [(_words(one), _said(one)) for one in parameters if one.is_option]
    options.append((", ".join(HELP), HELP_HELP))
    sections = [("Arguments:", [(_argument(one), _said(one)) for one in places])]
    sections.append(("Options:", options))
    if isinstance(node, CommandGroup):
        rows = [(name, short(inner)) for name, inner in node.commands.items()]
        sections.append(("Commands:", rows))
    for title, rows in sections:
        if rows:
            lines += [f"{bold}{title}{plain}", *_table(rows, width), ""]
    if isinstance(node, CommandGroup) and node.epilog:
        lines += [*_filled(node.epilog, width, ""), ""]
    return "\n".join(lines).rstrip()


def short(node: Command | CommandGroup) -> str:
    """Return what is said of a command beside others."""
    return node.help.split("\n\n")[0]


def _place(one: Parameter) -> str:
    name = one.declared.metavar.strip("[]") or one.name
    name = f"{{{name}}}" if one.required else f"[{name}]"
    return f"{name}..." if one.is_list else name


def _argument(one: Parameter) -> str:
    return f"{one.name}{'...' if one.is_list else ''} {one.kind_name}"


def _words(one: Parameter) -> str:
    said = "/".join([", ".join(one.words), *([one.off] if one.off else [])])
    return said if one.is_flag else f"{said} {one.kind_name}"


def _said(one: Parameter) -> str:
    """Return an option's or argument's help with all that is noted of it."""
    declared, default = one.declared, one.default
    notes = []
    if declared.least is not None:
        end = "or more" if declared.most is None else f"to {declared.most}"
        notes.append(f"{declared.least} {end}")
    if declared.envvar:
        notes.append(f"env var: {declared.envvar}")
    if isinstance(declared.show_default, str):
        notes.append(f"default: {declared.show_default}")
    elif one.is_flag and one.off:
        notes.append(f"default: {(one.words[0] if default else one.off)[2:]}")
    elif declared.show_default and not one.is_flag and default not in (None, ""):
        notes.append(f"default: {default}")
    if one.required:
        notes.append("required")
    noted = [f"[{note}]".replace(" ", _UNBROKEN) for note in notes]
    return " ".join([*([declared.help] if declared.help else []), *noted])


def _table(rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    edge = 4 + max((len(left) for left, _ in rows if len(left) <= _LEFT_WIDTH), default=0)
    for left, right in rows:
        first, *others = _filled(right, width, " " * edge) or [""]
        if len(left) > edge - 4:
            yield f"  {left}"
            yield first
        else:
            yield f"  {left}".ljust(edge) + first[edge:]
        yield from others


def _filled(text: str, width: int, edge: str) -> list[str]:
    least = max(width, len(edge) + 20)
    lines = textwrap.wrap(
        text, least, initial_indent=edge, subsequent_indent=edge,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return [line.replace(_UNBROKEN, " ") for line in lines]
