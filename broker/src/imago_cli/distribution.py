"""The Python distribution that this program comes in: its name, its version, its extras."""

from __future__ import annotations

import os
import sys
from typing import Final

NAME: Final = "imago-mq"
INSTALL_PAGE: Final = "docs/install.md"


def version() -> str:
    """Return the version that is installed.

    The folder that an installation leaves has it in its name; to have its content read would be
    most of what `imago --version` costs.
    """
    start, end = f"{NAME.replace('-', '_')}-", ".dist-info"
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208  what `Path` loads is half of the rest
        except OSError:
            continue
        for name in names:
            if name.startswith(start) and name.endswith(end):
                return name.removeprefix(start).removesuffix(end)
    import importlib.metadata

    return importlib.metadata.version(NAME)


def install(extra: str) -> str:
    """Return the cure for packages of an extra that are missing."""
    return f"install {NAME} with its extra [{extra}] ({INSTALL_PAGE})"
