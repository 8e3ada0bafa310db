"""Runs a command line, and tells mistakes in it as every other error is told."""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING, Any

from typer.main import get_command

from imago_cli.exits import CommandError, CommandUsageError, Exit
from imago_cli.output import OutputClosedError, close_output

if TYPE_CHECKING:
    from collections.abc import Sequence

    import typer

_UNWRITTEN = frozenset({errno.ENOSPC, errno.EIO, errno.EDQUOT})
_HELP_ONLY = "NoArgsIsHelpError"
"""A group without a command on the line: its help is the answer."""


def invoke(app: typer.Typer, program: str, arguments: Sequence[str] | None = None) -> None:
    """Run a command line, by default this process's, and exit with the command's code.

    UsageError: it names no command, or wrong options or values; one line, and where help is.
    """
    command = get_command(app)
    _unwrap(command)
    try:
        code = command.main(arguments, prog_name=program, standalone_mode=False)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # of a help that nobody reads
            raise OutputClosedError from end
        raise
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITTEN:
            raise
        close_output()
        raise CommandError(f"standard output cannot be written: {error.strerror}") from error
    except Exception as error:
        # What is wrong with a command line is told by classes that are no public names.
        if not hasattr(error, "format_message"):
            raise
        raise _told(error) from error
    sys.exit(code if isinstance(code, int) else Exit.DONE)


def _unwrap(command: Any) -> None:
    """Join the lines of each paragraph of the help: terminals have widths of their own."""
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(text.split()) for text in paragraphs)
    for inner in getattr(command, "commands", {}).values():
        _unwrap(inner)


def _told(error: Any) -> CommandUsageError:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == _HELP_ONLY and context is not None:
        sys.stdout.write(f"{context.get_help()}\n")
        sys.stdout.flush()
        sys.exit(Exit.USAGE)
    said = " ".join(str(error.format_message()).split()).removesuffix(".")
    said = said.replace("Value error, ", "")
    return CommandUsageError(
        said, cure=f"{context.command_path} --help" if context is not None else ""
    )
