"""Folders of fixtures that outlive a test: gone once their fixture has ended and nothing failed.

Pytest keeps what `tmp_path_factory` makes until the whole run has ended. Brokers take a segment
of their log ahead, 256 MiB, so that a run of all tests held 10 GB at its end.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable
    from pathlib import Path


class FixtureFolders:
    """Which folders belong to which fixture, and which of them nobody needs any more."""

    def __init__(self) -> None:
        self._made: dict[Hashable, list[Path]] = {}
        self._ended: list[Path] = []

    def note(self, fixture: Hashable, made: Iterable[Path]) -> None:
        """Hand folders to the fixture that has made them."""
        self._made.setdefault(fixture, []).extend(made)

    def end(self, fixture: Hashable) -> None:
        """Say that a fixture has ended; it may be told again."""
        self._ended += self._made.pop(fixture, [])

    def remove(self, *, failed: bool) -> None:
        """Remove the folders of fixtures that have ended; after a failure they are kept."""
        ended, self._ended = self._ended, []
        for folder in () if failed else ended:
            shutil.rmtree(folder, ignore_errors=True)
