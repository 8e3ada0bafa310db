"""Answers that wait for the registry."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from imago_broker.ports import CoordinatorError
from imago_broker.processors.rocketmq.exchange import Exchange, Reply
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

log = logging.getLogger(__name__)


class Later:
    """Runs what the registry has to do, and answers when it is done. Owns its tasks."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(
        self, exchange: Exchange, work: Coroutine[Any, Any, Any], reply: Callable[[], Reply]
    ) -> None:
        """Do the work, then answer with what `reply` returns, or with the registry's error."""

        async def done() -> Reply:
            await work
            return reply()

        self.answer_with(exchange, done())

    def answer_with(self, exchange: Exchange, work: Coroutine[Any, Any, Reply]) -> None:
        """Answer with what the work returns, or with the registry's error."""
        self._start(self._answered(exchange, work))

    def run(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do the work; an error is logged."""
        self._start(self._logged(work))

    async def stop(self) -> None:
        """Give up what is not done."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answered(self, exchange: Exchange, work: Coroutine[Any, Any, Reply]) -> None:
        try:
            answer = await work
        except CoordinatorError as error:
            answer = Reply(ResponseCode.SYSTEM_ERROR, str(error)[:512])
        except Exception:
            # A request without an answer costs its client the connection.
            log.exception("registry_change_failed peer=%s", exchange.channel.peer)
            answer = Reply(ResponseCode.SYSTEM_ERROR, "internal error, see the log")
        exchange.answer(answer)

    async def _logged(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except CoordinatorError as error:
            log.warning("registry_change_failed error=%s", error)
        except Exception:
            log.exception("registry_change_failed")
