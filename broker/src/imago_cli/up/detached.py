"""A cluster in the background: what `imago up --detach` starts and `imago down` ends.

The background process is `imago up` itself in a session of its own. Whoever started it waits for
what it prints once all is ready; its standard error becomes a file, where a failed start is told.
Who runs a folder's cluster, in the background or not, stands in the folder's lock.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.line.declared import CommandGroup, Option
from imago_cli.output import print_line
from imago_cli.up import state as up_state
from imago_cli.up.state import DEFAULT_DATA

if TYPE_CHECKING:
    from collections.abc import Sequence

LOG = Path("logs", "up.log")
DETACH = "--detach"
IN_BACKGROUND = "--in-background"
"""What stands for `--detach` on the background process's own line."""
STOP_SECONDS = 120.0
_POLL_SECONDS = 0.05
_LAST_BYTES = 8192


def attach(root: CommandGroup) -> None:
    """Add the command that ends it."""
    root.add("down", down)


def start(data: Path, arguments: Sequence[str]) -> None:
    """Run `imago ARGUMENTS`, with `--detach` in them, in the background; return once it is ready.

    Prints what it prints then. CommandError with its own words and code when it ends before.
    """
    words = [IN_BACKGROUND if word == DETACH else word for word in arguments]
    log_path = data / LOG
    with up_state.locked(data):  # so that no log of a running cluster is written over
        log_path.parent.mkdir(exist_ok=True)
        log = log_path.open("wb")
    with log:
        background = subprocess.Popen(  # noqa: S603  our own command line
            [sys.executable, "-m", "imago_cli", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            text=True,
        )
    assert background.stdout is not None, "a pipe was asked for"
    try:
        said = background.stdout.read()
    except KeyboardInterrupt:
        background.terminate()
        background.wait()
        raise
    if not said:
        _fail(background.wait(), log_path)
    print_line(said.rstrip())


def is_ready() -> None:
    """Let go of whoever waits for this background process: all is said."""
    sys.stdout.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def down(
    data: Annotated[Path, Option(help="Its folder, as imago up has it.")] = DEFAULT_DATA,
    seconds: Annotated[float, Option("--timeout", help="How long to wait for its end.")] = (
        STOP_SECONDS
    ),
) -> None:
    """Stop the cluster that `imago up` runs on a folder, and wait until it has ended.

    Nothing is deleted: `imago up --data FOLDER` brings it back. A folder whose cluster does not run
    is as wanted, too.
    """
    folder = data.absolute()
    if not folder.is_dir():
        raise CommandUsageError(
            f"--data {folder}: there is no such folder",
            cure="give the --data that imago up was given",
        )
    pid = up_state.runner(folder)
    if pid is None:
        print_line(f"no cluster runs on {folder}")
        return
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + seconds
    while up_state.runner(folder) == pid:
        if time.monotonic() >= end:
            raise CommandError(
                f"process {pid} has not ended within {seconds:g} s",
                cure=f"wait, or have it kill all its processes: kill {pid}; sleep 2; kill {pid}",
            )
        time.sleep(_POLL_SECONDS)
    print_line(f"the cluster on {folder} is stopped; imago up brings it back")


def _fail(code: int, log_path: Path) -> NoReturn:
    """End as a background process that did not become ready ended, with its own words."""
    with log_path.open("rb") as log:
        log.seek(max(log.seek(0, os.SEEK_END) - _LAST_BYTES, 0))
        said = log.read().decode(errors="replace")
    _, error, words = f"\n{said}".rpartition("\nerror: ")
    if not error:
        raise CommandError(f"it ended with code {code}", cure=f"its log is {log_path}")
    sys.stderr.write(f"error: {words}")
    sys.exit(code)
