"""The store's errors, by what the caller does next.

Answer and go on: `DiskFullError`, `StoreClosedError`, `NotLeadingError`. Ask the leader again:
`ReplicaGapError`, `CorruptRecordError`, `StaleEpochError`. Do not start: `DataFolderLockedError`,
`CorruptLogError` while opening. Stop the process (exit 4): `LogIOError`.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from pathlib import Path


class StoreError(Exception):
    """Base of every error that the store raises on purpose."""


class StoreClosedError(StoreError):
    """The store is closed or has failed; nothing was appended."""


class NotLeadingError(StoreError):
    """The store follows a leader, or has not been told to lead yet; nothing was appended."""


class StaleEpochError(StoreError):
    """A newer epoch was promised, or an epoch that was never promised; nothing has changed."""

    def __init__(self, epoch: int, promised: int) -> None:
        super().__init__(f"epoch {epoch}, promised is {promised}")
        self.epoch, self.promised = epoch, promised


class ReplicaGapError(StoreError):
    """Bytes that do not continue this log, or that it does not hold; nothing has changed."""


class CorruptRecordError(StoreError):
    """Bytes from the leader that are no whole records of their place in the log.

    Whole records before them may have been taken: `log_end` says how far.
    """


class DiskFullError(StoreError):
    """Puts are refused until space is freed; nothing was appended."""

    def __init__(self, *, used_ratio: float, limit_ratio: float) -> None:
        super().__init__(f"disk {used_ratio:.1%} used, puts stop at {limit_ratio:.1%}")
        self.used_ratio, self.limit_ratio = used_ratio, limit_ratio


class ChangeTooLargeError(StoreError, WrongError):
    """A change of metadata is larger than the log takes; nothing was appended."""

    def __init__(self, kind: str, key: str, *, size: int, size_max: int) -> None:
        super().__init__(f"{kind} {key[:64]!r}: {size} bytes, at most {size_max}: make it smaller")
        self.size, self.size_max = size, size_max


class DeadQueueError(StoreError):
    """An entry is of a queue whose topic was deleted since; nothing was appended."""

    def __init__(self) -> None:
        super().__init__("the topic of a queue was deleted: take a new tail")


class RestoreUnfinishedError(StoreError):
    """The folder is being made of a backup, or that was interrupted."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder} holds a part of a backup: it was not restored to its end")
        self.folder = folder


class LaterFormatError(StoreError):
    """A later version has written a file; nothing was changed."""

    def __init__(self, path: Path, found: int | bytes, known: int) -> None:
        said = found if isinstance(found, int) else repr(found[:20])
        super().__init__(
            f"{path} has format {said}, this version of imago reads up to {known}: a later version"
            " has written it"
        )
        self.path = path


class DataFolderLockedError(StoreError):
    """Another process holds the data folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"data folder {folder} is locked by another process")
        self.folder = folder


class CorruptLogError(StoreError):
    """A file holds something else than what was written to it.

    `position` is the byte position in the file. Nothing is cut or repaired on its own.
    """

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(f"{path} at byte {position}: {reason}")
        self.path, self.position, self.reason = path, position, reason


class FileSizeError(CorruptLogError):
    """The log's files have another size than is configured: each log keeps its own."""

    def __init__(self, path: Path, size: int, configured: int) -> None:
        reason = f"its files have {size} bytes, configured are {configured}"
        super().__init__(path, 0, reason)
        self.size, self.configured = size, configured


class ViewsInvalidError(StoreError):
    """The queue files do not agree with the log: all views are to be built again."""


class UnreadableError(CorruptLogError):
    """At `place`, a log offset, is not the whole record that was looked for there.

    `offset` is the queue offset whose unit led there, 0 when it is not known.
    """

    def __init__(self, path: Path, position: int, place: int, offset: int = 0) -> None:
        super().__init__(path, position, f"no whole record of the queue at log offset {place}")
        self.place, self.offset = place, offset

    def of_unit(self, offset: int) -> None:
        """Name the queue offset whose unit led there."""
        self.offset = offset


class LogIOError(StoreError):
    """The operating system refused a write or a sync: fatal, never retried.

    After a failed sync the page cache may differ from the disk without any sign, so the only
    safe answer is to stop the process and recover from what is on disk.
    """

    def __init__(self, action: str, path: Path, cause: OSError) -> None:
        super().__init__(f"{action} {path}: {cause.strerror or cause}")
        self.action, self.path, self.cause = action, path, cause


NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
"""Errors that pass: a full disk, and no file descriptor left in the process or the system."""


class NoSpaceError(LogIOError):
    """The device, or the table of open files, has no room for a view.

    Not fatal, for a view can be made again.
    """

    @classmethod
    def of(cls, action: str, path: Path, cause: OSError) -> LogIOError:
        """Return the error for a refused call, which is this one only where room is missing."""
        return (cls if cause.errno in NO_ROOM else LogIOError)(action, path, cause)
