"""Telling those who wait that their group may take messages again: others were acknowledged."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Sequence

_Queue = tuple[str, str, int]
"""Group, topic, queue."""
SEEN_MAX = 1000
"""Queues that are looked at between two turns of the loop."""


class AwaitedRoom:
    """Queues of which a group could take nothing, since it, or all together, had too much out."""

    def __init__(self, loop: asyncio.AbstractEventLoop, has_room: Callable[[_Queue], bool]) -> None:
        self._loop, self._has_room = loop, has_room
        self._full: dict[_Queue, None] = {}
        self._freed = self._tells = False
        self.on_room: list[Callable[[Sequence[_Queue]], None]] = []
        """Told queues of which a group may take messages again."""

    def lacked(self, key: _Queue) -> None:
        """Note that there was no room for somebody who asked."""
        self._full[key] = None

    def freed(self) -> None:
        """Say that fewer messages are out: who has room now is told when the turn ends."""
        if not self._full:
            return
        self._freed = True
        if not self._tells:
            self._tells = True
            self._loop.call_soon(self._tell)

    def clear(self) -> None:
        """Forget all of them."""
        self._full.clear()

    def _tell(self) -> None:
        self._freed = False
        full, self._full = self._full, {}
        self._tell_some(iter(full))

    def _tell_some(self, left: Iterator[_Queue]) -> None:
        seen = list(islice(left, SEEN_MAX))
        freed = [key for key in seen if self._has_room(key)]
        for listener in self.on_room:
            listener(freed)
        if len(seen) == SEEN_MAX:
            self._loop.call_soon(lambda: self._tell_some(left))
            return
        self._tells = False
        if self._freed:
            self.freed()
