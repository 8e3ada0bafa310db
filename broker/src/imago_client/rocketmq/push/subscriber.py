"""A member of a group whose messages the caller asks for: `async for`, or in batches."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

from imago_client.checks import check_kind, check_seconds, check_whole
from imago_client.errors import UsageError
from imago_client.messages import DELAY_LEVEL_MAX
from imago_client.received import ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from imago_client.message_queue import MessageQueue
    from imago_client.rocketmq.push.handler_pool import Job
    from imago_client.rocketmq.push.push_consumer import PushConsumer


class Mailbox:
    """Keeps what was read until the caller asks for it; stands where push consumers have workers.

    A message belongs to the reader that read it, as long as that reads its queue.
    """

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._held: list[Job] = []
        """Of queues that are paused."""
        self._arrived = asyncio.Event()
        self.is_open = False

    @property
    def waiting_count(self) -> int:
        """How many batches nobody has asked for yet."""
        return len(self._jobs) + len(self._held)

    def open(self) -> None:
        """Take messages, also after an end."""
        self.is_open = True

    def close(self) -> None:
        """Take no more; who waits gets nothing."""
        self.is_open = False
        self._jobs.clear()
        self._held.clear()
        self._arrived.set()

    def put(self, job: Job) -> None:
        """Keep messages; none where the consumer ends."""
        if self.is_open:
            self._jobs.append(job)
            self._arrived.set()

    def wake(self) -> None:
        """Have what was held at a pause looked at again."""
        self._jobs.extendleft(reversed(self._held))
        self._held.clear()
        self._arrived.set()

    def take(self, count_max: int) -> list[Job]:
        """Return up to so many messages of queues that are still read and not paused."""
        taken: list[Job] = []
        while self._jobs and count_max > 0:
            reader, process, batch = job = self._jobs.popleft()
            if reader.stopped:
                continue
            if reader.paused:
                self._held.append(job)
                continue
            if len(batch) > count_max:
                self._jobs.appendleft((reader, process, batch[count_max:]))
                batch = batch[:count_max]
            taken.append((reader, process, batch))
            count_max -= len(batch)
        return taken

    async def until_arrived(self) -> None:
        """Wait until something may be there to take, or the consumer ends."""
        self._arrived.clear()
        await self._arrived.wait()


class Subscriber:
    """Iterates over the messages of a member of a group; made by `Client.subscribe`.

    It joins at the first message asked for, or as `async with`, and leaves with `stop`, at the end
    of that block or with its client. Whoever asks for the next message has consumed those before;
    with `manual=True` what was not given to `acknowledge` or `retry` comes again once the queue has
    another reader. Offsets are committed every few seconds: a message may come twice, never not at
    all. One task asks at a time.
    """

    def __init__(self, make: Callable[[Mailbox], PushConsumer], *, manual: bool) -> None:
        self._mailbox = Mailbox()
        self._consumer = make(self._mailbox)
        if self._consumer.config.orderly:
            raise UsageError("orderly: only push_consumer locks queues")
        self._manual = manual
        self._handed: dict[ReceivedMessage, Job] = {}

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """What this member reads now, sorted."""
        return self._consumer.queues

    async def start(self) -> None:
        """Join the group. ClientError: no broker of the topics could be told."""
        await self._consumer.start()

    async def stop(self) -> None:
        """Leave the group: commit what is acknowledged, give the queues to the others."""
        if not self._manual:
            self._handed.clear()  # what the caller had in hand is not known to be consumed
        await self._consumer.stop()
        self._handed.clear()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, *_error: object) -> None:
        if kind is None and not self._manual:
            self._finish(list(self._handed))
        await self.stop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        found = await self._next(1, None)
        if not found:
            raise StopAsyncIteration
        return found[0]

    async def batch(self, messages_max: int = 100, timeout_s: float = 1.0) -> list[ReceivedMessage]:
        """Return what is there, after at most `timeout_s` for the first; none if none came."""
        check_whole("messages_max", messages_max, 1)
        check_seconds("timeout_s", timeout_s)
        return await self._next(messages_max, timeout_s)

    def acknowledge(self, messages: ReceivedMessage | Iterable[ReceivedMessage]) -> None:
        """Say that messages are consumed, in any order. UsageError: they were not handed out here.

        One whose queue has gone to another member meanwhile comes again there.
        """
        self._finish(_listed(messages))

    async def retry(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Have a message delivered again later, or below 0 put with the dead letters."""
        check_whole("delay_level", delay_level, -(1 << 31), DELAY_LEVEL_MAX)
        [found] = _listed(message)
        await self._job_of(found)[0].send_back(found, delay_level)
        self._finish([found])

    async def commit(self) -> None:
        """Commit now what is acknowledged."""
        await self._consumer.commit()

    def pause(self, *queues: MessageQueue) -> None:
        """Read no more of these queues for now, and hand out nothing of them."""
        self._consumer.pause(*queues)

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with queues that were paused."""
        self._consumer.resume(*queues)

    @property
    def paused(self) -> tuple[MessageQueue, ...]:
        """The queues that are paused, sorted."""
        return self._consumer.paused

    def positions(self) -> dict[MessageQueue, int]:
        """Return up to where each queue is consumed: what the next commit says."""
        return self._consumer.positions()

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on elsewhere in a queue that this member reads; what is in hand of it counts no more.

        UsageError: it does not read it now.
        """
        await self._consumer.seek(queue, offset)

    async def _next(self, count_max: int, timeout_s: float | None) -> list[ReceivedMessage]:
        if not self._consumer.tasks.is_running:
            if timeout_s is None and self._handed:
                return []  # stopped within the loop
            await self.start()
        if not self._manual:
            self._finish(list(self._handed))
        taken = self._mailbox.take(count_max)
        if not taken:
            try:
                async with asyncio.timeout(timeout_s):
                    while not (taken := self._mailbox.take(count_max)) and self._mailbox.is_open:
                        await self._mailbox.until_arrived()
            except TimeoutError:
                return []
        found: list[ReceivedMessage] = []
        for job in taken:
            found += job[2]
            self._handed.update((message, job) for message in job[2])
        self._consumer.state.watch.after_receive(self._consumer.config.group, found)
        return found

    def _finish(self, messages: list[ReceivedMessage]) -> None:
        for message in messages:
            reader, process, _ = self._job_of(message)
            del self._handed[message]
            reader.finish(process, [message])

    def _job_of(self, message: ReceivedMessage) -> Job:
        check_kind("message", message, ReceivedMessage)
        found = self._handed.get(message)
        if found is None:
            raise UsageError(
                f"message {message.message_id}: it is done already, or was not handed out by this"
                " subscription"
            )
        return found


def _listed(messages: ReceivedMessage | Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
    return [messages] if isinstance(messages, ReceivedMessage) else list(messages)
