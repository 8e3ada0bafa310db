"""What can be wrong with a backup, for people."""

from __future__ import annotations


class BackupError(Exception):
    """It is not done, and why; `cure`: what helps."""

    def __init__(self, what: str, cure: str) -> None:
        super().__init__(what)
        self.cure = cure


class BackupDamagedError(BackupError):
    """What the bucket holds is not what was written to it."""


class BackupUnknownError(BackupError):
    """There is no backup of that name, or it is not complete."""


class RestoreRefusedError(BackupError):
    """The folder or the time that was asked for does not allow it. Nothing was changed."""
