"""Results of reads and housekeeping, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log.disk.pressure import DiskLevel
    from imago_log.disk.vfs import OpenFile


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRange:
    """Log offsets `start` … `end`, within one file of the log, that are out of service."""

    start: int
    end: int
    since_ms: int
    """When it was found, epoch milliseconds."""
    reason: str
    path: Path
    position: int
    """Where it begins in the file, in bytes."""

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self.end - self.start

    def __str__(self) -> str:
        return (
            f"{self.path} at byte {self.position}: {self.reason}; log offsets {self.start} to "
            f"{self.end} are out of service"
        )


class ReadStatus(Enum):
    """RocketMQ's getMessage statuses, by the names that its clients see as remarks."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    ON_ITS_WAY = "ON_ITS_WAY"
    """Not RocketMQ's: it is in the bucket and being fetched, the reader comes again."""
    REMOTE_AWAY = "REMOTE_AWAY"
    """Not RocketMQ's: it is in the bucket, which does not answer now."""


@dataclass(slots=True)
class ReadResult:
    """Whole records as stored, joined, and where the reader goes on."""

    status: ReadStatus
    next_offset: int
    min_offset: int
    max_offset: int
    count: int = 0
    body: bytes = b""
    offsets: tuple[int, ...] = ()
    """Of the messages of a light queue, whose records name the offset in their own queue."""


class MetaqStatus(Enum):
    """Outcome of a read by MetaQ position."""

    FOUND = "FOUND"
    TOO_SMALL = "TOO_SMALL"
    """Below the first position that is still stored: MetaQ answers 301 with the minimum."""
    AT_END = "AT_END"
    """Exactly at the visible end: nothing new yet."""
    BEYOND_END = "BEYOND_END"
    REMOTE_AWAY = "REMOTE_AWAY"
    """It is in the bucket, which does not answer now."""
    LOST = "LOST"
    """What is there lies in a damaged part of the log: `position` is where the reader goes on."""
    NO_QUEUE = "NO_QUEUE"
    """Unknown topic, a topic without MetaQ positions, or a partition never written."""


class FileSlice(NamedTuple):
    """Bytes `offset … offset + size` of an open file, for sendfile or pread.

    The file stays open as long as a slice refers to it, whatever happens to its name.
    """

    file: OpenFile
    offset: int
    size: int

    def fileno(self) -> int:
        return self.file.fd

    def read(self) -> bytes:
        """Return the bytes themselves."""
        return self.file.vfs.pread(self.file.fd, self.size, self.offset)


class MetaqRead(NamedTuple):
    """Messages in MetaQ's stored form, whole ones unless the first alone exceeds the limit.

    `position` is where `data` starts: the asked position, or the next message border above it.
    """

    status: MetaqStatus
    position: int
    min_position: int
    max_position: int
    data: bytes | FileSlice = b""
    behind: bool = False
    """Read from the log's files: the reader is too far behind for what is kept in memory, and
    MetaQ's own files do not hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreHealth:
    """The health report of a `tick`; all offsets are physical log offsets."""

    writable: bool
    disk_level: DiskLevel
    disk_used_ratio: float
    disk_total_bytes: int
    disk_used_bytes: int
    log_start: int
    log_end: int
    durable_end: int
    damaged: tuple[DamagedRange, ...] = ()
    """Parts of the log out of service, in order."""
