"""View: one partition in MetaQ's own files, byte for byte.

`<topic>-<partition>/<20-digit start position>.meta`, each a plain sequence of messages in MetaQ's
stored form. A file is closed, and the next one made, once it is at least `size_max` large after an
append; a message never spans two files. A small file `origin` beside them, which MetaQ ignores,
says which incarnation of the topic they belong to and from where on they must be checked.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from imago_log.disk.files import (
    FilePool,
    Unsynced,
    fatal,
    offset_name,
    offsets_of,
    read_whole,
    replace_whole,
)
from imago_log.errors import NoSpaceError
from imago_log.results import FileSlice
from imago_log.views.metaq.metaq_archive import set_aside
from imago_wire.hot import metaq_whole

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log.disk.vfs import OpenFile
    from imago_log.metadata.changes import Topic

SUFFIX = ".meta"
ORIGIN = "origin"
VERIFIED_MAX = 64
"""Parts that are known to be whole: readers at so many places need not look twice."""


class _Verified:
    """Positions whose messages are known to be whole: written, or checked since."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        """In order."""

    def has(self, start: int, end: int) -> bool:
        """Whether all of a part is known to be whole."""
        at = bisect_right(self._ranges, (start, 1 << 63)) - 1
        return at >= 0 and end <= self._ranges[at][1]

    def add(self, start: int, end: int) -> None:
        """Join a part with those that touch it; the oldest of too many is forgotten."""
        apart: list[tuple[int, int]] = []
        for first, last in self._ranges:
            if last < start or end < first:
                apart.append((first, last))
            else:
                start, end = min(start, first), max(end, last)
        self._ranges = sorted([*apart[-VERIFIED_MAX:], (start, end)])

    def clear(self) -> None:
        self._ranges.clear()


class MetaqSegments:
    """The files of one partition: positions `start` … `end`, without holes."""

    def __init__(self, pool: FilePool, folder: Path, size_max: int, birth: int) -> None:
        self._pool, self.folder, self.size_max, self._birth = pool, folder, size_max, birth
        self._starts: list[int] = []
        self.end = 0
        self.min_position = 0
        """Everything below has expired for MetaQ's readers."""
        self.synced = 0
        """Everything below is on the device."""
        self._origin_lock = threading.Lock()
        self._names: dict[int, str] = {}
        """Names by start, as the pool has them: made for each file once."""
        self._verified = _Verified()

    @property
    def start(self) -> int:
        """The first position that a file holds."""
        return self._starts[0] if self._starts else self.end

    @property
    def exists(self) -> bool:
        """Whether there are files at all."""
        return bool(self._starts)

    @property
    def file_start(self) -> int:
        """The start position of the file that is written."""
        return self._starts[-1]

    def starts(self) -> list[int]:
        """Return the start positions of the files."""
        return list(self._starts)

    # Opening

    def load(self, *, verify: bool) -> None:
        """Find the files; with `verify` check what may be torn and cut it off."""
        with fatal("list", self.folder):
            names = self._pool.vfs.names(self.folder)
            origin = read_whole(self._pool.vfs, self.folder / ORIGIN)
        self._starts = offsets_of(names, SUFFIX)
        found = _decode_origin(origin or b"{}", self._birth)
        if found is None:
            self.discard()
            return
        self.min_position, self.synced = found
        if self._starts:
            self.end = self._starts[-1] + self._size(self._starts[-1])
        for at, start in enumerate(self._starts[:-1]):
            if start + self._size(start) != self._starts[at + 1]:
                self._drop_from(at + 1)
                break
        if verify and self._starts:
            self._verify()
        if self._starts and self.end - self._starts[-1] >= self.size_max:
            self._new_file()

    def _verify(self) -> None:
        """Check the messages from the last synced file on; cut at the first that is not whole."""
        for start in list(self._starts):
            size = self._size(start)
            if start + size < self.synced and start != self._starts[-1]:
                continue
            good = metaq_whole(self._pool.vfs.pread(self._file(start).fd, size, 0))
            if good < size:
                self.truncate(start + good)
                return

    def discard(self) -> None:
        """Remove everything."""
        self._drop_from(0)
        self._verified.clear()
        self.end = self.min_position = self.synced = 0

    def _drop_from(self, at: int) -> None:
        while len(self._starts) > at:
            self._unlink(self._starts.pop())
        if self._starts:
            self.end = self._starts[-1] + self._size(self._starts[-1])

    def begin(self, position: int) -> None:
        """Begin at a position, with nothing before it; readers are sent where they were."""
        minimum = self.min_position
        self.discard()
        self.min_position = minimum
        with fatal("create", self.folder):
            self._pool.vfs.make_folder(self.folder)
        self.end = self.synced = position
        # Of a partition that never had files nothing stale can come back, and a lost origin
        # makes it begin again: thousands of partitions need not wait for the device one by one.
        self._write_origin(durable=self._pool.vfs.exists(self.folder / ORIGIN))
        self._new_file()

    # Writing

    def grew(self, size: int) -> None:
        """Take over whole messages that were written behind the end.

        Where that filled the file, the next one has been made too.
        """
        self._verified.add(self.end, self.end + size)
        self.end += size
        if self.end - self._starts[-1] >= self.size_max:
            self._starts.append(self.end)

    def _new_file(self) -> None:
        with fatal("create", self.folder):
            self._pool.get(self._name(self.end), create=True)
        self._starts.append(self.end)

    def mark_synced(self, position: int) -> None:
        """Say that the files are on the device up to a position. In any thread."""
        if self._starts:
            self.synced = min(position, self.end)
            self._write_origin()

    def _write_origin(self, *, durable: bool = True) -> None:
        content = {"birth": self._birth, "min": self.min_position, "synced": self.synced}
        with self._origin_lock:
            replace_whole(
                self._pool.vfs, self.folder / ORIGIN, orjson.dumps(content), durable=durable
            )

    def unsynced(self) -> list[Unsynced]:
        """Return the files to sync."""
        ends = [*self._starts[1:], self.end]
        return [
            (self.path(start), start >= self.synced)
            for start, end in zip(self._starts, ends, strict=True)
            if end >= self.synced
        ]

    # Reading

    def slice(self, position: int, size: int) -> FileSlice | None:
        """Return up to `size` bytes of one file from a position on; None: not in the files."""
        if not self._starts or not self.start <= position < self.end:
            return None
        at = bisect_right(self._starts, position) - 1
        end = self._starts[at + 1] if at + 1 < len(self._starts) else self.end
        try:
            file = self._file(self._starts[at])
        except OSError as error:
            raise NoSpaceError.of("open", self.folder, error) from error
        return FileSlice(file, position - self._starts[at], min(size, end - position))

    def verify(self, position: int, size: int) -> bool:
        """Whether whole messages of one file are as their checksums say; checked only once."""
        end = position + size
        if self._verified.has(position, end):
            return True
        found = self.slice(position, size)
        if found is None or metaq_whole(found.read()) != size:
            return False
        self._verified.add(position, end)
        return True

    # Cutting

    def truncate(self, end: int) -> None:
        """Cut off everything from a position on."""
        if end >= self.end:
            return
        self._verified.clear()
        if end < self.start:
            self.discard()
            return
        while len(self._starts) > 1 and self._starts[-1] > end:
            self._unlink(self._starts.pop())
        start = self._starts[-1]
        with fatal("truncate", self.folder):
            self._pool.vfs.truncate(self._file(start).fd, end - start)
        self.end = end
        self.synced = min(self.synced, end)

    def drop_oldest(self, *, archive: bool = False) -> Path | None:
        """Remove the oldest file; readers of its positions are sent to the next one.

        With `archive` it gets another name: returns where it is.
        """
        assert len(self._starts) > 1, "the file that is written stays"
        self.min_position = max(self.min_position, self._starts[1])
        self._write_origin()  # first: a crash must not bring the minimum back down
        start = self._starts.pop(0)
        if not archive:
            self._unlink(start)
            return None
        self._pool.forget(self._names.pop(start, str(self.path(start))))
        return set_aside(self._pool.vfs, self.path(start))

    def begin_at(self, position: int) -> None:
        """Send readers of everything before a position there."""
        if position > self.min_position:
            self.min_position = position
            if self.exists:
                self._write_origin()

    def _size(self, start: int) -> int:
        with fatal("open", self.folder):
            return self._pool.vfs.size(self._file(start).fd)

    def _file(self, start: int) -> OpenFile:
        return self._pool.get(self._name(start))

    def _name(self, start: int) -> str:
        name = self._names.get(start)
        if name is None:
            name = self._names[start] = f"{self.folder}/{offset_name(start)}{SUFFIX}"
        return name

    def path(self, start: int) -> Path:
        """Return the path of the file that starts at a position."""
        return self.folder / (offset_name(start) + SUFFIX)

    def _unlink(self, start: int) -> None:
        path = self.path(start)
        self._pool.forget(self._name(start))
        del self._names[start]
        with fatal("remove", path):
            self._pool.vfs.unlink(path)


@dataclass(frozen=True, slots=True)
class MetaqFolder:
    """Where the files of all partitions are, and how large one gets."""

    pool: FilePool
    path: Path
    file_bytes_max: int

    def segments(self, topic: Topic, queue_id: int) -> MetaqSegments:
        """Return the files of a partition; `load` finds them."""
        folder = self.path / f"{topic.name}-{queue_id}"
        return MetaqSegments(self.pool, folder, self.file_bytes_max, topic.birth)


def _decode_origin(data: bytes, birth: int) -> tuple[int, int] | None:
    """Return minimum and synced position; None: damaged, or of an earlier topic of the name."""
    try:
        found = orjson.loads(data)
        ends = int(found["min"]), int(found["synced"])
        return ends if found["birth"] == birth else None
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
