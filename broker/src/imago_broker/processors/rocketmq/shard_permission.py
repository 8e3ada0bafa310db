"""Whether producers find the shard: RocketMQ's `brokerPermission`, kept in the registry.

It is the shard's, not the member's that is told: the next master of the shard has it, too, and all
name services follow it as they follow `wipeWritePerm` and `addWritePerm`, which set the same mark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.ports import CoordinatorError
from imago_broker.processors.rocketmq.exchange import OK, Reply, RequestError
from imago_broker.processors.rocketmq.original_settings import PERMISSION, READ_ONLY, READ_WRITE
from imago_broker.processors.rocketmq.rows import REMARK_SIZE_MAX
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    import asyncio

    from imago_broker.ports import SharedMarks
    from imago_broker.processors.rocketmq.exchange import Exchange


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
        self, marks: SharedMarks, broker_name: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._marks, self._broker_name, self._loop = marks, broker_name, loop
        self._tasks: set[asyncio.Task[None]] = set()

    def change(self, exchange: Exchange, writable: bool) -> None:
        """Set the permission, then answer."""
        task = self._loop.create_task(self._change(exchange, writable))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _change(self, exchange: Exchange, writable: bool) -> None:
        try:
            await self._marks.set_write_wiped(self._broker_name, not writable)
        except CoordinatorError as error:
            remark = f"{PERMISSION} was not changed: {error}"[:REMARK_SIZE_MAX]
            exchange.answer(Reply(ResponseCode.SYSTEM_ERROR, remark))
        else:
            exchange.answer(OK)
