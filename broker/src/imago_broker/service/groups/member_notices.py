"""Telling the members of a group that it has changed: at once, then at most once a second.

A thousand members that start together change their group a thousand times. Each would hear of each
change, and balance its queues again for each.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

REST_S: Final = 1.0
"""How long a group rests between two notices; members look for themselves every 20 s."""


class MemberNotices:
    """Passes changes of groups on. Belongs to the event loop's thread."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell` sends one notice to all who are members of a group then."""
        self._tell = tell
        self._resting: dict[str, bool] = {}
        """Whether a group that was told of a moment ago has changed since."""

    def changed(self, group: str) -> None:
        """Tell the members now, or when their rest is over."""
        if group in self._resting:
            self._resting[group] = True
            return
        self._resting[group] = False
        asyncio.get_running_loop().call_later(REST_S, self._rested, group)
        self._tell(group)

    def _rested(self, group: str) -> None:
        if self._resting.pop(group):
            self.changed(group)
