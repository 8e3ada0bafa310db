"""Reads a topic from behind, through MetaQ, so that brokers keep MetaQ's own files of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from imago_testing.chaos.connections import ConnectionLostError, MetaqConnection, RefusedError
from imago_testing.chaos.consumers import get

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_testing.chaos.connections import Where
    from imago_testing.chaos.history import Queue

_SECONDS_MAX = 300.0
_PAUSE_SECONDS = 0.5


async def read_from_behind(where: Where, queue: Queue, begun: Callable[[], bool]) -> None:
    """Read the queue's beginning until the topic's files are begun.

    They are once that beginning is no longer in the leader's memory. TimeoutError: they never are.
    """
    async with asyncio.timeout(_SECONDS_MAX):
        while not await asyncio.to_thread(begun):
            with suppress(ConnectionLostError, RefusedError, OSError):  # the next one may answer
                await _read_beginning(where, queue)
            await asyncio.sleep(_PAUSE_SECONDS)


async def _read_beginning(where: Where, queue: Queue) -> None:
    connection = await MetaqConnection.open(where)
    try:
        found, behind = await get(connection, queue, 0)
        if not found and behind:  # what stood there has expired
            await get(connection, queue, behind)
    finally:
        await connection.close()
