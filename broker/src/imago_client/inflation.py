"""The inflation budget of an asyncio consumer: readers that find no room wait their turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from imago_client.core.consuming.inflation import InflationBudget

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_S_MAX: Final = 30.0
"""Handlers that hold inflated messages for longer do not stop other queues for ever."""


class Inflation(InflationBudget):
    """A budget whose changes can be waited for."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self.turn = asyncio.Lock()
        """Held by the reader that waits for room: a large message is not overtaken by small ones
        of other queues that wait too."""
        self._changed = asyncio.Event()
        self.is_awaited = False
        """Whether somebody waits for room."""

    def changed(self) -> None:
        """Have those who wait look again: something was finished."""
        self._changed.set()

    async def until(self, holds: Callable[[], bool]) -> bool:
        """Wait until a condition holds; return whether it did in time."""
        self.is_awaited = True  # one waits at a time: it holds `turn`
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        finally:
            self.is_awaited = False
        return True
