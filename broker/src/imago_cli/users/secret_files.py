"""Files with one secret each, for their owner alone."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from imago_cli.clusters.admin_http import CallRefusedError
from imago_cli.exits import CommandError, CommandUsageError, Exit

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER_ERROR = 500
"""The status from which on a call may have been done in part; below, it was refused."""


def read_secret(path: Path) -> str:
    """Return what a file has, without the end of its line."""
    secret = path.read_text(encoding="utf-8").strip()
    if not secret:
        raise CommandUsageError(f"{path}: is empty", cure="write the password into it")
    return secret


@contextmanager
def made_up_password(path: Path, again: str, *, is_first: bool) -> Iterator[str]:
    """Yield a new password for the block to give to a broker; it is in `path` once it has it.

    Until then it is in PATH.new. That goes where the broker refuses; where nobody knows whether
    the broker has it, it stays, and the CommandError names the cure: `again` from that
    file. `is_first`: CommandUsageError where there is a file `path` already.
    """
    made = Path(f"{path}.new")
    cure = f"{again} --from-file {made} && mv {made} {path}"
    if made.exists():
        raise CommandUsageError(f"{made} is there already: a broker may have it", cure=cure)
    if is_first and path.exists():
        raise CommandUsageError(f"{path} is there already", cure="move it away")
    with new_file(made) as file:
        password = secrets.token_urlsafe(24)
        file.write(f"{password}\n")
    cure = f"repeat it with what was made up: {cure}"
    try:
        yield password
    except CommandError as error:
        if isinstance(error, CallRefusedError) and error.status < SERVER_ERROR:
            made.unlink()
            raise
        raise CommandError(error.message, cure=cure) from error
    except KeyboardInterrupt as error:
        said = "interrupted before the broker has answered"
        raise CommandError(said, cure=cure, code=Exit.INTERRUPTED) from error
    made.replace(path)


@contextmanager
def new_file(path: Path) -> Iterator[TextIO]:
    """Open a new file that nobody else may read, before a broker makes what it is for: nobody
    has a secret that no file could take. It is gone again when that fails."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandUsageError(f"{path} is there already", cure="move it away") from None
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise
