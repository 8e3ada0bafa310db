"""Reads one assigned queue of a push consumer and hands its messages to the handler."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from imago_client.checks import check_whole
from imago_client.core.consuming import membership, pulling
from imago_client.core.consuming.process_queue import ProcessQueue
from imago_client.core.routing import MASTER_ID
from imago_client.errors import BodyError, ClientError
from imago_client.handlers import Batch
from imago_client.messages import DELAY_LEVEL_MAX, PullStatus
from imago_client.received import cut, inflated, log_unreadable
from imago_client.supervision import HandlerCancelledError
from imago_wire.errors import ProtocolError
from imago_wire.record_format.layout import SYS_COMPRESSED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_client.config import ConsumerConfig
    from imago_client.core.consuming.subscriptions import Subscription
    from imago_client.core.state import ClientState
    from imago_client.inflation import Inflation
    from imago_client.message_queue import MessageQueue
    from imago_client.received import Pulled, ReceivedMessage
    from imago_client.rocketmq.driver import Driver
    from imago_client.rocketmq.push.handler_pool import Takes
    from imago_client.rocketmq.tracing import Tracer
    from imago_client.supervision import Supervisor

    Listener: TypeAlias = Callable[[tuple[MessageQueue, ...]], Awaitable[None]]

log = logging.getLogger(__name__)


class RetryLater(Exception):  # noqa: N818 - raised by handlers to ask for something, not a failure
    """Raise it in a handler to have the messages delivered again, and to choose when.

    `delay_level` 1…18 on the broker's scale (1 s, 5 s, 10 s, …); 0: the broker lengthens the
    delay with every retry; below 0: to the dead letters at once.
    """

    def __init__(self, delay_level: int = 0) -> None:
        check_whole("delay_level", delay_level, -(1 << 31), DELAY_LEVEL_MAX)
        super().__init__(f"retry at delay level {delay_level}")
        self.delay_level = delay_level


@dataclass(slots=True, kw_only=True)
class Shared:
    """What the readers of one consumer share."""

    state: ClientState
    driver: Driver
    config: ConsumerConfig
    handler: Callable[[list[ReceivedMessage]], Awaitable[None]]
    slots: asyncio.Semaphore
    """As many as handlers may run in order at once."""
    pool: Takes
    tasks: Supervisor
    inflation: Inflation
    tracer: Tracer | None = None
    on_assigned: Listener | None = None
    """Awaited with the queues that this member has begun to read."""
    on_revoked: Listener | None = None
    """Awaited with those that it reads no more, committed as far as they were consumed."""


class QueueFetcher:
    """Pulls, filters, hands over, and keeps count of what may be committed."""

    def __init__(
        self, shared: Shared, queue: MessageQueue, subscription: Subscription, start_offset: int
    ) -> None:
        self.queue = queue
        self.locked = not shared.config.orderly
        self.stopped = False
        self.paused = False
        self.process = ProcessQueue(start_offset, shared.inflation)
        self._shared = shared
        self._subscription = subscription
        self._takes_all = not subscription.tags and not shared.config.orderly
        self._offset = start_offset
        self._read_from = MASTER_ID
        self._changed = asyncio.Event()
        self._waits = False
        """Whether its task waits for a change."""
        self._is_handling = False
        self._began = False
        self._pulling = shared.tasks.keep(self._pull_loop, f"pull {queue}")

    @property
    def commit_offset(self) -> int:
        """Up to where the queue is consumed."""
        return self.process.commit_offset

    def stop(self) -> None:
        """Pull no more. Handlers that run go on, and may end after the last commit."""
        self.stopped = True
        self.process.release()
        self._shared.inflation.changed()
        if not self._is_handling:  # in order, the handler runs within the pulling task
            self._pulling.cancel()

    async def ended(self, seconds: float) -> bool:
        """Wait so long for the pulling to end, and in order for the handler too."""
        done, _ = await asyncio.wait([self._pulling.task], timeout=seconds)
        return bool(done)

    async def _pull_loop(self) -> None:
        config = self._shared.config
        if self._began:  # and ended where nobody expected it: what was in hand comes again
            self._begin_again(self.commit_offset)
            self._offset, self._read_from = self.commit_offset, MASTER_ID
        self._began = True
        while not self.stopped:
            await self._cached_room()
            try:
                pulled = await self._pull()
                messages = deque(cut(self.queue, pulled.body))
                self._shared.state.watch.received(len(messages), len(pulled.body))
            except (ClientError, ProtocolError) as error:
                if times := self._shared.state.warnings.due("pull", self.queue, type(error)):
                    said = "pull_failed queue=%s times=%d error=%s"
                    log.warning(said, self.queue, times, error)
                self._read_from = MASTER_ID
                await asyncio.sleep(config.error_pause_s)
                continue
            self._note(pulled)
            await self._work_off(messages, pulled.next_offset)

    async def _work_off(self, messages: deque[ReceivedMessage], next_offset: int) -> None:
        """Handle an answer's messages, of compressed ones as many at a time as find room."""
        tried = self._take_in(messages, next_offset, self._room())
        while True:
            if self._shared.config.orderly:
                await self._handle_in_order()
            else:
                self._hand_out()
            if not messages or self.stopped:
                return
            if tried is None:
                tried = self._take_in(messages, next_offset, self._room())
            else:
                tried = await self._take_in_later(messages, next_offset, tried)

    async def _cached_room(self) -> None:
        config, process = self._shared.config, self.process
        while (
            self.paused
            or process.cached_count >= config.cached_messages_max
            or process.cached_bytes >= config.cached_bytes_max
        ):
            await self._until_changed()

    async def _until_changed(self) -> None:
        self._changed.clear()
        self._waits = True
        try:
            await self._changed.wait()
        finally:
            self._waits = False

    async def _pull(self) -> Pulled:
        config = self._shared.config
        request = pulling.PullArguments(
            group=config.group,
            queue=self.queue,
            offset=self._offset,
            subscription=self._subscription,
            messages_max=config.pull_messages_max,
            bulk_bytes=pulling.bulk_bytes(config.pull_messages_max),
            poll_s=config.poll_s,
            commit_offset=self.process.commit_offset,
            read_from=self._read_from,
        )
        return await self._shared.driver.run(pulling.pull(self._shared.state, request))

    def _note(self, pulled: Pulled) -> None:
        if pulled.status is PullStatus.OFFSET_ILLEGAL:
            log.warning("offset_out_of_range %s", pulling.moved_text(pulled, self._offset))
            self._begin_again(pulled.next_offset)
        self._offset = pulled.next_offset
        self._read_from = pulled.read_from

    def _begin_again(self, offset: int) -> None:
        self.process.release()
        self._shared.inflation.changed()
        self.process = ProcessQueue(offset, self._shared.inflation)

    def _room(self) -> int:
        """Return how many bytes compressed bodies may take now: of the consumer, of this queue."""
        free = self._shared.inflation.free
        if not self.process.cached_count:
            return free
        cached_room = self._shared.config.cached_bytes_max - self.process.cached_bytes
        return max(0, min(free, cached_room))

    def _take_in(self, messages: deque[ReceivedMessage], next_offset: int, room: int) -> int | None:
        """Take messages up to a compressed one that finds no room: return what there was for it.

        In order no more than one batch: what a queue that is held at a failure cannot handle yet
        is held as it is stored.
        """
        if self._takes_all and not any(one.sys_flag & SYS_COMPRESSED for one in messages):
            self.process.add(messages, next_offset)
            messages.clear()
            return None
        config = self._shared.config
        while messages:
            if config.orderly and self.process.cached_count >= config.batch_messages_max:
                return None
            if self._subscription.accepts(messages[0].tags):
                message = inflated(messages[0], room)
                too_large = message.error is not None and message.error.is_too_large
                if too_large and room < self._shared.inflation.bytes_max:
                    self.process.advance(message.offset)
                    return room
                if message.error is not None:
                    log_unreadable(message)
                self.process.add([message], message.offset + 1)
                room = min(room, self._room())
            messages.popleft()
        self.process.advance(next_offset)
        return None

    async def _take_in_later(
        self, messages: deque[ReceivedMessage], next_offset: int, tried: int
    ) -> int | None:
        """Wait for more room than was tried, then take; one reader of the consumer at a time."""
        inflation = self._shared.inflation
        wanted = inflation.worth_waiting_for(tried)
        async with inflation.turn:
            if not await inflation.until(lambda: self._room() >= wanted):
                log.warning(
                    "inflation_overdue queue=%s: no room for a compressed message, its consumer's"
                    " handlers hold inflated ones of %d bytes; it is taken all the same",
                    self.queue,
                    inflation.used,
                )
                return self._take_in(messages, next_offset, inflation.bytes_max)
            return self._take_in(messages, next_offset, self._room())

    # Concurrent: as many handlers at once as the whole consumer may run.

    def _hand_out(self) -> None:
        shared, process = self._shared, self.process
        while batch := process.take(shared.config.batch_messages_max):
            shared.pool.put((self, process, batch))

    async def call_handler(self, batch: list[ReceivedMessage]) -> int | None:
        """Return None after success, else the delay level at which to try again."""
        ended = _begin(self._shared, batch)
        failed: BaseException | None = None
        try:
            await self._shared.handler(Batch(batch))
        except (Exception, asyncio.CancelledError) as error:
            failed = error
        if isinstance(failed, asyncio.CancelledError) and not self._shared.tasks.is_cancelled():
            failed = HandlerCancelledError().with_traceback(failed.__traceback__)
        if ended is not None:
            ended(failed)
        if failed is None:
            return None
        if not isinstance(failed, Exception):
            raise failed
        self._shared.state.watch.counters.handlers_failed += 1
        return _delay_after(failed, batch)

    async def hand_back(
        self, process: ProcessQueue, batch: list[ReceivedMessage], delay_level: int
    ) -> None:
        """Have a batch delivered again that the handler failed on."""
        for message in batch:
            await self.send_back(message, delay_level)
        self.finish(process, batch)

    def finish(self, process: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Note that messages are consumed, or handed back."""
        process.finish(messages)
        if self._waits:
            self._changed.set()
        inflation = self._shared.inflation
        if inflation.is_awaited:
            inflation.changed()

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        """Hand a message back to the broker; try until it takes it or the consumer ends."""
        shared = self._shared
        if _is_too_large(message):
            delay_level = -1  # to the dead letters: it will be too large the next time too
        while True:
            try:
                await shared.driver.run(
                    membership.send_back(shared.state, shared.config, message, delay_level)
                )
            except (ClientError, ProtocolError) as error:
                log.warning(
                    "send_back_failed queue=%s offset=%d error=%s",
                    self.queue,
                    message.offset,
                    error,
                )
                await asyncio.sleep(shared.config.error_pause_s)
            else:
                return

    # Orderly: one batch after the other, the same one again after a failure.

    async def _handle_in_order(self) -> None:
        config = self._shared.config
        while batch := self.process.take(config.batch_messages_max):
            tries = 0
            while not self.stopped:
                await self._until_locked()
                delay_level = await self._call_in_order(batch)
                if delay_level is None:
                    self.finish(self.process, batch)
                    break
                tries += 1
                is_over = delay_level < 0 or self._is_over(batch, tries)
                hopeless = [one for one in batch if is_over or _is_too_large(one)]
                for message in hopeless:
                    await self.send_back(message, -1)
                self.finish(self.process, hopeless)
                batch = [one for one in batch if one not in hopeless]
                if not batch:
                    break
                await asyncio.sleep(config.suspend_s)
            if self.stopped:
                return

    async def _call_in_order(self, batch: list[ReceivedMessage]) -> int | None:
        async with self._shared.slots:
            self._is_handling = True
            try:
                return await self.call_handler(batch)
            finally:
                self._is_handling = False

    def _is_over(self, batch: list[ReceivedMessage], tries: int) -> bool:
        times_max = self._shared.config.reconsume_times_max
        return times_max is not None and batch[0].reconsume_times + tries > times_max

    async def _until_locked(self) -> None:
        while not self.locked or self.paused:
            await self._until_changed()

    def set_paused(self, *, paused: bool) -> None:
        """Pull and hand over nothing for now, or go on."""
        self.paused = paused
        self._changed.set()

    def set_locked(self, locked: bool) -> None:
        """Go on, or pause before the next message, as this member holds the queue or not."""
        self.locked = locked
        self._changed.set()


def _is_too_large(message: ReceivedMessage) -> bool:
    return message.error is not None and message.error.is_too_large


def _begin(
    shared: Shared, batch: list[ReceivedMessage]
) -> Callable[[BaseException | None], None] | None:
    """Tell who watches that a handler begins; return what tells how it has ended."""
    tracer, watch, group = shared.tracer, shared.state.watch, shared.config.group
    if tracer is None and not watch.interceptors:
        return None
    traced = None if tracer is None else tracer.handling(group, batch)
    begun = watch.before_handle(group, batch)

    def ended(failed: BaseException | None) -> None:
        watch.after_handle(begun, failed)
        if traced is not None and not isinstance(failed, asyncio.CancelledError):
            traced(failed is None)

    return ended


def _delay_after(failed: Exception, batch: list[ReceivedMessage]) -> int:
    """Say what a handler failed of; return the delay level at which to try again."""
    if isinstance(failed, RetryLater):
        return failed.delay_level
    queue = batch[0].queue
    if isinstance(failed, BodyError):
        log.error("handler_failed queue=%s error=%s", queue, failed)
        return 0
    said = "handler_failed queue=%s offset=%d"
    log.error(said, queue, batch[0].offset, exc_info=failed)
    return 0
