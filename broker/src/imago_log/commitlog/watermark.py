"""The high watermark: the log offset below which readers may read."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_log.commitlog.commit_log import CommitLog

ALL_VISIBLE = (1 << 63) - 1
"""The high watermark of a log that has one member: everything written is visible."""


class HighWatermark:
    """Records below `value` are visible; what readers see of it ends at the log's end."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self.value = ALL_VISIBLE
        self._whole: deque[tuple[int, int]] = deque()
        """Ranges that are not visible yet and become so at once."""

    @property
    def is_alone(self) -> bool:
        """Whether the log has one member: all that is written is visible."""
        return self.value == ALL_VISIBLE

    @property
    def visible(self) -> int:
        """Everything below can be read."""
        return min(self.value, self._log.end)

    def begin(self, offset: int) -> None:
        """Let everything below be visible, and nothing else: the log has several members."""
        self.value = offset

    def raise_to(self, offset: int) -> None:
        """Make everything below visible, and nothing else; a record border, never goes back.

        Never above the log's end. From the first call on the log has several members: without
        one, all that is written is visible at once.
        """
        offset = min(offset, self._log.end)
        whole = self._whole
        while whole and whole[0][1] <= offset:
            whole.popleft()
        if whole:
            offset = min(offset, whole[0][0])
        if self.is_alone or offset > self.value:
            self.value = offset

    def lower_to(self, offset: int) -> None:
        """Make nothing visible at or behind a log offset: it is about to be cut."""
        self.value = min(self.value, offset)
        while self._whole and self._whole[-1][1] > offset:
            self._whole.pop()

    def keep_tail_whole(self) -> None:
        """Have all that is not visible yet become so at once: nobody knows what is whole in it."""
        self._whole.clear()
        self.keep_whole(self.visible, self._log.end)

    def keep_whole(self, start: int, end: int) -> None:
        """Have what was just appended become visible at once; alone it is already."""
        if not self.is_alone and start < end:
            self._whole.append((start, end))
