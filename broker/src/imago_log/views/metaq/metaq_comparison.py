"""Comparing MetaQ's own files with the records they are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_wire.errors import RecordError
from imago_wire.hot import metaq_block
from imago_wire.record_format.layout import POSITION_UNIT, UNIT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imago_log.disk.vfs import Vfs
    from imago_log.views.metaq.metaq_segments import MetaqSegments
    from imago_log.views.view import LogBlock, QueueKey
    from imago_wire.hot import QueueTail


@dataclass(slots=True)
class FoundFiles:
    """MetaQ's files of a partition when a check began."""

    starts: list[int]
    end: int
    folder: MetaqSegments


@dataclass(slots=True)
class MetaqComparison:
    """The files that there are, and which of them are wrong."""

    vfs: Vfs
    files: dict[QueueKey, FoundFiles]
    make_again: Callable[[str, int], bool]
    wrong: set[QueueKey] = field(default_factory=set)

    def read(self, block: LogBlock, data: bytes) -> None:
        """Compare the messages of a block; in the worker."""
        for key, files in self.files.items():
            if key in block.units and not self._has(files, block.units[key][1], data, block.start):
                self.wrong.add(key)

    def mend(self, _blocks: list[LogBlock]) -> int:
        """Make wrong partitions again; return how many there were."""
        return sum(self.make_again(topic.decode(), queue_id) for topic, queue_id in self.wrong)

    def _has(self, files: FoundFiles, tail: QueueTail, data: bytes, start: int) -> bool:
        """Whether MetaQ's files hold these messages, as far as they hold their positions."""
        first, last = files.starts[0], files.end
        view = memoryview(data)
        positions = list(POSITION_UNIT.iter_unpack(tail.positions))
        units = UNIT.iter_unpack(tail.units)
        kept = [
            (position, view[place - start : place - start + size])
            for (position, length), (place, size, _) in zip(positions, units, strict=True)
            if position >= first and position + length <= last
        ]
        if not kept:
            return True
        try:
            expected = metaq_block([record for _, record in kept])
            return expected == self._read(files, kept[0][0], len(expected))
        except (FileNotFoundError, RecordError):
            return True  # removed meanwhile, or not to be had in this form at all

    def _read(self, files: FoundFiles, position: int, size: int) -> bytes:
        parts: list[bytes] = []
        ends = [*files.starts[1:], files.end]
        for begin, end in zip(files.starts, ends, strict=True):
            first, last = max(begin, position), min(end, position + size)
            if first < last:
                parts.append(self._read_file(files.folder.path(begin), first - begin, last - first))
        return b"".join(parts)

    def _read_file(self, path: Path, at: int, size: int) -> bytes:
        fd = self.vfs.open(path)
        try:
            return self.vfs.pread(fd, size, at)
        finally:
            self.vfs.close(fd)
