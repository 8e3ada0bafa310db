"""How a command ends: the exit codes, and the error that carries one.

What a line asks for is wrong by itself, whatever the cluster holds, or a file, a variable or a
folder of this machine that it names is: 2. Anything that depends on the cluster is 1: what is named
is not there or is there already, is refused, is answered in part, or nobody answers.
"""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import Final


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


MEANINGS: Final = MappingProxyType(
    {
        Exit.DONE: ("done", "All of it."),
        Exit.FAILED: (
            "failed",
            "It depends on the cluster, and the same line may work out later or elsewhere: what it"
            " names is not there, or is there already; it is refused, for want of a right or as"
            " things stand; a shard is away, so that the answer is a part (`--partial` accepts it"
            " with 0); nobody answers. Also what looks for faults and finds one.",
        ),
        Exit.USAGE: (
            "wrong usage or configuration",
            "The line is wrong whatever the cluster holds, or a file, folder, variable, profile or"
            " port of this machine that it goes by is. Nothing was asked of a cluster, or changed.",
        ),
        Exit.DATA: (
            "data damaged, or locked where a broker starts",
            "Of `imago broker`, `log check`, `up`, and of backups that are not whole.",
        ),
        Exit.IO: ("disk error", "The disk failed a read, a write or a sync."),
        Exit.FENCED: (
            "fenced by another broker",
            "Of `imago broker`, `operator` and runs of pipelines: another one has taken over.",
        ),
        Exit.HIBERNATED: (
            "the cluster hibernates",
            "Of `kubectl imago`: nobody is served, as the cluster's spec says.",
        ),
        Exit.INTERRUPTED: ("interrupted", "By Ctrl-C."),
    }
)
"""In a few words, and in full."""

HELP = f"Exit codes: {', '.join(f'{code} {short}' for code, (short, _) in MEANINGS.items())}."


def table() -> str:
    """Return the codes as a table for a page."""
    rows = [f"| {code} | {short} | {full} |" for code, (short, full) in MEANINGS.items()]
    return "\n".join(["| exit code | means | when |", "|---|---|---|", *rows]) + "\n"


class CommandError(Exception):
    """A command cannot do what was asked. One sentence, what to do about it, the exit code."""

    def __init__(self, message: str, *, cure: str = "", code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.message, self.cure, self.code = message, cure, code


class CommandUsageError(CommandError):
    """What was asked for is wrong whatever a cluster holds: nothing was started or changed."""

    def __init__(self, message: str, *, cure: str = "") -> None:
        super().__init__(message, cure=cure, code=Exit.USAGE)
