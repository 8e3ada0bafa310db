"""The workers that call the handler of a push consumer, as many at once as it may run."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from imago_client.core.consuming.process_queue import ProcessQueue
    from imago_client.received import ReceivedMessage
    from imago_client.supervision import Supervisor

BREATH_S: Final = 0.002
"""Handlers that never wait hold up the loop for no longer, or for one call."""


class Reader(Protocol):
    """Reads one queue."""

    stopped: bool
    paused: bool

    async def call_handler(self, batch: list[ReceivedMessage]) -> int | None:
        """Have the handler do one batch; after a failure return the delay before the next try."""

    async def hand_back(
        self, process: ProcessQueue, batch: list[ReceivedMessage], delay_level: int
    ) -> None:
        """Have a batch delivered again that the handler failed on."""

    def finish(self, process: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Note that messages are consumed, or handed back."""

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        """Hand a message back to the broker."""


Job: TypeAlias = "tuple[Reader, ProcessQueue, list[ReceivedMessage]]"
"""A batch, and who has read it."""


class Takes(Protocol):
    """What readers hand their messages to."""

    def open(self) -> None: ...
    def close(self) -> None: ...
    def put(self, job: Job) -> None: ...
    def wake(self) -> None: ...


class HandlerPool:
    """Batches wait here, in their order, for the next worker that is free.

    A worker goes on to the next batch without a turn of the loop where its handler did not wait;
    further ones begin only as handlers do wait, so that quick handlers cost one task together.
    """

    def __init__(self, tasks: Supervisor, workers_max: int) -> None:
        self._tasks, self._workers_max = tasks, workers_max
        self._jobs: deque[Job] = deque()
        self._held: list[Job] = []
        """Of queues that are paused."""
        self._idle: list[asyncio.Future[None]] = []
        self._workers = 0
        self._is_called = False
        """A worker is on its way to the next batch."""
        self._closed = False

    @property
    def waiting_count(self) -> int:
        """How many batches no worker has taken yet."""
        return len(self._jobs)

    def open(self) -> None:
        """Take batches, also after an end."""
        self._closed, self._is_called, self._workers = False, False, 0

    def close(self) -> None:
        """Begin nothing more: what nobody has begun is forgotten, and comes again elsewhere."""
        self._closed = True
        self._jobs.clear()
        self._held.clear()
        idle, self._idle = self._idle, []
        for one in idle:
            if not one.done():
                one.set_result(None)

    def put(self, job: Job) -> None:
        """Have a batch handled; nothing where the consumer ends."""
        if not self._closed:
            self._jobs.append(job)
            if not self._is_called:
                self._call_one()

    def wake(self) -> None:
        """Have what was held at a pause handled."""
        self._jobs.extendleft(reversed(self._held))
        self._held.clear()
        if self._jobs:
            self._call_one()

    def next_job(self) -> Job | None:
        """Return the next batch of a queue that is still read here, None if there is none."""
        while self._jobs:
            job = self._jobs.popleft()
            if self._jobs and not self._is_called:
                self._call_one()
            reader = job[0]
            if reader.stopped:
                continue
            if not reader.paused:
                return job
            self._held.append(job)
        return None

    async def until_called(self) -> bool:
        """Wait for batches; False: there will be none."""
        if self._closed:
            return False
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(called)
        try:
            await called
        finally:
            self.began()
            if called.cancelled() and self._jobs:
                self._call_one()
        return not self._closed

    def began(self) -> None:
        """Note that the worker that was called is there."""
        self._is_called = False

    def _call_one(self) -> None:
        if self._is_called:
            return
        while self._idle:
            called = self._idle.pop()
            if not called.done():
                called.set_result(None)
                self._is_called = True
                return
        if self._workers < self._workers_max:
            self._workers += 1
            self._is_called = True
            self._tasks.keep(_Worker(self).run, f"handler {self._workers}")


class _Worker:
    def __init__(self, pool: HandlerPool) -> None:
        self._pool = pool
        self._job: Job | None = None
        """In hand; where this worker's task ended by an error it begins with it again."""

    async def run(self) -> None:
        pool, clock = self._pool, asyncio.get_running_loop().time
        pool.began()
        breathed = clock()
        while True:
            self._job = self._job or pool.next_job()
            if self._job is None:
                if not await pool.until_called():
                    return
                breathed = clock()
                continue
            reader, process, batch = self._job
            delay_level = await reader.call_handler(batch)
            if delay_level is None:
                reader.finish(process, batch)
            else:
                await reader.hand_back(process, batch, delay_level)
            self._job = None
            if clock() - breathed > BREATH_S:
                await asyncio.sleep(0)
                breathed = clock()
