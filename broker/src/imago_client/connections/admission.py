"""How many sends a client has under way at once: the rest wait, in their order, untimed."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Admission:
    """Room for so many sends and so many bytes; one that is larger than all goes alone.

    A send's time-out begins when it is let in: any number of them may be called at once, and those
    that wait their turn do not fail of it.
    """

    def __init__(self, *, count_max: int, bytes_max: int) -> None:
        self._count_max, self._bytes_max = count_max, bytes_max
        self._count = self._bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def room(self, size: int) -> AsyncIterator[None]:
        """Take the room of one send of `size` bytes, once there is some."""
        await self.enter(size)
        try:
            yield
        finally:
            self.leave(size)

    def try_enter(self, size: int) -> bool:
        """Take the room at once where there is some and nobody waits for it."""
        if self._waiting:
            return False
        count, held = self._count, self._bytes + size  # as `_fits` and `_take`: for every send
        if count and (count >= self._count_max or held > self._bytes_max):
            return False
        self._count, self._bytes = count + 1, held
        return True

    async def enter(self, size: int) -> None:
        """Take the room once there is some."""
        if self.try_enter(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._admit()  # those behind may fit where this one did not
            else:
                self.leave(size)  # let in and given up in the same moment
            raise

    def leave(self, size: int) -> None:
        """Give the room back."""
        self._count -= 1
        self._bytes -= size
        if self._waiting:
            self._admit()

    def _admit(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if not turn.done():
                if not self._fits(size):
                    return
                self._take(size)
                turn.set_result(None)
            self._waiting.popleft()

    def _fits(self, size: int) -> bool:
        if self._count == 0:
            return True
        return self._count < self._count_max and self._bytes + size <= self._bytes_max

    def _take(self, size: int) -> None:
        self._count += 1
        self._bytes += size
