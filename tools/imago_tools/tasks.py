"""The table of everyday tasks on docs/tasks.md, out of what tests/cli/tasks runs."""

from __future__ import annotations

import tomllib
from itertools import groupby
from pathlib import Path
from typing import Final

SOURCE: Final = "tests/cli/tasks/tasks.toml"
ROOT: Final = Path(__file__).parents[2]


def table() -> str:
    """Return one table a subject: what somebody wants, and the command for it."""
    tasks = tomllib.loads((ROOT / SOURCE).read_text(encoding="utf-8"))["task"]
    parts = []
    for about, members in groupby(tasks, key=lambda task: task["about"]):
        rows = [f"| {task['say']} | `{_cell(task['type'])}` |" for task in members]
        parts.append("\n".join([f"## {about}", "", "| task | command |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _cell(command: str) -> str:
    return str(command).replace("|", "\\|")
