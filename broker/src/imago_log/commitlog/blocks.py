"""Parts of the log's files that were read lately: who reads a backlog shares them with others.

The records of one queue lie between those of others, so that each queue's reader passes over the
same bytes. A block is read once, into memory that is used again: memory that is touched for the
first time costs more than what is read into it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from imago_log.commitlog.borders import segment_end

if TYPE_CHECKING:
    from imago_log.commitlog.commit_log import CommitLog

BLOCK_BYTES = 1 << 20
OVERLAP_BYTES = 64 << 10
"""Of the next block: a record that begins in one, and is not larger, lies within it."""
BLOCKS_MAX = 16


class _Block(NamedTuple):
    buffer: bytearray
    memory: memoryview
    end: int
    """Log offset behind it."""


class LogBlocks:
    """The blocks used last, by where they begin. Used in one thread."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._version = log.version
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        self._spare: list[bytearray] = []

    def find(self, place: int, size: int, *, read: bool) -> tuple[memoryview, int] | None:
        """Return a part of the log that holds these bytes, and where it begins.

        It is good until the next call. None: they are too many, cannot be read at once, or, unless
        they are to be read, are not in memory.
        """
        if self._version != self._log.version:
            self.forget()
        border = segment_end(self._log, place)
        base = border - self._log.segment_size
        start = place - (place - base) % BLOCK_BYTES
        block = self._blocks.get(start)
        if block is None or place + size > block.end:
            end = min(start + BLOCK_BYTES + OVERLAP_BYTES, border, self._log.end)
            if not read or size <= 0 or place + size > end:
                return None
            block = self._read(start, end)
            if block is None:
                return None
        self._blocks.move_to_end(start)
        return block.memory, start

    def _read(self, start: int, end: int) -> _Block | None:
        former = self._blocks.pop(start, None)
        if former is not None:
            self._spare.append(former.buffer)
        elif len(self._blocks) >= BLOCKS_MAX:
            self._spare.append(self._blocks.popitem(last=False)[1].buffer)
        buffer = self._spare.pop() if self._spare else bytearray(BLOCK_BYTES + OVERLAP_BYTES)
        memory = memoryview(buffer)[: end - start]
        if not self._log.read_into(start, memory):
            self._spare.append(buffer)
            return None
        block = self._blocks[start] = _Block(buffer, memory, end)
        return block

    def forget(self) -> None:
        """Read everything anew: what is in the files was changed, or is not as it should be."""
        self._spare += [block.buffer for block in self._blocks.values()]
        self._blocks.clear()
        self._version = self._log.version
