"""`imago watch COMMAND…`: what a command shows, again and again in one place.

The command runs as a process of its own each time: what it prints, how it ends and how long it
takes is what it would be without.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Annotated, Final

from imago_cli.exits import CommandUsageError, Exit
from imago_cli.line.declared import Argument, Option
from imago_cli.output import counted, flush, print_line, writing
from imago_cli.times import moment

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from imago_cli.line.declared import CommandGroup

_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\033[H", "\033[K", "\033[J"
_NEW, _PLAIN = "\033[1m", "\033[0m"
_FRAME_LINES: Final = 3
"""Of the screen's height: the head, an empty line, and the cursor's."""


def attach(root: CommandGroup) -> None:
    """Add the command."""
    root.add("watch", watch)


def watch(
    command: Annotated[list[str], Argument(rest=True, help="The command, as without imago.")],
    every: Annotated[float, Option(least=0.5, most=3600, help="Seconds between two looks.")] = 2.0,
    count: Annotated[
        int | None,
        Option(least=1, help="So many looks.", show_default="1, on a terminal until Ctrl-C"),
    ] = None,
) -> None:
    """Show what a command says, again and again; bold is what it did not say before.

    The exit code is that of the last look.
    """
    if not command or command[0] == "watch":
        raise CommandUsageError("Name the command to watch", cure="imago watch topic list --long")
    in_place = sys.stdout.isatty()
    left = count if count is not None or in_place else 1
    before: Collection[str] | None = None
    while True:
        began = time.monotonic()
        code, text = _look(command)
        lines = text.splitlines()
        head = f"imago {' '.join(command)}  {moment(time.time_ns() // 1_000_000)}"
        head += f"  exit code {code}" if code else ""
        if in_place:
            with writing():
                sys.stdout.write(on_screen(head, lines, before, shutil.get_terminal_size()))
        else:
            print_line("\n".join((head, *lines)))
        flush()
        before, left = set(lines), None if left is None else left - 1
        if left == 0:
            sys.exit(code)
        time.sleep(max(0.0, began + every - time.monotonic()))


def _look(command: Sequence[str]) -> tuple[int, str]:
    """Run it once; return its exit code, and what it said on both of its outputs."""
    columns = str(shutil.get_terminal_size().columns)
    ended = subprocess.run(  # noqa: S603  our own command line
        [sys.executable, "-m", "imago_cli", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"COLUMNS": columns},
        check=False,
    )
    if ended.returncode == Exit.INTERRUPTED:
        raise KeyboardInterrupt
    return ended.returncode, ended.stdout.decode(errors="replace")


def on_screen(
    head: str,
    lines: Sequence[str],
    before: Collection[str] | None,
    size: tuple[int, int],
) -> str:
    """Return what draws a look over the one before it; `size`: the screen's columns and lines.

    Lines that were not `before` are bold, but not at the first look, which is None. What has no
    room is counted.
    """
    columns, height = size
    room = max(1, height - _FRAME_LINES)
    shown = list(lines if len(lines) <= room else lines[: room - 1])
    rows = [head[:columns], ""]
    for line in shown:
        is_new = before is not None and line not in before
        cut = line[:columns]
        rows.append(f"{_NEW}{cut}{_PLAIN}" if is_new else cut)
    if len(shown) < len(lines):
        rows.append(f"… {counted(len(lines) - len(shown), 'line')} more")
    return _HOME + "".join(f"{row}{_REST_OF_LINE}\n" for row in rows) + _REST_OF_SCREEN
