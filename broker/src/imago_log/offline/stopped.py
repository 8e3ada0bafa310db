"""A stopped store, opened for reading only: its lock, its log, its checkpoint.

Nothing is made, changed or removed. The lock is shared: several readers go together, a broker does
not start meanwhile.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from imago_log.commitlog.checkpoint import FILE_SIZE, SLOT_SIZE, Checkpoint, decode_slot
from imago_log.disk.files import FilePool, fatal, offset_name, offsets_of, read_whole
from imago_log.disk.folder import DataFolder, LastStop
from imago_log.disk.vfs import OpenFile, ReadOnlyVfs
from imago_log.errors import DataFolderLockedError, LogIOError, StoreError
from imago_log.lifecycle.formats import refuse_later

if TYPE_CHECKING:
    from pathlib import Path

FILES_OPEN_MAX = 128


class NotADataFolderError(StoreError):
    """There is no store in this folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder} is not the data folder of a broker: it has no commitlog")
        self.folder = folder


class StoppedLog:
    """The files of a log that nobody writes. Offsets are log offsets."""

    def __init__(self, folder: Path, pool: FilePool) -> None:
        self.folder, self._pool = folder, pool
        self.sizes = {
            base: _size(pool, folder / offset_name(base))
            for base in offsets_of(pool.vfs.names(folder))
        }
        """By first offset."""
        self.segment_size = _segment_size(self.sizes)
        """What the files themselves tell; 1 where there is none."""

    def bases(self, start: int = 0) -> list[int]:
        """Return first offsets that files may have, from the file that holds `start` on."""
        size = self.segment_size
        return [base for base in sorted(self.sizes) if base % size == 0 and base + size > start]

    def path(self, offset: int) -> Path:
        """Return the path of the file that holds an offset."""
        return self.folder / offset_name(offset - offset % self.segment_size)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes within one file, fewer where it ends; b"" where there is none."""
        base = offset - offset % self.segment_size
        if base not in self.sizes:
            return b""
        return read_part(self._pool, self.path(offset), offset - base, size)


def _segment_size(sizes: dict[int, int]) -> int:
    """Return the size that most files, and distances between their names, speak for."""
    votes = Counter(size for size in sizes.values() if size)
    votes.update(after - before for before, after in pairwise(sorted(sizes)))
    return max(votes, key=lambda size: (votes[size], size), default=1)


def _size(pool: FilePool, path: Path) -> int:
    with fatal("open", path):
        return pool.vfs.size(pool.get(str(path)).fd)


def file_size(pool: FilePool, path: Path) -> int:
    """Return a file's size. LogIOError when it cannot be opened."""
    return _size(pool, path)


def read_part(pool: FilePool, path: Path, at: int, size: int) -> bytes:
    """Return bytes of one file, fewer where it ends. LogIOError when it cannot be read."""
    with fatal("read", path):
        return pool.vfs.pread(pool.get(str(path)).fd, size, at)


class StoppedStore:
    """One data folder under a shared lock, until `close`.

    NotADataFolderError: something else. DataFolderLockedError: a broker runs on it.
    LaterFormatError: a later version wrote it. LogIOError: the operating system refuses.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.vfs = root, ReadOnlyVfs()
        self.folder = DataFolder(root, self.vfs)
        if not self.vfs.is_folder(self.folder.log):
            raise NotADataFolderError(root)
        self._lock = self._take_lock()
        refuse_later(self.vfs, self.folder)
        self.pool = FilePool(self.vfs, FILES_OPEN_MAX)
        self.last_stop: LastStop = self.folder.last_stop()
        self.checkpoint_data = self.whole(self.folder.checkpoint)
        self.checkpoint = newest_checkpoint(self.checkpoint_data or b"")
        self.log = StoppedLog(self.folder.log, self.pool)

    @property
    def clean(self) -> bool:
        """Whether the last broker stopped in order."""
        return self.last_stop is LastStop.CLEAN

    @property
    def keeps_views(self) -> bool:
        """Whether the next start does not build everything again from the log alone."""
        return self.vfs.exists(self.folder.views_mark)

    def _take_lock(self) -> OpenFile | None:
        path = self.root / "lock"
        if not self.vfs.exists(path):
            return None  # a copy of a data folder: no broker can run on it yet
        with fatal("lock", path):
            fd = self.vfs.lock(path)
        if fd is None:
            raise DataFolderLockedError(self.root)
        return OpenFile(self.vfs, path, fd)

    def whole(self, path: Path) -> bytes | None:
        """Return a small file's content, None when there is none."""
        try:
            return read_whole(self.vfs, path)
        except OSError as error:
            raise LogIOError("read", path, error) from error

    def close(self) -> None:
        """Let go of all files and of the lock."""
        self.pool.close()
        self._lock = None


def newest_checkpoint(data: bytes) -> Checkpoint | None:
    """Return the value of the newest whole slot, as a start takes it."""
    slots = [decode_slot(data[at : at + SLOT_SIZE]) for at in range(0, FILE_SIZE, SLOT_SIZE)]
    whole = [slot for slot in slots if slot is not None]
    return max(whole, key=lambda slot: slot[0])[1] if whole else None
