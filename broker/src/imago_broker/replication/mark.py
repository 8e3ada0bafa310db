"""A note on disk that the log may lack records which were acknowledged.

Made when the machine has lost power under a running broker, or when the log was begun anew. It
outlives restarts; only a leader that has put this member into the in-sync set takes it back.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FILE = "unclean"


class UncleanMark:
    """The file `unclean` of a data folder; its presence is what it says."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / FILE

    @property
    def standing(self) -> bool:
        """Whether the note is there."""
        return self._path.exists()

    def set(self, unclean: bool) -> None:
        """Make or remove the note, durably. OSError: stop the process."""
        if unclean == self.standing:
            return
        if unclean:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
            os.close(descriptor)
        else:
            self._path.unlink()
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
