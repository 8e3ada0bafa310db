"""What tests must leave as they found it, since other tests of the same process come after them."""

from __future__ import annotations

import os
from pathlib import Path

OURS = "IMAGO_"
"""How the names of variables begin that our programs go by."""


def process_state() -> dict[str, str]:
    """Return variables, the working directory and the mask of new files, by name."""
    state = {name: value for name, value in os.environ.items() if name.startswith(OURS)}
    mask = os.umask(0o077)
    os.umask(mask)
    return state | {"working directory": str(Path.cwd()), "umask": f"{mask:03o}"}


def left_behind(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return a line for each difference."""
    return [
        f"{name}: {before.get(name, 'absent')} -> {after.get(name, 'absent')}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
