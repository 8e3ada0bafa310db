"""How a command ends: the exit codes, and the error that carries one.

0 done · 1 it did not work out · 2 wrong usage or configuration · 3 data damaged, or locked where a
broker starts · 4 disk error · 5 another process has taken over (fenced) · 6 what was asked
about hibernates, as its spec says · 130 interrupted.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every `imago` command. The first six are also those of a broker process."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    DATA = 3
    IO = 4
    FENCED = 5
    HIBERNATED = 6
    INTERRUPTED = 130


HELP = (
    "Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 data damaged, or locked "
    "where a broker starts, 4 disk error, 5 fenced by another broker, 6 the cluster hibernates, "
    "130 interrupted."
)


class CommandError(Exception):
    """A command cannot do what was asked. One sentence, what to do about it, the exit code."""

    def __init__(self, message: str, *, cure: str = "", code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.message, self.cure, self.code = message, cure, code


class CommandUsageError(CommandError):
    """What was asked for makes no sense here: nothing was started or changed."""

    def __init__(self, message: str, *, cure: str = "") -> None:
        super().__init__(message, cure=cure, code=Exit.USAGE)
