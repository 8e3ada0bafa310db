"""The table of everyday tasks on docs/tasks.md, out of what tests/cli/tasks runs."""

from __future__ import annotations

import tomllib
from itertools import groupby
from pathlib import Path
from typing import Any, Final

SOURCE: Final = "tests/cli/tasks/tasks.toml"
ROOT: Final = Path(__file__).parents[2]


HEAD: Final = (
    "| task | command | CPU s | rpk | kcat | kafka-ui | RocketMQ's dashboard |",
    "|---|---|---|---|---|---|---|",
)


def table() -> str:
    """Return one table a subject: what somebody wants, its command and cost, what others have."""
    tasks = tomllib.loads((ROOT / SOURCE).read_text(encoding="utf-8"))["task"]
    parts = []
    for about, members in groupby(tasks, key=lambda task: task["about"]):
        rows = [_row(task) for task in members]
        parts.append("\n".join([f"## {about}", "", *HEAD, *rows]))
    return "\n\n".join(parts) + "\n"


def _row(task: dict[str, Any]) -> str:
    command = f"`{_cell(task['type'])}`"
    cells = [task["say"], command, f"{task['seconds']:.2f}", *map(_cell, task["peers"])]
    return f"| {' | '.join(cells)} |"


def _cell(command: str) -> str:
    return str(command).replace("|", "\\|")
