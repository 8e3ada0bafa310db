"""The bytes appended last, in memory: for readers at the tail and for views made behind the append.

Bounded; a miss is no error, the log's files have everything.
"""

from __future__ import annotations

from bisect import bisect_right


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
        """Whether what stands at a log offset, and all that follows, is in memory."""
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

    def block(self, log_offset: int, size: int) -> tuple[memoryview, int] | None:
        """Return the whole block that holds these bytes, and its log offset, else None."""
        at = bisect_right(self._starts, log_offset) - 1
        if at < 0 or log_offset + size > self._starts[at] + len(self._blocks[at]):
            return None
        return memoryview(self._blocks[at]), self._starts[at]

    def clear(self) -> None:
        """Forget everything: the log was cut."""
        self._starts.clear()
        self._blocks.clear()
        self._dropped = self._size = 0
