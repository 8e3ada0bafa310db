"""Whether producers find the shard: RocketMQ's `brokerPermission`, kept in the registry.

It is the shard's, not the member's that is told: the next master of the shard has it, too, and all
name services follow it as they follow `wipeWritePerm` and `addWritePerm`, which set the same mark.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_broker.ports import CoordinatorError
from imago_broker.processors.rocketmq.exchange import OK, Reply, RequestError
from imago_broker.processors.rocketmq.rows import REMARK_SIZE_MAX
from imago_broker.processors.rocketmq.tools.original_settings import (
    PERMISSION,
    READ_ONLY,
    READ_WRITE,
)
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from imago_broker.ports import Registry, SharedMarks
    from imago_broker.processors.rocketmq.exchange import Exchange

log = logging.getLogger(__name__)


def is_writable(text: str) -> bool:
    """Return whether a permission lets producers find the shard, or refuse it."""
    value = text.strip()
    if value not in (READ_ONLY, READ_WRITE):
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"{PERMISSION}: {value[:64]!r}, must be {READ_WRITE} or {READ_ONLY}:"
            " consumers always read what is stored",
        )
    return value == READ_WRITE


class ShardPermission:
    """Changes the permission, and answers once the registry has it."""

    def __init__(
        self,
        marks: SharedMarks,
        registry: Registry,
        broker_name: str,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._marks, self._registry = marks, registry
        self._broker_name, self._loop = broker_name, loop
        self._tasks: set[asyncio.Task[None]] = set()

    def change(self, exchange: Exchange, writable: bool, then: Callable[[], None]) -> None:
        """Set the permission, take the request's other settings by `then`, and answer."""
        task = self._loop.create_task(self._answer(exchange, writable, then))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, exchange: Exchange, writable: bool, then: Callable[[], None]) -> None:
        try:
            await self._change(writable, then)
        except RequestError as error:
            exchange.answer(error.reply)
        except Exception as error:
            # The client waits, and its place in the lane is taken, until somebody answers.
            if not isinstance(error, CoordinatorError):
                log.exception("permission_failed")
            remark = f"{PERMISSION}: {error}"[:REMARK_SIZE_MAX]
            exchange.answer(Reply(ResponseCode.SYSTEM_ERROR, remark))
        else:
            exchange.answer(OK)

    async def _change(self, writable: bool, then: Callable[[], None]) -> None:
        was_writable = self._broker_name not in self._registry.view().wiped
        await self._marks.set_write_wiped(self._broker_name, not writable)
        try:
            then()
        except RequestError:
            if writable != was_writable:
                await self._marks.set_write_wiped(self._broker_name, not was_writable)
            raise
