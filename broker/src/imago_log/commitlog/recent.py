"""The bytes appended last, in memory: for readers at the tail and for views made behind the append.

Bounded; a miss is no error, the log's files have everything.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from imago_wire.hot import gather_blocks

if TYPE_CHECKING:
    from imago_wire.hot import QueueTail


class RecentLog:
    """Blocks of whole records by log offset, the oldest dropped above `bytes_max`."""

    __slots__ = ("_blocks", "_bytes_max", "_dropped", "_size", "_starts")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._starts: list[int] = []
        self._blocks: list[bytes] = []
        self._dropped = 0
        """Entries at the head of the lists that are already let go."""
        self._size = 0

    def holds(self, log_offset: int) -> bool:
        """Whether the log from an offset on is in memory."""
        return self._dropped < len(self._starts) and log_offset >= self._starts[self._dropped]

    def add(self, log_offset: int, data: bytes) -> None:
        """Remember a block just written."""
        self._starts.append(log_offset)
        self._blocks.append(data)
        self._size += len(data)
        if self._size > self._bytes_max:
            self._shrink()

    def _shrink(self) -> None:
        dropped, size = self._dropped, self._size
        while size > self._bytes_max and dropped < len(self._blocks) - 1:
            size -= len(self._blocks[dropped])
            self._blocks[dropped] = b""
            dropped += 1
        if dropped > 1024 and dropped * 2 > len(self._blocks):
            del self._blocks[:dropped], self._starts[:dropped]
            dropped = 0
        self._dropped, self._size = dropped, size

    def get(self, log_offset: int, size: int) -> bytes | None:
        """Return bytes that lie within one block, else None."""
        at = bisect_right(self._starts, log_offset) - 1
        if at < 0:
            return None
        block, start = self._blocks[at], log_offset - self._starts[at]
        if start + size > len(block):
            return None
        return block[start : start + size]

    def gather(self, units: bytes, first: int, tail: QueueTail, offset: int) -> tuple[bytes, int]:
        """Return records of a queue's units from number `first` on, as far as they are here.

        Second: the number of the first one that is not.
        """
        return gather_blocks(
            self._blocks, self._starts, units, first, tail.topic, tail.queue_id, offset
        )

    def block(self, log_offset: int, size: int) -> tuple[memoryview, int] | None:
        """Return the whole block that holds these bytes, and its log offset, else None."""
        at = bisect_right(self._starts, log_offset) - 1
        if at < 0 or log_offset + size > self._starts[at] + len(self._blocks[at]):
            return None
        return memoryview(self._blocks[at]), self._starts[at]

    def run(self, log_offset: int, size_max: int) -> bytes | memoryview | None:
        """Return the bytes from an offset on, over blocks without a gap; None: not in memory."""
        at = bisect_right(self._starts, log_offset) - 1
        if at < 0:
            return None
        block, skip = self._blocks[at], log_offset - self._starts[at]
        if skip >= len(block):
            return None
        end = log_offset - skip + len(block)
        if end - log_offset >= size_max or not self._starts_at(at + 1, end):
            return (
                memoryview(block)[skip : skip + size_max]
                if skip or len(block) > size_max
                else (block)
            )
        parts = [memoryview(block)[skip:]]
        left = size_max - len(parts[0])
        while left > 0 and self._starts_at(at := at + 1, end):
            parts.append(memoryview(self._blocks[at])[:left])
            end += len(self._blocks[at])
            left -= len(parts[-1])
        return b"".join(parts)

    def _starts_at(self, at: int, log_offset: int) -> bool:
        return at < len(self._starts) and self._starts[at] == log_offset

    def start_before(self, log_offset: int) -> int | None:
        """Return the start of the last block that begins at or before an offset."""
        at = bisect_right(self._starts, log_offset) - 1
        return self._starts[at] if at >= self._dropped else None

    def start_behind(self, log_offset: int) -> int | None:
        """Return the start of the first block that is in memory and begins behind an offset."""
        at = max(bisect_right(self._starts, log_offset), self._dropped)
        return self._starts[at] if at < len(self._starts) else None

    def clear(self) -> None:
        """Forget everything: the log was cut."""
        self._starts.clear()
        self._blocks.clear()
        self._dropped = self._size = 0
