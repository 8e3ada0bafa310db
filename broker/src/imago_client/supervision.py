"""The tasks of one consumer: each goes on until the consumer itself ends it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

log = logging.getLogger(__name__)


class HandlerCancelledError(Exception):
    """A handler let out a cancellation that was not the consumer's: it has failed."""

    def __init__(self) -> None:
        super().__init__("the handler let out a cancellation that is not the consumer's")


class SupervisedTask:
    """One task under supervision."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_over = False
        self.task: asyncio.Task[None]

    def cancel(self) -> None:
        """End it for good."""
        self.is_over = True
        self.task.cancel()


class Supervisor:
    """Begins tasks again that end by an error, or by a cancellation that is not the consumer's own.

    A handler may let a CancelledError out, of a task of its own or because it cancels the task
    that it runs in. Taken for the consumer's, that would end the reading of a queue in silence.
    """

    def __init__(self, name: str, *, pause_s: float) -> None:
        self.stalled = 0
        """How often a task ended though nobody had asked for it."""
        self._name, self._pause_s = name, pause_s
        self._supervised: dict[asyncio.Task[None], SupervisedTask] = {}
        self._sentinel: asyncio.Task[None] | None = None
        """Does nothing. Whoever cancels all tasks of the loop, as asyncio.run does, cancels it."""

    @property
    def is_running(self) -> bool:
        return self._sentinel is not None and not self._sentinel.done()

    def start(self) -> None:
        """Take tasks from now on, also after an end."""
        self._sentinel = asyncio.create_task(_wait_for_ever(), name=f"group {self._name}")

    def keep(
        self, work: Callable[[], Coroutine[object, object, None]], name: str
    ) -> SupervisedTask:
        """Run `work` until it returns, or the consumer cancels it; begin it again otherwise."""
        supervised = SupervisedTask(name)
        supervised.task = asyncio.create_task(self._run(supervised, work), name=name)
        self._supervised[supervised.task] = supervised
        supervised.task.add_done_callback(self._supervised.pop)
        return supervised

    def runs_caller(self) -> bool:
        """Whether the caller is in one of these tasks, whose end it must not wait for."""
        return asyncio.current_task() in self._supervised

    def is_cancelled(self) -> bool:
        """Whether the CancelledError just caught is the consumer's own; any other is forgotten."""
        task = asyncio.current_task()
        assert task is not None
        if self._is_over() or (task in self._supervised and self._supervised[task].is_over):
            return True
        while task.uncancel():
            pass
        return False

    async def end(self, drain_s: float = 0.0) -> None:
        """Wait so long for the tasks to end by themselves, then cancel them; return when all are
        gone, also where the wait is cancelled."""
        try:
            if self._supervised and drain_s > 0:
                _, left = await asyncio.wait(list(self._supervised), timeout=drain_s)
                if left:
                    log.warning(
                        "drain_overdue group=%s tasks=%d: they still ran after drain_s, %g s, and"
                        " are cancelled; their messages come again",
                        self._name,
                        len(left),
                        drain_s,
                    )
        finally:
            tasks = list(self._supervised)
            if self._sentinel is not None:
                self._sentinel.cancel()
                tasks.append(self._sentinel)
            for supervised in list(self._supervised.values()):
                supervised.cancel()
            if tasks:
                await asyncio.wait(tasks)
            self._sentinel = None

    def _is_over(self) -> bool:
        sentinel = self._sentinel
        return sentinel is None or sentinel.done() or sentinel.cancelling() > 0

    async def _run(
        self, supervised: SupervisedTask, work: Callable[[], Coroutine[object, object, None]]
    ) -> None:
        while True:
            try:
                await work()
            except asyncio.CancelledError as error:
                if self.is_cancelled():
                    raise
                self._note(supervised, error)
            except Exception as error:
                self._note(supervised, error)
            else:
                return
            await self._pause()

    async def _pause(self) -> None:
        try:
            await asyncio.sleep(self._pause_s)
        except asyncio.CancelledError:
            if self.is_cancelled():
                raise

    def _note(self, supervised: SupervisedTask, error: BaseException) -> None:
        self.stalled += 1
        log.error(
            "task_stalled group=%s task=%s stalled=%d error=%r; it is begun again",
            self._name,
            supervised.name,
            self.stalled,
            error,
            exc_info=error,
        )


async def _wait_for_ever() -> None:
    await asyncio.Event().wait()
