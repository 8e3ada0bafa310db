"""Witnesses for borders of records behind a place where the chain of records is broken.

Behind a head that the device lost, records are looked for in bytes that may be the body of a
message, which a client has chosen. What is found there counts only if something says so that no
client can write: the unit of its own queue, in that queue's files, or an offset that this member
noted when its log ended there. Docs: docs/adr/0012.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from imago_log.disk.files import offset_name, offsets_of
from imago_wire.record_format.layout import UNIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from imago_log.commitlog.checkpoint import Checkpoint
    from imago_log.commitlog.epochs import Epochs
    from imago_log.disk.vfs import Vfs
    from imago_log.views.units.consume_queue import ConsumeQueue

ALL_UNITS = (1 << 63) - 1


def noted_borders(checkpoint: Checkpoint | None, epochs: Epochs = ()) -> list[int]:
    """Return the log offsets that are borders of records, as a member has noted."""
    marks = [start for _, start in epochs]
    if checkpoint is not None:
        marks += [checkpoint.log_start, checkpoint.durable_end, checkpoint.log_end]
        marks += [checkpoint.views_synced, checkpoint.keys_end]
    return marks


class UnitWitness:
    """The units of all queues and the offsets that were noted. Look-ups in any thread."""

    def __init__(self, vfs: Vfs, queues: Path, marks: Callable[[], Iterable[int]]) -> None:
        self._vfs, self._queues = vfs, queues
        self.marks = marks
        """Returns the log offsets that are known to be borders, in any order."""
        self.units_below = ALL_UNITS
        """Units of records at or behind this log offset say nothing: power was lost, and they may
        not have been synced."""
        self._moved: dict[str, Path] = {}
        self._cut: dict[tuple[bytes, int], list[tuple[int, bytes]]] = {}

    # While a start puts the views in order

    def doubt_from(self, log_offset: int) -> None:
        """Ignore units of records at or behind a log offset."""
        self.units_below = log_offset

    def keep(self, queue: ConsumeQueue, end: int) -> None:
        """Remember the units of a queue from `end` on, which are about to be cut off."""
        key = (queue.tail.topic, queue.tail.queue_id)
        self._cut.setdefault(key, []).append((end, queue.units(end, queue.end - end)))

    def look_in(self, folders: Mapping[str, Path]) -> None:
        """Look for the files of some topics in other folders."""
        self._moved.update(folders)

    def trust_files(self) -> None:
        """Count all that the files say from now on, and only that: they are in order."""
        self.units_below = ALL_UNITS
        self._moved.clear()
        self._cut.clear()

    # Looking up

    def tag_of(
        self, topic: bytes, queue_id: int, offset: int, record: tuple[int, int]
    ) -> int | None:
        """Return the tag code in the unit that names a record, by log offset and size.

        None: no unit does.
        """
        if not 0 <= record[0] < self.units_below or min(queue_id, offset) < 0:
            return None
        for start, units in self._cut.get((topic, queue_id), ()):
            tag = _tag_in(units, offset - start, record)
            if tag is not None:
                return tag
        return _tag_in(self._unit_on_file(topic, queue_id, offset), 0, record)

    def _unit_on_file(self, topic: bytes, queue_id: int, offset: int) -> bytes:
        try:
            name = topic.decode()
        except UnicodeDecodeError:
            return b""
        if "/" in name or "\0" in name or name in ("", ".", ".."):
            return b""  # of no topic: it would lead out of the folder
        folder = self._moved.get(name, self._queues / name) / str(queue_id)
        at = offset * UNIT.size
        with suppress(OSError):
            first = max((each for each in self._positions(folder) if each <= at), default=None)
            if first is not None:
                fd = self._vfs.open(folder / offset_name(first))
                try:
                    return self._vfs.pread(fd, UNIT.size, at - first)
                finally:
                    self._vfs.close(fd)
        return b""

    def _positions(self, folder: Path) -> list[int]:
        return offsets_of(self._vfs.names(folder)) if self._vfs.exists(folder) else []


def _tag_in(units: bytes, index: int, record: tuple[int, int]) -> int | None:
    if not 0 <= index < len(units) // UNIT.size:
        return None
    place, size, tag = UNIT.unpack_from(units, index * UNIT.size)
    return int(tag) if (place, size) == record else None
