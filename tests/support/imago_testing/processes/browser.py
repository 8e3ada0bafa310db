"""Debian's chromium, and how it is started by tests."""

from __future__ import annotations

import shutil

SILENT = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,1000",
]


def browser() -> str:
    """Return the path of the browser."""
    path = shutil.which("chromium")
    assert path, "chromium is missing: apt-get install chromium (`make system` does it as root)"
    return path
