"""Tracebacks in what processes of tests print: each is a case that nobody thought of.

A thread that dies of one is missed by nothing else until what it watched happens.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PRINTED: Final = frozenset({".log", ".err"})
"""How files end that hold what a process has printed."""
BEGIN: Final = "Traceback (most recent call last)"
LINES_SHOWN: Final = 40
LATE_PYTHON: Final = "pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET]"
"""How the trace ends of a Python that Spark has started and given up: Spark starts the next one."""


def traces(folders: Iterable[Path]) -> list[str]:
    """Return the first traceback of each printed file below the folders, with the file's name."""
    found = []
    for path in _printed(folders):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # gone meanwhile
        found += [f"{path} has\n{trace}" for trace in in_text(text)[:1]]
    return found


def in_text(text: str) -> list[str]:
    """Return tracebacks, at most LINES_SHOWN lines of each, without those of a late Python."""
    found = []
    for part in text.split(BEGIN)[1:]:
        lines = part.splitlines()
        error = next((line for line in lines[1:] if line and not line[0].isspace()), "")
        if not error.startswith(LATE_PYTHON):
            found.append("\n".join((BEGIN, *lines[1:LINES_SHOWN])))
    return found


def _printed(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for name, _, files in os.walk(folder):
            yield from (Path(name, each) for each in files if Path(each).suffix in PRINTED)
