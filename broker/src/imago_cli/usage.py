"""Runs a command line, and prints mistakes in it like every other error."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from typer.main import get_command

from imago_cli.exits import CommandError, CommandUsageError, Exit
from imago_cli.output import FORMS, NO_ROOM, OutputClosedError, choose_form, close_output

if TYPE_CHECKING:
    from collections.abc import Sequence

    import typer

COMPLETION_VARIABLE = "_IMAGO_COMPLETE"
"""It is set where a shell asks what a line may become."""
_PRINTERS = frozenset({"click", "rich", "typer"})
"""Whose code writes the help."""
_WAYS = {
    "--bootstrap": "a name service (IMAGO_BOOTSTRAP)",
    "--admin": "a broker's admin interface (IMAGO_ADMIN)",
}
"""The options by which commands are told where the cluster is, and what each one names."""
_NUMBERS = {int: "a whole number", float: "a number"}
_HELP_ONLY = "NoArgsIsHelpError"
"""A group without a command on the line: its help is the answer."""


def invoke(app: typer.Typer, program: str, arguments: Sequence[str] | None = None) -> None:
    """Run a command line, by default this process's, and exit with the command's code.

    UsageError: it names no command, or wrong options or values; one line, and where help is.
    """
    command = get_command(app)
    _unwrap(command)
    _show_no_type_of_flags(command)
    if COMPLETION_VARIABLE in os.environ:
        from imago_cli.completing import complete

        complete(command)
    words = in_form(command, sys.argv[1:] if arguments is None else arguments)
    try:
        code = command.main(words, prog_name=program, standalone_mode=False)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # of a help that nobody reads
            raise OutputClosedError from end
        raise
    except OSError as error:
        if error.filename is not None or error.errno not in NO_ROOM or not _of_help(error):
            raise
        close_output()
        raise CommandError(f"standard output cannot be written: {error.strerror}") from error
    except Exception as error:
        # The classes of a command line's errors are no public names.
        if not hasattr(error, "format_message"):
            raise
        raise _told(error) from error
    sys.exit(code if isinstance(code, int) else Exit.DONE)


def in_form(command: Any, words: Sequence[str]) -> list[str]:
    """Take `-o FORM` out of a line whose command has `--json`, which stands for most forms."""
    found, at = list(words), command
    for word in words:
        at = getattr(at, "commands", {}).get(word, at)
    taken = _of(at)
    option = next((n for n, word in enumerate(found) if word in ("-o", "--output")), None)
    if (
        option is None
        or "--json" not in taken
        or taken & {"-o", "--output"}
        or "--" in found[:option]
    ):
        return found
    form = found[option + 1] if option + 1 < len(found) else ""
    if form not in FORMS:
        raise CommandUsageError(f"-o {form}: must be one of {', '.join(FORMS)}")
    choose_form(form)
    found[option : option + 2] = [] if form in ("table", "wide") else ["--json"]
    return found


def _of_help(error: OSError) -> bool:
    """Whether the help could not be written; all else that commands print says so itself."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return module.partition(".")[0] in _PRINTERS


def _unwrap(command: Any) -> None:
    """Join the lines of each paragraph of the help: terminals have widths of their own."""
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(text.split()) for text in paragraphs)
    for inner in getattr(command, "commands", {}).values():
        _unwrap(inner)


def _show_no_type_of_flags(command: Any) -> None:
    """Say nothing of the type of what takes no value: `--json <bool>` looks as if it did."""
    params = command.get_params

    def get_params(context: Any) -> list[Any]:
        found: list[Any] = params(context)
        for param in found:
            if getattr(param, "is_flag", False):
                param.display_type_rich = lambda **_: None
        return found

    command.get_params = get_params
    for inner in getattr(command, "commands", {}).values():
        _show_no_type_of_flags(inner)


def _told(error: Any) -> CommandUsageError:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == _HELP_ONLY:
        sys.stdout.flush()  # the help was printed as the error was made
        sys.exit(Exit.USAGE)
    said = _number_problem(error) or " ".join(str(error.format_message()).split())
    said = said.removesuffix(".").replace("Value error, ", "")
    if context is None:
        return CommandUsageError(said)
    misplaced = _misplaced(getattr(error, "option_name", ""), context)
    return CommandUsageError(said, cure=misplaced or f"{context.command_path} --help")


def _number_problem(error: Any) -> str:
    """Say what a number must be that is none, or is out of bounds; "": it is about no number."""
    param, found = getattr(error, "param", None), getattr(error.__cause__, "errors", None)
    wanted = getattr(getattr(param, "type_descriptor", None), "annotation", None)
    if param is None or found is None or wanted not in _NUMBERS:
        return ""
    given = found()[0]["input"]
    bounds = "" if param.min is None else f", {param.min} or more"
    if param.max is not None:
        bounds = f", {param.min} to {param.max}"
    return f"{param.opts[-1]} {given}: must be {_NUMBERS[wanted]}{bounds}"


def _misplaced(option: str, context: Any) -> str:
    """Say where an option belongs that this command does not have; "": nowhere."""
    program, _, command = context.command_path.partition(" ")
    if option in _of(context.find_root().command):
        return f"it stands before the command: {program} {option} … {command}"
    for wanted, where in _WAYS.items():
        if option in _WAYS and option != wanted and wanted in _of(context.command):
            return f"this command reaches the cluster by {wanted}, {where}"
    return ""


def _of(command: Any) -> set[str]:
    return {name for param in command.params for name in param.opts}
