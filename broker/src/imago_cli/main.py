"""The `imago` command: a broker process's line is told apart from what people type.

Supervisors and pods start `imago broker --config FILE`: that goes without the command line's
library, which would be a fifth of the start. All else is in `commands`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from imago_cli.exits import CommandError, CommandUsageError, Exit
from imago_cli.output import NO_ROOM, OutputClosedError, close_output, print_error

if TYPE_CHECKING:
    from collections.abc import Callable


DEBUG_VARIABLE = "IMAGO_DEBUG"
_COMPLETION_VARIABLE = "_IMAGO_COMPLETE"

_WITH_VALUE = ("--profile", "--user", "--password-file")
"""Options before the command whose value is the next word."""


_COLLECTED_AT = 20_000
"""New objects before the collector looks: at 700 a start's 50,000, which all stay, are a tenth of
what a command takes."""


def main() -> None:
    """Run the command of this process's arguments and exit with its code."""
    _open_missing()
    if sys.argv[1:] == ["--version"] and _COMPLETION_VARIABLE not in os.environ:
        run(_print_version)
        return
    process = _broker_process(sys.argv[1:])
    if process is None:
        run(_command)
    else:
        run(lambda: _serve(*process))


def _print_version() -> None:
    """Without the command line's library: scripts ask this often."""
    from imago_cli import distribution
    from imago_cli.output import print_line

    print_line(f"imago {distribution.version()}")


def _command() -> None:
    import gc

    from imago_cli import commands

    gc.set_threshold(_COLLECTED_AT)
    root = commands.build(_command_name(sys.argv[1:]))
    if shell := os.environ.get(_COMPLETION_VARIABLE, "").rpartition("_")[2]:
        from imago_cli.line.completing import complete
        from imago_cli.names import names_for

        files = complete(root, os.environ, shell, names_for)
        sys.exit(Exit.DONE if files else Exit.FAILED)
    from imago_cli.line.running import invoke

    invoke(root, "imago")


def _serve(config: Path, ready_fd: int) -> None:
    from imago_cli.servers.broker_process import serve

    sys.exit(serve(config, ready_fd))


def _broker_process(arguments: list[str]) -> tuple[Path, int] | None:
    """Return file and pipe of `broker --config FILE [--ready-fd N]`; None: it is something else."""
    if _COMPLETION_VARIABLE in os.environ:
        return None
    match arguments:
        case ["broker", "--config", file] if not file.startswith("-"):
            return Path(file), -1
        case ["broker", "--config", file, "--ready-fd", number] if number.isdecimal():
            return Path(file), int(number)
    return None


def run(command: Callable[[], object]) -> None:
    """Run a command, and exit with its code; errors are a sentence, never a trace."""
    try:
        command()
    except CommandError as error:
        print_error(error)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except (OutputClosedError, BrokenPipeError):
        close_output()
        sys.exit(Exit.DONE)
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        told = _in_a_sentence(error)
        print_error(told)
        sys.exit(told.code)


def _in_a_sentence(error: Exception) -> CommandError:
    if isinstance(error, UnicodeEncodeError) and not error.object.isprintable():
        return CommandUsageError(f"{error.object!r} is no text in UTF-8")
    if isinstance(error, OSError) and error.filename is not None:
        return CommandError(
            f"{os.fsdecode(error.filename)}: {error.strerror}",
            cure="see whether it is there, and who may read or write it",
        )
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return CommandError(f"a file cannot be written: {error.strerror}", cure="free space")
    return CommandError(
        f"{type(error).__name__}: {str(error) or _place_of(error)}",
        cure=f"this is a mistake of imago; {DEBUG_VARIABLE}=1 shows where it happened",
    )


def _place_of(error: Exception) -> str:
    """Return where an error was raised that says nothing: the last line of ours on its way."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    ours = [each for each in frames if "imago_" in each.filename] or frames
    return f"in {ours[-1].name}, {Path(ours[-1].filename).name}:{ours[-1].lineno}"


def _open_missing() -> None:
    """Open the standard streams that our parent process has closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  stays


def _command_name(arguments: list[str]) -> str | None:
    """The sub-command on the line, or on the line that a shell wants completed."""
    if _COMPLETION_VARIABLE in os.environ:
        from imago_cli.line.completing import words_of

        arguments = words_of(os.environ)[1:]
    given = iter(arguments)
    for word in given:
        if word in _WITH_VALUE:
            next(given, None)
        elif not word.startswith("-"):
            return word
    return None
