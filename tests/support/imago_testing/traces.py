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


def traces(folders: Iterable[Path]) -> list[str]:
    """Return the first traceback of each printed file below the folders, with the file's name."""
    found = []
    for path in _printed(folders):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # gone meanwhile
        at = text.find(BEGIN)
        if at >= 0:
            lines = text[at:].splitlines()[:LINES_SHOWN]
            found.append("\n".join((f"{path} has", *lines)))
    return found


def _printed(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for name, _, files in os.walk(folder):
            yield from (Path(name, each) for each in files if Path(each).suffix in PRINTED)
