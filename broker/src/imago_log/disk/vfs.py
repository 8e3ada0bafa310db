"""The file system as the store uses it: one small interface, so that tests can break it.

Only `OsVfs` touches the operating system. All file errors pass through as OSError; the layers
above decide which of them are fatal.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
FILE_MODE, FOLDER_MODE = 0o600, 0o700
"""Mode of everything in a data folder: only the broker reads messages."""
OTHERS = 0o077
"""What others may do; as a umask: what they may not do with new files."""


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes of the file system that holds a folder, as unprivileged writers see them."""

    total: int
    used: int

    @property
    def ratio(self) -> float:
        return self.used / self.total if self.total else 0.0


def disk_usage(path: Path) -> DiskUsage:
    """Return how full the file system of a folder is; OSError when that cannot be asked."""
    found = os.statvfs(path)
    used = (found.f_blocks - found.f_bfree) * found.f_frsize
    return DiskUsage(total=used + found.f_bavail * found.f_frsize, used=used)


def make_private(folder: Path | str) -> None:
    """Revoke other users' rights to a folder and everything in it.

    The folder itself comes last: once it is private, its content is too. What belongs to
    others stays as it is, such as the root of a volume in Kubernetes. Links are not followed.
    """
    with contextlib.suppress(FileNotFoundError, PermissionError):
        if not os.stat(folder).st_mode & OTHERS:  # noqa: PTH116  there may be many
            return
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    make_private(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    _make_private(entry.path, FILE_MODE)
        _make_private(folder, FOLDER_MODE)


def _make_private(path: Path | str, mode: int) -> None:
    with contextlib.suppress(FileNotFoundError, PermissionError):
        os.chmod(path, mode)  # noqa: PTH101


class OpenFile:
    """A file descriptor that closes itself when the last user drops it."""

    __slots__ = ("fd", "path", "vfs")

    def __init__(self, vfs: Vfs, path: Path, fd: int) -> None:
        self.vfs, self.path, self.fd = vfs, path, fd

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.vfs.close(self.fd)


class Vfs(Protocol):
    """Blocking file operations; `fd` is a number of the implementation's own."""

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open for reading and writing; with `create` make the file when it is absent."""

    def close(self, fd: int) -> None: ...
    def pread(self, fd: int, size: int, offset: int) -> bytes: ...
    def pread_into(self, fd: int, memory: memoryview, offset: int) -> int:
        """Read into memory as much as it holds; return how many bytes that is."""

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> int: ...
    def pwritev(self, fd: int, buffers: Sequence[bytes], offset: int) -> int: ...
    def truncate(self, fd: int, size: int) -> None: ...
    def allocate(self, fd: int, size: int) -> None:
        """Reserve disk space for bytes 0 … size; what was not written reads as zeros."""

    def size(self, fd: int) -> int: ...
    def start_sync(self, fd: int, offset: int = 0, size: int = 0) -> None:
        """Start the writeback that `sync` would wait for, of all or so much. Promises nothing."""

    def sync(self, fd: int) -> None:
        """fdatasync: data and size are on the device afterwards."""

    def sync_folder(self, path: Path) -> None:
        """Names created, renamed and removed in the folder are on the device afterwards."""

    def names(self, path: Path) -> list[str]:
        """Names in a folder, sorted; an absent folder has none."""

    def is_folder(self, path: Path) -> bool: ...
    def exists(self, path: Path) -> bool: ...
    def make_folder(self, path: Path) -> None:
        """Make a folder and its parents; an existing one is fine."""

    def rename(self, source: Path, target: Path) -> None: ...
    def unlink(self, path: Path) -> None: ...
    def remove_folder(self, path: Path) -> None:
        """Remove a folder with everything in it."""

    def disk_usage(self, path: Path) -> DiskUsage: ...
    def boot_id(self) -> str:
        """Changes when the page cache may have been lost."""

    def make_private(self, path: Path) -> None:
        """Let only the owner reach a folder and its content."""

    def lock(self, path: Path) -> int | None:
        """Take the exclusive lock of a file until `close`; None when it is taken."""


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return Linux' sync_file_range, which Python's `os` lacks; None where there is none."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415  by the thread that syncs: no start waits for it

    function = ctypes.CDLL(None).sync_file_range
    function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return cast("Callable[[int, int, int, int], int]", function)


SYNC_FILE_RANGE_WRITE = 2
"""Start the writeback and do not wait."""


class OsVfs:
    """The real file system."""

    def open(self, path: Path, *, create: bool = False) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return os.open(path, flags, FILE_MODE)

    close = staticmethod(os.close)
    pread = staticmethod(os.pread)

    def pread_into(self, fd: int, memory: memoryview, offset: int) -> int:
        return os.preadv(fd, [memory], offset)

    pwrite = staticmethod(os.pwrite)
    pwritev = staticmethod(os.pwritev)
    truncate = staticmethod(os.ftruncate)
    sync = staticmethod(os.fdatasync)

    def start_sync(self, fd: int, offset: int = 0, size: int = 0) -> None:
        function = _sync_file_range()
        if function is not None:
            # Whether it did or not: `sync` follows.
            function(fd, offset, size, SYNC_FILE_RANGE_WRITE)

    def allocate(self, fd: int, size: int) -> None:
        os.posix_fallocate(fd, 0, size)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def sync_folder(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def names(self, path: Path) -> list[str]:
        try:
            return sorted(os.listdir(path))  # noqa: PTH208 - names are wanted, not paths
        except FileNotFoundError:
            return []

    def is_folder(self, path: Path) -> bool:
        return path.is_dir()

    def exists(self, path: Path) -> bool:
        return path.exists()

    def make_folder(self, path: Path) -> None:
        try:
            os.mkdir(path, FOLDER_MODE)  # noqa: PTH102  half the time of the next line, which is seldom needed
        except FileExistsError:
            return
        except FileNotFoundError:
            self.make_folder(path.parent)
            self.make_folder(path)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def disk_usage(self, path: Path) -> DiskUsage:
        return disk_usage(path)

    def make_private(self, path: Path) -> None:
        make_private(path)

    def boot_id(self) -> str:
        return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""

    def lock(self, path: Path) -> int | None:
        fd = self.open(path, create=True)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd


class ReadOnlyVfs(OsVfs):
    """The real file system, where nothing can be changed."""

    def open(self, path: Path, *, create: bool = False) -> int:
        if create:
            raise PermissionError(f"{path}: opened for reading only")
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def lock(self, path: Path) -> int | None:
        """Share the lock with other readers; None when a broker has it."""
        fd = self.open(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd

    def unlink(self, path: Path) -> None:
        raise PermissionError(f"{path}: opened for reading only")

    def rename(self, source: Path, target: Path) -> None:
        raise PermissionError(f"{source} to {target}: opened for reading only")

    def make_folder(self, path: Path) -> None:
        raise PermissionError(f"{path}: opened for reading only")

    def remove_folder(self, path: Path) -> None:
        raise PermissionError(f"{path}: opened for reading only")
