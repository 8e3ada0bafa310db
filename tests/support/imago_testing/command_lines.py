"""Runs command lines of `imago` in the test's process."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unittest import mock

from imago_cli.commands import build
from imago_cli.line.running import invoke

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Ran:
    """How a line ended: with a code, or with the error that a person is told."""

    exit_code: int
    stdout: str
    stderr: str
    exception: Exception | None


def run_line(
    words: Sequence[str],
    stdin: str | bytes | None = None,
    environment: Mapping[str, str] | None = None,
) -> Ran:
    """Run a line; what it would read and print goes through memory."""
    given = stdin.encode() if isinstance(stdin, str) else stdin or b""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    code, failure = 0, None
    with (
        mock.patch.dict(os.environ, environment or {}),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), encoding="utf-8")),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            invoke(build(words[0]), "imago", words)
        except SystemExit as end:
            code = int(end.code or 0)
        except Exception as error:
            code, failure = int(getattr(error, "code", 1)), error
    out.flush()
    err.flush()
    shown, said = (each.buffer.getvalue().decode() for each in (out, err))
    return Ran(code, shown, said, failure)
