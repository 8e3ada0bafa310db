"""The asyncio push consumer: one member of a group that shares a topic's queues."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Self

from imago_client.checks import check_whole
from imago_client.core.consuming.following import FollowedTopics
from imago_client.errors import ClientError, UsageError
from imago_client.handlers import Batch, check_handler
from imago_client.inflation import Inflation
from imago_client.rocketmq.push.assigned_queues import AssignedQueues
from imago_client.rocketmq.push.group_presence import GroupPresence
from imago_client.rocketmq.push.handler_pool import HandlerPool
from imago_client.rocketmq.push.queue_reader import Shared
from imago_client.supervision import Supervisor
from imago_wire.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from imago_client.config import ConsumerConfig
    from imago_client.core.consuming.following import Wanted
    from imago_client.core.consuming.subscriptions import Subscription
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue
    from imago_client.received import ReceivedMessage
    from imago_client.rocketmq.driver import Driver
    from imago_client.rocketmq.push.handler_pool import Takes
    from imago_client.rocketmq.push.queue_reader import Listener
    from imago_client.rocketmq.tracing import Tracer
    from imago_client.supervision import SupervisedTask

log = logging.getLogger(__name__)


class PushConsumer:
    """Balances the topics' queues over the group's members and calls the handler with messages.

    Use it as `async with`, or call `start` and `stop`. A handler that returns has consumed its
    messages; one that raises gets them again later (`RetryLater` chooses when), and after too
    many retries they go to the group's dead-letter topic. Offsets are committed every few
    seconds: after a crash messages may come twice, never not at all.
    """

    def __init__(
        self,
        state: ClientState,
        driver: Driver,
        config: ConsumerConfig,
        topics: Wanted,
        handler: Callable[[list[ReceivedMessage]], Awaitable[None]],
        on_start: Callable[[PushConsumer], None],
        on_stop: Callable[[PushConsumer], None],
        tracer: Tracer | None = None,
        *,
        pool: Takes | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
    ) -> None:
        check_handler(handler)
        for name, listener in (("on_assigned", on_assigned), ("on_revoked", on_revoked)):
            if listener is not None:
                check_handler(listener, name)
        self.state, self.config, self.handler = state, config, handler
        self.tasks = Supervisor(config.group, pause_s=config.error_pause_s)
        self._shared = Shared(
            state=state,
            driver=driver,
            config=config,
            handler=handler,
            slots=asyncio.Semaphore(config.concurrency),
            pool=pool or HandlerPool(self.tasks, config.concurrency),
            tasks=self.tasks,
            inflation=Inflation(config.inflated_bytes_max),
            tracer=tracer,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
        )
        self._following = FollowedTopics(topics, config.group, state.clock_ms())
        self._subscriptions = self._following.by_topic
        self._on_start, self._on_stop = on_start, on_stop
        self._presence = GroupPresence(state, driver, config, self._subscriptions)
        self._assigned = AssignedQueues(self._shared, self._subscriptions, self._presence)
        self._rebalance_now = asyncio.Event()
        self._loops: list[SupervisedTask] = []
        self._stopping = False

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        return tuple(self._subscriptions.values())

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """What this member reads now, sorted."""
        return self._assigned.queues

    @property
    def stalled(self) -> int:
        """How often a task of this consumer ended though nobody asked it to, and was begun anew."""
        return self.tasks.stalled

    def positions(self) -> dict[MessageQueue, int]:
        """Return up to where each queue is consumed: what the next commit says."""
        return self._assigned.positions()

    @property
    def paused(self) -> tuple[MessageQueue, ...]:
        """The queues that are paused, sorted."""
        return self._assigned.paused.listed()

    def pause(self, *queues: MessageQueue) -> None:
        """Read no more of these queues for now, and hand over nothing of them; handlers that run
        go on. UsageError: this member does not read one of them now."""
        self._assigned.pause(queues, paused=True)

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with queues that were paused; a queue that goes to another member is resumed."""
        self._assigned.pause(queues, paused=False)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on elsewhere in a queue that this member reads; the group's offset moves at once."""
        check_whole("offset", offset, 0)
        self._assigned.check_read(queue)
        await self._assigned.reset({queue: offset})

    async def commit(self) -> None:
        """Commit now how far each queue is consumed."""
        await self._assigned.commit()

    async def start(self) -> None:
        """Join the group, also after a stop. ClientError: no broker of the topics could be told."""
        if self.tasks.is_running:
            raise UsageError(f"group {self.config.group!r}: this consumer runs already")
        self._on_start(self)
        try:
            await self._look()
            await self._presence.join()
        except BaseException:
            self._on_stop(self)
            raise
        self._stopping = False
        self._shared.pool.open()
        self._assigned.begin()
        self.tasks.start()
        ready = asyncio.Event()
        self._start_loops(ready)
        await ready.wait()

    async def stop(self) -> None:
        """Leave the group: let running handlers end, commit, give the queues to the others."""
        if not self.tasks.is_running:
            self._on_stop(self)
            return
        if self.tasks.runs_caller():
            raise UsageError(
                "stop: it waits for handlers to end; have none call it, but set a flag"
            )
        self._stopping = True
        self._assigned.stop_reading()
        self._shared.pool.close()
        for loop in self._loops:
            loop.cancel()
        try:
            await self.tasks.end(self.config.drain_s)
        finally:
            self._on_stop(self)
            await self._assigned.give_back()
            await self._presence.leave()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()

    async def consume_now(self, message: ReceivedMessage) -> None:
        """Call the handler with one message that the broker hands over; raise what it raises."""
        await self.handler(Batch([message]))

    def spawn(self, work: Callable[[], Coroutine[object, object, None]], name: str) -> None:
        """Run something beside the consumer's own tasks, as long as the consumer runs."""
        if self.tasks.is_running and not self._stopping:
            self.tasks.keep(work, name)

    def rebalance_soon(self) -> None:
        """Balance now: the broker said that the group's members changed."""
        self._rebalance_now.set()

    def reset_soon(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on elsewhere in some queues, as an administrator asked."""
        self.spawn(lambda: self._assigned.reset(offsets), "reset offsets")

    def _start_loops(self, ready: asyncio.Event) -> None:
        loops = [
            (lambda: self._every(self.config.heartbeat_s, self._presence.beat), "heart beats"),
            (lambda: self._every(self.config.commit_s, self._assigned.commit), "commits"),
            (lambda: self._balance_loop(ready), "balance"),
        ]
        if self.config.orderly:
            loops.append(
                (lambda: self._every(self.config.lock_s, self._assigned.renew_locks), "locks")
            )
        self._loops = [self.tasks.keep(loop, name) for loop, name in loops]
        self._loops[2].task.add_done_callback(lambda _: ready.set())  # ended before it was ready

    async def _look(self) -> list[str]:
        """Take the topics that a pattern matches now; return those that are new."""
        read = {queue.topic for queue in self.queues}
        return await self._shared.driver.run(self._following.look(self.state, read))

    async def _look_again(self) -> None:
        try:
            new = await self._look()
        except (ClientError, ProtocolError) as error:
            log.warning("pattern_failed group=%s error=%s", self.config.group, error)
            return
        for topic in new:
            self._assigned.appeared(topic)
        if new:
            await self._presence.beat()

    async def _every(self, period_s: float, act: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(period_s)
            try:
                await act()
            except (ClientError, ProtocolError) as error:
                log.warning("background_failed group=%s error=%s", self.config.group, error)

    async def _balance_loop(self, ready: asyncio.Event) -> None:
        while True:
            self._rebalance_now.clear()
            await self._look_again()
            wanted = list(self._subscriptions.values())
            done = [await self._assigned.balance(one) for one in wanted]
            ready.set()
            pause_s = self.config.rebalance_s if all(done) else self.config.error_pause_s
            try:
                async with asyncio.timeout(pause_s):
                    await self._rebalance_now.wait()
            except TimeoutError:
                continue
