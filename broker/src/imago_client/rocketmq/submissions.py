"""Sends that were begun and nobody awaits yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from imago_client.connections.admission import Admission
    from imago_client.messages import SendResult


class Submissions:
    """Holds the tasks of such sends: as many as there is room for, until they end."""

    def __init__(self, room: Admission) -> None:
        self._room = room
        self._tasks: set[asyncio.Task[SendResult]] = set()

    async def begin(
        self, size: int, send: Callable[[], Coroutine[Any, Any, SendResult]]
    ) -> asyncio.Task[SendResult]:
        """Begin a send of `size` bytes once there is room."""
        await self._room.enter(size)
        task = asyncio.create_task(send(), name="submitted send")
        self._tasks.add(task)

        def ended(_: object) -> None:
            self._tasks.discard(task)
            self._room.leave(size)

        task.add_done_callback(ended)
        return task

    async def ended(self) -> None:
        """Wait until all that was begun has ended, however."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))
