"""What a check says: findings, and where they are gathered."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PER_FILE_MAX = 50
"""Findings reported per file; of a file that is wrong throughout one more says so."""

RESTORE = (
    "start the broker: where its shard has other members, they send what is damaged; else restore "
    "the file from a backup. The other records stay readable"
)
REBUILD = (
    "remove config/views in the data folder: the next start builds queues, positions and key "
    "index again from the log"
)
START = "none needed: the next start of the broker puts it right"


class Severity(Enum):
    """How much a finding matters."""

    ERROR = "error"
    """Bytes are not what was written, or are missing."""
    WARNING = "warning"
    """The trace of a crash, or of work that was interrupted; the next start deals with it."""
    NOTE = "note"
    """Worth knowing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    severity: Severity
    file: Path
    position: int | None
    """Byte in the file; None where it is about the file as a whole."""
    what: str
    cure: str


class Findings:
    """Gathers findings until they are handed out, a bounded number of each file."""

    def __init__(self) -> None:
        self._waiting: list[Finding] = []
        self._counts: dict[Path, int] = {}

    def add(
        self, severity: Severity, file: Path, position: int | None, what: str, cure: str
    ) -> None:
        """Take a finding."""
        count = self._counts[file] = self._counts.get(file, 0) + 1
        if count == PER_FILE_MAX:
            what, position = f"more is wrong in this file than these {count - 1} findings", None
        if count <= PER_FILE_MAX:
            self._waiting.append(Finding(severity, file, position, what, cure))

    def error(self, file: Path, position: int | None, what: str, cure: str) -> None:
        """Take an error."""
        self.add(Severity.ERROR, file, position, what, cure)

    def warn(self, file: Path, position: int | None, what: str, cure: str = START) -> None:
        """Take a warning."""
        self.add(Severity.WARNING, file, position, what, cure)

    def note(self, file: Path, what: str, cure: str = START) -> None:
        """Take a note on a whole file."""
        self.add(Severity.NOTE, file, None, what, cure)

    def take(self) -> list[Finding]:
        """Return the findings gathered so far."""
        found, self._waiting = self._waiting, []
        return found
