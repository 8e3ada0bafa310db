"""Changes that the shard has, answered once others have them as well."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from imago_broker.errors import BrokerError
from imago_broker.processors.rocketmq.exchange import Reply
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.processors.rocketmq.exchange import Exchange


class SettledLater:
    """Answers requests when what they wait for is over. Owns its tasks."""

    def __init__(self, settled: Callable[[], Awaitable[None]]) -> None:
        """`settled`: waits; BrokerError: somebody does not have the change."""
        self._settled = settled
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, exchange: Exchange, reply: Reply) -> None:
        """Answer later; other requests of the connection do not wait for it."""
        task = asyncio.get_running_loop().create_task(self._answer(exchange, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, exchange: Exchange, reply: Reply) -> None:
        try:
            await self._settled()
        except BrokerError as error:
            reply = Reply(ResponseCode.SYSTEM_ERROR, str(error))
        exchange.answer(reply)
