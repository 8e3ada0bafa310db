"""A file system in memory that can lose power, tear writes, fail calls and run full.

It keeps for every file what is on the device and what was written since the last sync, so that a
test can ask at any call: what would a crash right now leave behind?
"""

from __future__ import annotations

import errno
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_log.disk.vfs import DiskUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from random import Random

SECTOR = 512
"""What a device writes whole or not at all."""

Write = tuple[int, bytes]
"""Place and bytes; a size change is a write of nothing: see `_Inode`."""


@dataclass
class _Inode:
    """One file: `content` is what readers see, `device` what a power loss surely leaves."""

    content: bytearray = field(default_factory=bytearray)
    device: bytes = b""
    pending: list[Write | int] = field(default_factory=list)
    """Writes, and sizes (int) set by truncate and allocate, since the last sync."""
    sectors: set[int] = field(default_factory=set)
    """What has room on the device; the rest is holes."""

    def __post_init__(self) -> None:
        if self.content and not self.sectors:
            self.sectors.update(_sectors(0, len(self.content)))

    def copy(self) -> _Inode:
        return _Inode(bytearray(self.content), self.device, list(self.pending), set(self.sectors))

    def write(self, at: int, data: bytes) -> None:
        _apply_write(self.content, at, data)
        self.sectors.update(_sectors(at, at + len(data)))
        self.pending.append((at, data))

    def resize(self, size: int) -> None:
        if size < len(self.content):
            self.sectors.difference_update(_sectors(size + SECTOR - 1, len(self.content)))
        _apply_size(self.content, size)
        self.pending.append(size)

    def missing(self, start: int, end: int) -> int:
        """Return how much room a part of the file has yet to take."""
        return SECTOR * len(set(_sectors(start, end)) - self.sectors)

    def sync(self) -> None:
        self.device = bytes(self.content)
        self.pending.clear()

    def after_power_loss(self, rng: Random | None) -> _Inode:
        """Return the file with some of the unsynced changes; none of them without `rng`."""
        content = bytearray(self.device)
        for change in self.pending if rng is not None else ():
            assert rng is not None
            if rng.random() < 0.4:
                continue
            if isinstance(change, int):
                _apply_size(content, change)
            else:
                _apply_torn(content, *change, rng)
        kept = self.sectors.intersection(_sectors(0, len(content)))
        return _Inode(content, bytes(content), sectors=kept)


def _sectors(start: int, end: int) -> range:
    return range(start // SECTOR, -(-end // SECTOR))


def _apply_write(content: bytearray, at: int, data: bytes) -> None:
    if len(content) < at:
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data


def _apply_size(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _apply_torn(content: bytearray, at: int, data: bytes, rng: Random) -> None:
    """Apply the sectors of a write that reached the device: all, a part, or some of them."""
    whole = rng.random() < 0.5
    cut = at
    while cut < at + len(data):
        end = min((cut // SECTOR + 1) * SECTOR, at + len(data))
        if whole or rng.random() < 0.5:
            _apply_write(content, cut, data[cut - at : end - at])
        cut = end


NameChange = tuple["Path", "_Inode | None"]
"""A name that now means a file, or None when it was removed."""


class MemoryVfs:
    """The whole file system of one simulated machine. See `crashed` and `before_call`."""

    def __init__(self) -> None:
        self.names_now: dict[Path, _Inode] = {}
        self.folders: set[Path] = set()
        self.names_device: dict[Path, _Inode] = {}
        self.names_pending: list[NameChange] = []
        self.boot = 1
        self.total_bytes = 1 << 40
        self.used_bytes = 0
        self.free_bytes: int | None = None
        """Bytes that `allocate` and writes may still take, whole sectors, and removed and cut files
        give back; None means enough. Names and holes cost nothing, but to fill a hole does."""
        self.before_call: Callable[[str, Path], None] | None = None
        """Called before every change and sync; may raise OSError, or look at `crashed`."""
        self.calls = 0
        self._writing: tuple[_Inode, int, bytes] | None = None
        self._open: dict[int, tuple[Path, _Inode]] = {}
        self._locks: dict[int, Path] = {}
        self._fds = itertools.count(3)

    # Crashes

    def crashed(self, *, power_loss: bool, rng: Random | None = None) -> MemoryVfs:
        """Return the machine as the next start would find it, if it stopped now.

        A killed process loses nothing that was written. A power loss leaves what was synced and,
        with `rng`, some of the rest: later changes of names never without earlier ones. Asked
        within `before_call` of a write and with `rng`, a part of that write is there too.
        """
        found = MemoryVfs()
        found.boot = self.boot + 1 if power_loss else self.boot
        found.total_bytes, found.used_bytes = self.total_bytes, self.used_bytes
        found.folders = set(self.folders)
        names = self._names_after(power_loss=power_loss, rng=rng)
        copies: dict[int, _Inode] = {}

        def copy(inode: _Inode) -> _Inode:
            if id(inode) not in copies:
                copies[id(inode)] = self._after(inode, power_loss=power_loss, rng=rng)
            return copies[id(inode)]

        found.names_now = {path: copy(inode) for path, inode in names.items()}
        for path in found.names_now:
            found.folders.update(path.parents)
        if power_loss:
            found.names_device = dict(found.names_now)
            return found
        found.names_device = {path: copy(inode) for path, inode in self.names_device.items()}
        found.names_pending = [
            (path, copy(inode) if inode is not None else None) for path, inode in self.names_pending
        ]
        return found

    def _after(self, inode: _Inode, *, power_loss: bool, rng: Random | None) -> _Inode:
        after = inode.copy()
        if self._writing is not None and self._writing[0] is inode and rng is not None:
            _, at, data = self._writing
            after.write(at, data[: rng.randint(0, len(data))])
        return after.after_power_loss(rng) if power_loss else after

    def _names_after(self, *, power_loss: bool, rng: Random | None) -> dict[Path, _Inode]:
        if not power_loss:
            return dict(self.names_now)
        names = dict(self.names_device)
        kept = rng.randint(0, len(self.names_pending)) if rng is not None else 0
        for path, inode in self.names_pending[:kept]:
            if inode is None:
                names.pop(path, None)
            else:
                names[path] = inode
        return names

    def flip_bit(self, path: Path, at: int, bit: int = 0) -> None:
        """Damage a file at rest."""
        inode = self.names_now[path]
        inode.content[at] ^= 1 << bit
        inode.device = bytes(inode.content)

    def content(self, path: Path) -> bytes:
        """Return what a file holds."""
        return bytes(self.names_now[path].content)

    def put(self, path: Path, data: bytes) -> None:
        """Make a file, on the device at once."""
        self.make_folder(path.parent)
        self.names_now[path] = self.names_device[path] = _Inode(bytearray(data), bytes(data))

    def files(self) -> list[Path]:
        """Return the paths of all files."""
        return sorted(self.names_now)

    # The interface

    def open(self, path: Path, *, create: bool = False) -> int:
        inode = self.names_now.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            if path.parent not in self.folders:
                raise FileNotFoundError(errno.ENOENT, "no such folder", str(path))
            self._call("create", path)
            inode = _Inode()
            self._rename_to(path, inode)
        fd = next(self._fds)
        self._open[fd] = (path, inode)
        return fd

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)
        self._locks.pop(fd, None)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        return bytes(self._open[fd][1].content[offset : offset + size])

    def pread_into(self, fd: int, memory: memoryview, offset: int) -> int:
        data = self.pread(fd, len(memory), offset)
        memory[: len(data)] = data
        return len(data)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> int:
        path, inode = self._open[fd]
        self._writing = (inode, offset, bytes(data))
        try:
            self._call("write", path)
        finally:
            self._writing = None
        self._take_space(inode, offset, offset + len(data))
        inode.write(offset, bytes(data))
        return len(data)

    def pwritev(self, fd: int, buffers: Sequence[bytes], offset: int) -> int:
        return self.pwrite(fd, b"".join(buffers), offset)

    def truncate(self, fd: int, size: int) -> None:
        path, inode = self._open[fd]
        self._call("truncate", path)
        taken = len(inode.sectors)
        inode.resize(size)
        self._give_space(taken - len(inode.sectors))

    def allocate(self, fd: int, size: int) -> None:
        path, inode = self._open[fd]
        self._call("allocate", path)
        self._take_space(inode, 0, size)
        inode.sectors.update(_sectors(0, size))
        if size > len(inode.content):
            inode.resize(size)

    def _take_space(self, inode: _Inode, start: int, end: int) -> None:
        if self.free_bytes is None:
            return
        missing = inode.missing(start, end)
        if missing > self.free_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.free_bytes -= missing

    def _give_space(self, sectors: int) -> None:
        if self.free_bytes is not None:
            self.free_bytes += SECTOR * sectors

    def size(self, fd: int) -> int:
        return len(self._open[fd][1].content)

    def start_sync(self, fd: int, offset: int = 0, size: int = 0) -> None:
        assert fd in self._open, "of open files"
        assert offset + size <= self.size(fd), "of what there is"

    def sync(self, fd: int) -> None:
        path, inode = self._open[fd]
        self._call("sync", path)
        inode.sync()

    def sync_folder(self, path: Path) -> None:
        self._call("sync-folder", path)
        kept: list[NameChange] = []
        for changed, inode in self.names_pending:
            folder = changed.parent
            # Renamed with its folder, whose name was in this one.
            moved = folder not in self.folders and str(folder).startswith(f"{path}/")
            if folder != path and not moved:
                kept.append((changed, inode))
            elif inode is None:
                self.names_device.pop(changed, None)
            else:
                self.names_device[changed] = inode
        self.names_pending = kept

    def names(self, path: Path) -> list[str]:
        prefix = f"{path}/"
        found = {str(p)[len(prefix) :] for p in self.names_now if str(p).startswith(prefix)}
        found |= {str(p)[len(prefix) :] for p in self.folders if str(p).startswith(prefix)}
        return sorted(name for name in found if "/" not in name)

    def is_folder(self, path: Path) -> bool:
        return path in self.folders

    def exists(self, path: Path) -> bool:
        return path in self.names_now or path in self.folders

    def make_folder(self, path: Path) -> None:
        self.folders.update((path, *path.parents))

    def rename(self, source: Path, target: Path) -> None:
        self._call("rename", target)
        if source in self.folders:
            for path in [p for p in self.names_now if source in p.parents]:
                moved = target / path.relative_to(source)
                self._rename_to(moved, self.names_now[path])
                self._forget(path)
            for folder in [f for f in self.folders if f == source or source in f.parents]:
                self.folders.discard(folder)
                self.make_folder(target / folder.relative_to(source))
            return
        if source not in self.names_now:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(source))
        if target in self.names_now:
            self._give_space(len(self.names_now[target].sectors))
        self._rename_to(target, self.names_now[source])
        self._forget(source)

    def _rename_to(self, path: Path, inode: _Inode) -> None:
        self.names_now[path] = inode
        self.names_pending.append((path, inode))

    def _forget(self, path: Path) -> None:
        del self.names_now[path]
        self.names_pending.append((path, None))

    def unlink(self, path: Path) -> None:
        if path in self.names_now:
            self._call("unlink", path)
            self._give_space(len(self.names_now[path].sectors))
            self._forget(path)

    def remove_folder(self, path: Path) -> None:
        self._call("remove-folder", path)
        for below in [p for p in self.names_now if path in p.parents]:
            self._give_space(len(self.names_now[below].sectors))
            self._forget(below)
        self.folders -= {f for f in self.folders if f == path or path in f.parents}

    def disk_usage(self, path: Path) -> DiskUsage:
        assert path in self.folders, f"{path} is no folder"
        return DiskUsage(total=self.total_bytes, used=self.used_bytes)

    def make_private(self, path: Path) -> None:
        """Whoever has this object may read it."""

    def boot_id(self) -> str:
        return f"boot-{self.boot}"

    def lock(self, path: Path) -> int | None:
        if path in self._locks.values():
            return None
        fd = self.open(path, create=True)
        self._locks[fd] = path
        return fd

    def _call(self, what: str, path: Path) -> None:
        self.calls += 1
        if self.before_call is not None:
            self.before_call(what, path)
