"""The folders of queues on disk: finding them, and moving those out of the way that are wrong."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from imago_log.disk.files import fatal, offsets_of
from imago_log.views.units.consume_queue import POSITION_SIZE, UNIT_SIZE, ConsumeQueue
from imago_log.views.units.unit_files import UnitFiles
from imago_wire.hot import QueueTail

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log.disk.files import FilePool
    from imago_log.disk.folder import DataFolder


class QueueFolders:
    """Two folders a queue, for its units and its positions; and the trash."""

    def __init__(self, folder: DataFolder, pool: FilePool) -> None:
        self._folder, self._pool = folder, pool
        self._discarded = 0
        self.forget_views = folder.forget_views

    def queue(self, tail: QueueTail, *, dual: bool) -> ConsumeQueue:
        """Return a queue over its folders; `load` finds what is in them."""
        below = f"{tail.topic.decode()}/{tail.queue_id}"
        units = UnitFiles(self._pool, self._folder.queues / below, UNIT_SIZE)
        positions = None
        if dual:
            positions = UnitFiles(self._pool, self._folder.positions / below, POSITION_SIZE)
        return ConsumeQueue(tail, units, positions)

    def unopened(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue as its files are, to read them."""
        dual = self._has_positions(topic, queue_id)
        queue = self.queue(QueueTail(topic.encode(), queue_id, dual=dual), dual=dual)
        queue.load()
        return queue

    def on_disk(self) -> list[tuple[str, int]]:
        """Return topic and number of every queue that has a folder."""
        vfs, root = self._pool.vfs, self._folder.queues
        with fatal("list", root):
            return [
                (topic, int(name))
                for topic in vfs.names(root)
                for name in vfs.names(root / topic)
                if name.isdecimal()
            ]

    def numbers(self, topic: str) -> list[int]:
        """Return the numbers of a topic's queues that have a folder."""
        folder = self._folder.queues / topic
        with fatal("list", folder):
            return [int(name) for name in self._pool.vfs.names(folder) if name.isdecimal()]

    def materialised_on_disk(self) -> list[tuple[str, int]]:
        """Return topic and number of every partition that has a folder of MetaQ's files."""
        with fatal("list", self._folder.metaq):
            names = [name.rpartition("-") for name in self._pool.vfs.names(self._folder.metaq)]
        return [(topic, int(number)) for topic, _, number in names if topic and number.isdecimal()]

    def is_on_disk(self, topic: str, queue_id: int) -> bool:
        """Whether a queue has files."""
        return self._pool.vfs.exists(self._folder.queues / f"{topic}/{queue_id}")

    def had_files(self, queue: ConsumeQueue) -> bool:
        """Whether a queue without files has a folder, so that it had some."""
        tail = queue.tail
        return not queue.exists and self.is_on_disk(tail.topic.decode(), tail.queue_id)

    def _has_positions(self, topic: str, queue_id: int) -> bool:
        """Whether a queue has files of positions."""
        folder = self._folder.positions / topic / str(queue_id)
        return bool(offsets_of(self._pool.vfs.names(folder)))

    # Removing

    def clear(self, queue: ConsumeQueue) -> None:
        """Throw the files of a queue away: it is empty, and begins again."""
        tail = queue.tail
        for folder in (self._folder.queues, self._folder.positions):
            self._discard(folder / tail.topic.decode() / str(tail.queue_id))
        queue.reload()

    def discard_topic(self, topic: str) -> None:
        """Discard the folders of a topic's queues."""
        for folder in (self._folder.queues, self._folder.positions):
            self._discard(folder / topic)

    def discard_all(self) -> dict[str, Path]:
        """Discard the folders of all queues; return where the units of a topic are."""
        self._discard_below(self._folder.positions)
        return self._discard_below(self._folder.queues)

    def discard_segments(self) -> None:
        """Discard all of MetaQ's own files."""
        self._discard_below(self._folder.metaq)

    def sync(self) -> None:
        """Make durable which folders there are, after all were discarded."""
        for folder in (self._folder.queues, self._folder.positions, self._folder.metaq):
            with fatal("sync", folder):
                self._pool.vfs.sync_folder(folder)

    def _discard_below(self, folder: Path) -> dict[str, Path]:
        """Discard all that a folder holds; return where it is by name."""
        names = self._pool.vfs.names(folder)
        return {name: target for name in names if (target := self._discard(folder / name))}

    def _discard(self, folder: Path) -> Path | None:
        """Move a folder out of the way, on whose files nobody stands any more."""
        vfs = self._pool.vfs
        if not vfs.exists(folder):
            return None
        self._pool.forget_below(folder)
        with fatal("remove", folder):
            while vfs.exists(target := self._folder.trash / str(self._discarded)):
                self._discarded += 1
            vfs.rename(folder, target)
        return target

    def empty_trash(self) -> None:
        """Remove what was discarded; what cannot be removed now is left for the next time."""
        vfs = self._pool.vfs
        for name in vfs.names(self._folder.trash):
            with contextlib.suppress(OSError):
                vfs.remove_folder(self._folder.trash / name)
