"""What commands print: tables for people, JSON for programs, errors on standard error."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

from imago_cli.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


WIDTH_MAX: Final = 240
UNFOLDED_MAX: Final = 21
"""Characters of a cell that never folds: an address with its port is one word."""
FOLDED_MIN: Final = 8
"""Characters that a cell keeps on each line where it folds."""
GAP: Final = 2
"""Characters between two columns."""
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EIO, errno.EDQUOT})
"""What the system says of a file that takes nothing more, without naming it."""


class OutputClosedError(Exception):
    """The reader of standard output has gone, as `head` does: nothing is left to do."""


def counted(number: int, what: str) -> str:
    """Return a number of things, as `1 queue` and `2 queues`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def in_bytes(size: int | None) -> str:
    """Return a size for people, as `12 B` and `1.4 GiB`; nothing where it is not known."""
    if size is None:
        return ""
    power = min(max(0, size.bit_length() - 1) // 10, 4)
    amount = f"{size / (1 << 10 * power):.1f}" if power else str(size)
    return f"{amount} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def role_name(role: str) -> str:
    """Return a role's name for people: programs read `slave` where people read `follower`."""
    return {"slave": "follower", "Slave": "Follower"}.get(role, role)


FORMS: Final = ("table", "wide", "json", "yaml", "name")
"""What `-o` takes, wherever there is `--json`."""
_NAMED_BY: Final = ("name", "topic", "group", "setting", "key", "shard", "id", "uniqueId")
_form = "json"


def choose_form(form: str) -> None:
    """Have what is printed as JSON, and tables, be printed in this form from now on."""
    global _form  # noqa: PLW0603  one command a process
    _form = form


def print_json(value: object) -> None:
    """Print one line of JSON, or what was chosen in its place, and send it off at once."""
    if _form == "yaml":
        from imago_cli.yaml_text import document

        print_line(document(value))
    elif _form == "name":
        for name in _names(value):
            print_line(name)
    else:
        import orjson  # `imago --version` does without

        print_line(orjson.dumps(value).decode())


def _names(value: Any) -> Iterator[str]:
    """Yield what things are called: of a list, of an object's one list, or of an object."""
    if isinstance(value, dict):
        name = next((value[key] for key in _NAMED_BY if isinstance(value.get(key), str)), None)
        inner = [each for key, each in value.items() if isinstance(each, list) and key != "missing"]
        if name is None and len(inner) == 1:
            value = inner[0]
        else:
            yield from value if name is None else (name,)
            return
    for one in value if isinstance(value, list) else (value,):
        yield from _names(one) if isinstance(one, dict) else (str(one),)


def print_line(text: str) -> None:
    """Print a line on standard output, unwrapped, and send it off at once."""
    with writing():
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def write_bytes(data: bytes) -> None:
    """Write bytes on standard output as they are; they may leave with `flush` only."""
    with writing():
        sys.stdout.buffer.write(data)


def flush() -> None:
    """Send off what was written."""
    with writing():
        sys.stdout.buffer.flush()


def close_output() -> None:
    """Throw away what cannot be written: else the interpreter complains once more at its end."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


@contextmanager
def writing() -> Iterator[None]:
    """Tell a reader that has gone, and a file that cannot be written, from mistakes of ours."""
    try:
        yield
    except BrokenPipeError:
        raise OutputClosedError from None
    except OSError as error:
        close_output()
        raise CommandError(
            f"standard output cannot be written: {error.strerror}",
            cure="free space where it goes, or send it elsewhere",
        ) from error


def plain_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], width: int
) -> str | None:
    """Return a table of plain words as rich draws it; None: it is too wide, or has other signs."""
    cells = [[str(cell) for cell in row] for row in rows]
    texts = [title, *columns, *(cell for row in cells for cell in row)]
    if not columns or not all(text.isascii() and text.isprintable() for text in texts):
        return None
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    whole = sum(widths) + 3 * len(widths) + 1
    if whole > width or len(title) > whole:
        return None
    right = [
        bool(rows) and all(isinstance(row[n], int | float) for row in rows)
        for n in range(len(columns))
    ]

    def border(first: str, line: str, between: str, last: str) -> str:
        return first + between.join(line * (each + 2) for each in widths) + last

    def words(row: Sequence[str], edge: str, style: str = "", end: str = "") -> str:
        shown = [
            f" {style}{cell.rjust(each) if is_right else cell.ljust(each)}{end} "
            for cell, each, is_right in zip(row, widths, right, strict=True)
        ]
        return edge + edge.join(shown) + edge

    bold = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
    lines = [title] if title else []
    lines += [border("┏", "━", "┳", "┓"), words(columns, "┃", *bold), border("┡", "━", "╇", "┩")]
    lines += [words(row, "│") for row in cells]
    return "\n".join([*lines, border("└", "─", "┴", "┘")])


def terminal_width() -> int:
    """Return how wide the terminal is: as COLUMNS says, or the terminal, or 80."""
    if (said := os.environ.get("COLUMNS", "")).isdecimal() and int(said):
        return int(said)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):
        return 80


def _is_free() -> bool:
    """Whether there is no width to keep to: into a file or a pipe, unless somebody names one."""
    return _form == "wide" or (not sys.stdout.isatty() and "COLUMNS" not in os.environ)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table for people: numbers to the right, and only long cells fold."""
    listed = [tuple(row) for row in rows]
    width = WIDTH_MAX if _is_free() else terminal_width()
    if (plain := plain_table(title, columns, listed, width)) is not None:
        print_line(plain)
        return
    # It costs an eighth of a second to import: only a table that has to be folded pays it.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", highlight=False)
    for number, column in enumerate(columns):
        cells = [row[number] for row in listed]
        numeric = bool(cells) and all(isinstance(cell, int | float) for cell in cells)
        short = all(len(str(cell)) <= UNFOLDED_MAX for cell in cells)
        justify: Literal["left", "right"] = "right" if numeric else "left"
        table.add_column(column, justify=justify, overflow="fold", no_wrap=short)
    for row in listed:
        table.add_row(*(Text(str(cell)) for cell in row))
    console = Console(width=WIDTH_MAX if _is_free() else None)
    unbound = console.options.update_width(WIDTH_MAX)
    if console.measure(table, options=unbound).maximum > console.width:
        table.box, table.padding, table.pad_edge = None, (0, GAP, 0, 0), False
        least = 0
        for shown in table.columns:
            shown.header = str(shown.header).replace(" ", "\n")
            words = [*shown.header.split("\n"), *map(str, shown.cells if shown.no_wrap else ())]
            least += GAP + max(FOLDED_MIN * (not shown.no_wrap), *map(len, words))
        # Where even that is too wide the terminal breaks lines, and no cell loses its end.
        console.width = max(console.width, least)
    with writing(), console.capture() as drawn:
        console.print(table, end="")
    print_line("\n".join(line.rstrip() for line in drawn.get().rstrip().split("\n")))


def print_error(error: CommandError) -> None:
    """Say on standard error what went wrong, and what to do."""
    sys.stderr.write(f"error: {error.message}\n")
    if error.cure:
        sys.stderr.write(f"  cure: {error.cure}\n")
    sys.stderr.flush()


def say(text: str) -> None:
    """Tell a person what is going on; programs read standard output only."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
