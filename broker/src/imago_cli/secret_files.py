"""Files with one secret each, for their owner alone."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from imago_cli.exits import CommandUsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def read_secret(path: Path) -> str:
    """Return what a file has, without the end of its line."""
    secret = path.read_text(encoding="utf-8").strip()
    if not secret:
        raise CommandUsageError(f"{path}: is empty", cure="write the password into it")
    return secret


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
