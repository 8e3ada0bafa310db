"""The data folder: what is where in it, who may use it, and how its last user stopped."""

from __future__ import annotations

import contextlib
from enum import Enum
from typing import TYPE_CHECKING

from imago_log.disk.files import (
    fatal,
    keep_room,
    read_whole,
    remove_keeping_room,
    replace_whole,
)
from imago_log.errors import DataFolderLockedError, NoSpaceError, RestoreUnfinishedError
from imago_wire.crc import crc31

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log.disk.vfs import Vfs

RESTORING = "restoring"
"""Its presence says that the folder is being made of a backup: `imago backup restore`."""
RESTORED_OFFSETS = "config/restored-offsets"
"""What MetaQ's groups had in ZooKeeper when the backup was taken, until this member leads."""


class LastStop(Enum):
    """How the last process that used the folder ended."""

    CLEAN = "clean"
    KILLED = "killed"
    """No clean mark, same boot of the machine: the page cache is whole, all writes are there."""
    POWER_LOST = "power lost"
    """No clean mark, another boot: what was not synced may be missing or torn."""


class DataFolder:
    """Paths of one store, its lock and its running mark.

    The running mark is a file that holds the boot id. It is made durable before the first write
    and removed after the last sync, so finding it means that the last stop was not in order.
    """

    def __init__(self, root: Path, vfs: Vfs) -> None:
        self.root, self._vfs = root, vfs
        self.log = root / "commitlog"
        self.queues = root / "consumequeue"
        self.positions = root / "consumequeue_v"
        self.keys = root / "index"
        self.metaq = root / "metaq"
        self.config = root / "config"
        self.trash = root / "trash"
        self.checkpoint = root / "checkpoint"
        self.epochs = root / "epochFileCheckpoint"
        self.metadata = self.config / "metadata.json"
        self.views_mark = self.config / "views"
        """Exists while the views are whole up to the checkpoint; else a start rebuilds them."""
        self.damage = self.config / "damage"
        self.probe = self.config / "probe.new"
        """Written to test for free space."""
        self._running = root / "abort"
        self._unclean = root / "unclean"
        self._lock: int | None = None

    def take(self) -> None:
        """Make the folders and take the lock. DataFolderLockedError: somebody has it."""
        folders = (self.log, self.queues, self.positions, self.keys, self.metaq, self.config)
        with fatal("open", self.root):
            self._vfs.make_folder(self.root)
            self._lock = self._vfs.lock(self.root / "lock")
            if self._lock is None:
                raise DataFolderLockedError(self.root)
            if self._vfs.exists(self.root / RESTORING):
                self.release()
                raise RestoreUnfinishedError(self.root)
            self._vfs.make_private(self.root)
            self._forget_lost_views()
            for folder in (*folders, self.trash):
                self._vfs.make_folder(folder)
            self._vfs.sync_folder(self.root)

    def _forget_lost_views(self) -> None:
        """An operator may have removed a view's folder so that it is rebuilt."""
        vfs = self._vfs
        folders = (self.queues, self.positions, self.keys)
        if vfs.exists(self.views_mark) and not all(vfs.exists(folder) for folder in folders):
            vfs.unlink(self.views_mark)
            vfs.sync_folder(self.config)

    def note_views(self) -> None:
        """Record which queues have files, durably: the next start notices one that is gone."""
        mark = b"1\n%b\n" % self._queue_digest()
        with fatal("read", self.views_mark):
            found = read_whole(self._vfs, self.views_mark)
        if found not in (None, mark):
            replace_whole(self._vfs, self.views_mark, mark, room=True)

    def views_agree(self) -> bool:
        """Whether the queues have the files that the last orderly stop recorded."""
        with fatal("read", self.views_mark):
            mark = read_whole(self._vfs, self.views_mark) or b""
        _, _, noted = mark.partition(b"\n")
        return not noted or noted == self._queue_digest() + b"\n"

    def _queue_digest(self) -> bytes:
        """Return how many folders of queues there are, and a checksum over their names."""
        vfs = self._vfs
        with fatal("list", self.queues):
            names = [
                f"{root.name}/{topic}/{queue_id}\n"
                for root in (self.queues, self.positions)
                for topic in vfs.names(root)
                for queue_id in vfs.names(root / topic)
            ]
        return b"%d %d" % (len(names), crc31("".join(names).encode()))

    def forget_views(self) -> None:
        """Make the next start rebuild all views from the log."""
        with fatal("remove", self.views_mark):
            self._vfs.unlink(self.views_mark)
            self._vfs.sync_folder(self.config)

    def last_stop(self) -> LastStop:
        """Return how the last user of the folder stopped; a new folder counts as clean."""
        with fatal("read", self._running):
            mark = read_whole(self._vfs, self._running)
        if mark is None:
            return LastStop.CLEAN
        same_boot = mark.decode("ascii", "replace").strip() == self._vfs.boot_id()
        # An empty boot id proves nothing, so it counts as another boot.
        return LastStop.KILLED if same_boot and mark.strip() else LastStop.POWER_LOST

    def mark_running(self) -> None:
        """Record durably that a process writes here; on a full disk without the boot id."""
        boot = self._vfs.boot_id().encode() + b"\n"
        with fatal("read", self._running):
            found = read_whole(self._vfs, self._running)
        if found == boot:
            return  # as the killed process has left it
        try:
            replace_whole(self._vfs, self._running, boot, room=True)
        except NoSpaceError:
            if found is None:  # else it says that power was lost, which is less than was known
                replace_whole(self._vfs, self._running, b"")

    def mark_views(self) -> None:
        """Record durably that the views are whole up to the checkpoint."""
        replace_whole(self._vfs, self.views_mark, b"1\n", room=True)

    def keep_room(self) -> None:
        """Keep room for the small files without which no start goes on, should the disk be full."""
        for path in (self._running, self.epochs, self.damage, self.views_mark):
            keep_room(self._vfs, path)

    def mark_clean(self) -> None:
        """Record durably that everything is synced and nobody writes."""
        remove_keeping_room(self._vfs, self._running)

    @property
    def unclean(self) -> bool:
        """Whether the folder notes that the log may lack acknowledged records."""
        return self._vfs.exists(self._unclean)

    def mark_unclean(self, unclean: bool) -> None:
        """Make or remove that note, durably. It outlives restarts."""
        if unclean == self.unclean:
            return
        if unclean:
            replace_whole(self._vfs, self._unclean, b"")
            return
        with fatal("remove", self._unclean):
            self._vfs.unlink(self._unclean)
            self._vfs.sync_folder(self.root)

    def release(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._vfs.close(self._lock)
            self._lock = None
