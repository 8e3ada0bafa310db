"""The asyncio push consumer: one member of a group that shares a topic's queues."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Self

from imago_client.core import membership, pulling
from imago_client.core.subscriptions import Subscription, group_subscriptions
from imago_client.errors import ClientError, UsageError
from imago_client.handlers import Batch, check_handler
from imago_client.inflation import Inflation
from imago_client.queue_reader import QueueFetcher
from imago_client.supervision import Supervisor
from imago_wire.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
    from types import TracebackType

    from imago_client.config import ConsumerConfig
    from imago_client.core.state import ClientState
    from imago_client.driver import Driver
    from imago_client.message_queue import MessageQueue
    from imago_client.received import ReceivedMessage
    from imago_client.supervision import Kept

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
        topics: Mapping[str, str],
        handler: Callable[[Sequence[ReceivedMessage]], Awaitable[None]],
        on_start: Callable[[PushConsumer], None],
        on_stop: Callable[[PushConsumer], None],
    ) -> None:
        check_handler(handler)
        self.state, self.driver, self.config, self.handler = state, driver, config, handler
        self.slots = asyncio.Semaphore(config.concurrency)
        self.tasks = Supervisor(config.group, pause_s=config.error_pause_s)
        self.inflation = Inflation(config.inflated_bytes_max)
        self.handling: set[asyncio.Task[object] | None] = set()
        """The tasks that run a handler now."""
        self._subscriptions = group_subscriptions(topics, config.group, state.clock_ms())
        self._on_start, self._on_stop = on_start, on_stop
        self._readers: dict[MessageQueue, QueueFetcher] = {}
        self._leaving: dict[MessageQueue, QueueFetcher] = {}
        """Readers of locked queues that go to other members once their handlers have ended."""
        self._known = membership.KnownQueues()
        self._rebalance_now = asyncio.Event()
        self._assigning = asyncio.Lock()
        """Held while readers are begun or ended: one queue never has two."""
        self._loops: list[Kept] = []
        self._stopping = False

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        return tuple(self._subscriptions.values())

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """What this member reads now, sorted."""
        return tuple(sorted(self._readers))

    @property
    def stalled(self) -> int:
        """How often a task of this consumer ended though nobody asked it to, and was begun anew."""
        return self.tasks.stalled

    def committable(self) -> dict[MessageQueue, int]:
        """Return the offset up to which each queue is consumed."""
        return {queue: reader.commit_offset for queue, reader in self._readers.items()}

    async def start(self) -> None:
        """Join the group, also after a stop. ClientError: no broker of the topics could be told."""
        if self.tasks.is_running:
            raise UsageError(f"group {self.config.group!r}: this consumer runs already")
        self._on_start(self)
        try:
            await self._join()
        except BaseException:
            self._on_stop(self)
            raise
        self._stopping = False
        self._known = membership.KnownQueues()
        self.tasks.start()
        ready = asyncio.Event()
        self._start_loops(ready)
        await ready.wait()

    async def stop(self) -> None:
        """Leave the group: let running handlers end, commit, give the queues to the others."""
        if not self.tasks.is_running:
            self._on_stop(self)
            return
        if asyncio.current_task() in self.handling:
            raise UsageError(
                "stop: it waits for handlers to end; have none call it, but set a flag"
            )
        self._stopping = True
        for reader in self._readers.values():
            reader.stop()
        for loop in self._loops:
            loop.cancel()
        try:
            await self.tasks.end(self.config.drain_s)
        finally:
            self._on_stop(self)
            await self._leave()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        self.spawn(lambda: self._reset(offsets), "reset offsets")

    async def _reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        async with self._assigning:
            for queue, offset in offsets.items():
                if reader := self._readers.pop(queue, None):
                    reader.stop()
                    if self.config.orderly:
                        await reader.ended(self.config.release_s)
                    await self._commit_one(queue, offset)
                    self._read(queue, offset)

    def _start_loops(self, ready: asyncio.Event) -> None:
        loops = [
            (lambda: self._every(self.config.heartbeat_s, self._beat), "heart beats"),
            (lambda: self._every(self.config.commit_s, self._commit), "commits"),
            (lambda: self._balance_loop(ready), "balance"),
        ]
        if self.config.orderly:
            loops.append((lambda: self._every(self.config.lock_s, self._renew_locks), "locks"))
        self._loops = [self.tasks.keep(loop, name) for loop, name in loops]
        self._loops[2].task.add_done_callback(lambda _: ready.set())  # ended before it was ready

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
            done = [await self._try_balance(one) for one in self._subscriptions.values()]
            ready.set()
            pause_s = self.config.rebalance_s if all(done) else self.config.error_pause_s
            try:
                async with asyncio.timeout(pause_s):
                    await self._rebalance_now.wait()
            except TimeoutError:
                continue

    async def _try_balance(self, subscription: Subscription) -> bool:
        """Balance one topic; return whether this member reads all that it should."""
        try:
            async with self._assigning:
                return await self._balance(subscription)
        except (ClientError, ProtocolError) as error:
            log.warning("rebalance_failed group=%s error=%s", self.config.group, error)
            return False

    async def _balance(self, subscription: Subscription) -> bool:
        topic = subscription.topic
        self.state.drop_route(topic)
        mine = await self.driver.run(membership.assignment(self.state, self.config.group, topic))
        if mine is None:
            await self._beat()  # the brokers do not know this member: a connection was lost
            return True
        self._known.note(self.state, topic)
        read_now = {queue for queue in self._readers if queue.topic == topic}
        await self._give_up(read_now - set(mine))
        wanted = set(mine) - read_now
        new = await self._lockable(wanted - self._leaving.keys())
        begun = await asyncio.gather(*(self._begin(queue) for queue in new))
        return all(begun) and len(new) == len(wanted)  # others may hold the locks yet

    async def _begin(self, queue: MessageQueue) -> bool:
        """Read a queue; False where its shard does not say from where: the others go on."""
        try:
            is_new = self._known.is_new(queue)
            offset = await self.driver.run(
                membership.start_offset(self.state, self.config, queue, is_new=is_new)
            )
        except ClientError as error:
            log.warning("start_failed queue=%s error=%s", queue, error)
            return False
        self._read(queue, offset)
        return True

    async def _lockable(self, queues: set[MessageQueue]) -> list[MessageQueue]:
        if not self.config.orderly or not queues:
            return sorted(queues)
        held = await self.driver.run(membership.lock(self.state, self.config.group, queues))
        return sorted(held & queues)

    def _read(self, queue: MessageQueue, offset: int) -> None:
        reader = QueueFetcher(self, queue, self._subscriptions[queue.topic], offset)
        reader.set_locked(True)
        self._readers[queue] = reader

    async def _give_up(self, queues: set[MessageQueue]) -> None:
        given = {queue: self._readers.pop(queue) for queue in queues}
        for reader in given.values():
            reader.stop()
        if self.config.orderly:
            for queue, reader in given.items():
                self._leaving[queue] = reader
                self.tasks.keep(partial(self._release, queue, reader), f"release {queue}")
        else:
            await asyncio.gather(
                *(self._commit_one(queue, one.commit_offset) for queue, one in given.items())
            )

    async def _release(self, queue: MessageQueue, reader: QueueFetcher) -> None:
        """Unlock a queue once nothing of it is handled here: its next member begins at once."""
        if not await reader.ended(self.config.release_s):
            log.warning(
                "release_overdue queue=%s group=%s: its handler still runs after %g s and another"
                " member may begin to handle the same messages; raise release_s, or end sooner",
                queue,
                self.config.group,
                self.config.release_s,
            )
        await self._commit_one(queue, reader.commit_offset)
        await self.driver.run(membership.unlock(self.state, self.config.group, [queue]))
        self._leaving.pop(queue, None)

    async def _join(self) -> None:
        errors = await self._tell_brokers()
        if errors and not await self._is_known():
            raise errors[0]
        self._log_beat(errors)

    async def _beat(self) -> None:
        self._log_beat(await self._tell_brokers())

    async def _tell_brokers(self) -> list[ClientError]:
        return await self.driver.run(
            membership.heartbeat(self.state, self.config, self._subscriptions.values())
        )

    def _log_beat(self, errors: list[ClientError]) -> None:
        for error in errors:
            log.warning("heartbeat_failed group=%s error=%s", self.config.group, error)

    async def _is_known(self) -> bool:
        """Return whether any broker took the heart beat: it lists this member then."""
        for topic in self._subscriptions:
            mine = await self.driver.run(
                membership.assignment(self.state, self.config.group, topic)
            )
            if mine:
                return True
        return False

    async def _commit(self) -> None:
        # Side by side: a shard without a master holds up no other.
        shards = {queue.shard for queue in self._readers}
        await asyncio.gather(*(self._commit_shard(shard) for shard in shards))

    async def _commit_shard(self, shard: str) -> None:
        for queue, reader in list(self._readers.items()):
            # Not what was given up or moved meanwhile.
            if (
                queue.shard == shard
                and self._readers.get(queue) is reader
                and not await self._commit_one(queue, reader.commit_offset)
            ):
                return  # the others of the shard would wait as long in vain

    async def _commit_one(self, queue: MessageQueue, offset: int) -> bool:
        try:
            await self.driver.run(pulling.commit(self.state, self.config.group, queue, offset))
        except ClientError as error:
            log.warning("commit_failed queue=%s offset=%d error=%s", queue, offset, error)
            return False
        return True

    async def _renew_locks(self) -> None:
        queues = [*self._readers, *self._leaving]
        held = await self.driver.run(membership.lock(self.state, self.config.group, queues))
        for queue in queues:
            if reader := self._readers.get(queue):  # those begun meanwhile were not asked for
                reader.set_locked(queue in held)

    async def _leave(self) -> None:
        self._readers |= self._leaving
        self._leaving.clear()
        await self._commit()
        if self.config.orderly:
            await self.driver.run(
                membership.unlock(self.state, self.config.group, list(self._readers))
            )
        self._readers.clear()
        await self.driver.run(
            membership.unregister(self.state, self.config, self._subscriptions.values())
        )
