"""The Python distribution that this program comes in: its name, its version, its extras."""

from __future__ import annotations

import importlib.metadata
from typing import Final

NAME: Final = "imago-mq"
INSTALL_PAGE: Final = "docs/install.md"


def version() -> str:
    """Return the version that is installed."""
    return importlib.metadata.version(NAME)


def install(extra: str) -> str:
    """Return the cure for packages of an extra that are missing."""
    return f"install {NAME} with its extra [{extra}] ({INSTALL_PAGE})"
