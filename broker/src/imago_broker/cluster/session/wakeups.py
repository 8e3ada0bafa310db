"""A task that takes a step whenever it is woken, and another where one could not be done."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from imago_broker.cluster.tree import TreeUnavailableError
from imago_broker.core.repeated_lines import RepeatedLines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.5


class Wake:
    """The event that wakes one task."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._event = asyncio.Event()
        self._lines = RepeatedLines(now_ms)

    def set(self) -> None:
        """Have a step taken."""
        self._event.set()

    def later(self, seconds: float) -> None:
        """Have one taken in a while."""
        asyncio.get_running_loop().call_later(seconds, self._event.set)

    async def run(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        """Take steps until cancelled."""
        while True:
            await self._event.wait()
            self._event.clear()
            try:
                await step()
            except TreeUnavailableError as error:
                if times := self._lines.due(name, str(error)):
                    said = "registry_unavailable task=%s times=%d reason=%s"
                    logger.info(said, name, times, error)
                self.later(RETRY_SECONDS)
            except Exception:
                # A mistake of ours: say it, and keep the registry going with what works.
                logger.exception("registry_task_failed task=%s", name)
                self.later(RETRY_SECONDS)
