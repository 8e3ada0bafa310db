"""The queues that a push consumer has been assigned: begun, committed, given up."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from imago_client.core.consuming import membership, pulling
from imago_client.core.consuming.steering import PausedQueues, Reassigned, check_read
from imago_client.errors import ClientError
from imago_client.rocketmq.push.queue_reader import QueueFetcher
from imago_wire.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_client.core.consuming.subscriptions import Subscription
    from imago_client.message_queue import MessageQueue
    from imago_client.rocketmq.push.group_presence import GroupPresence
    from imago_client.rocketmq.push.queue_reader import Shared

log = logging.getLogger(__name__)


class AssignedQueues:
    """One reader a queue, as the group's members and the queues' locks have it."""

    def __init__(
        self, shared: Shared, subscriptions: Mapping[str, Subscription], presence: GroupPresence
    ) -> None:
        self._shared = shared
        self._state, self._driver, self._config = shared.state, shared.driver, shared.config
        self._subscriptions = subscriptions
        self._presence = presence
        self._readers: dict[MessageQueue, QueueFetcher] = {}
        self._leaving: dict[MessageQueue, QueueFetcher] = {}
        """Readers of locked queues that go to other members once their handlers have ended."""
        self._known = membership.KnownQueues()
        self.paused = PausedQueues()
        self._reassigned = Reassigned()
        self._assigning = asyncio.Lock()
        """Held while readers are begun or ended: one queue never has two."""

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """What this member reads now, sorted."""
        return tuple(sorted(self._readers))

    def positions(self) -> dict[MessageQueue, int]:
        """Return the offset up to which each queue is consumed."""
        return {queue: reader.commit_offset for queue, reader in self._readers.items()}

    def begin(self) -> None:
        """Start as a new member, which knows of no queue that came later."""
        self._known = membership.KnownQueues()

    def appeared(self, topic: str) -> None:
        """Read a topic from its beginning that came later than this member."""
        self._known.appeared(topic)

    def stop_reading(self) -> None:
        """Read no more; handlers that run may end."""
        for reader in self._readers.values():
            reader.stop()

    async def balance(self, subscription: Subscription) -> bool:
        """Balance one topic; return whether this member reads all that it should."""
        try:
            async with self._assigning:
                return await self._balance(subscription)
        except (ClientError, ProtocolError) as error:
            log.warning("rebalance_failed group=%s error=%s", self._config.group, error)
            return False
        finally:
            await self._tell()

    def pause(self, queues: Iterable[MessageQueue], *, paused: bool) -> None:
        """Have readers pause, or go on. UsageError: a queue is not read here now."""
        wanted = set(queues)
        if paused:
            self.paused.pause(wanted, self._readers)
        else:
            self.paused.resume(wanted)
        for queue in wanted & self._readers.keys():
            self._readers[queue].set_paused(paused=paused)
        self._shared.pool.wake()

    def check_read(self, queue: MessageQueue) -> None:
        """UsageError: this member does not read the queue now."""
        check_read(queue, self._readers)

    async def _tell(self) -> None:
        """Tell the listeners what came and what went, outside the lock: they may seek."""
        went, came = self._reassigned.taken()
        for listen, queues in ((self._shared.on_revoked, went), (self._shared.on_assigned, came)):
            if listen is None or not queues:
                continue
            try:
                await listen(queues)
            except Exception:
                log.exception("listener_failed group=%s", self._config.group)

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on elsewhere in some queues."""
        async with self._assigning:
            for queue, offset in offsets.items():
                await self._go_to(queue, offset)

    async def _go_to(self, queue: MessageQueue, offset: int) -> None:
        if reader := self._readers.pop(queue, None):
            reader.stop()
            if self._config.orderly:
                await reader.ended(self._config.release_s)
            await self._commit_one(queue, offset)
            self._read(queue, offset)

    async def commit(self) -> None:
        """Tell the brokers how far each queue is consumed."""
        # Side by side: a shard without a master holds up no other.
        shards = {queue.shard for queue in self._readers}
        await asyncio.gather(*(self._commit_shard(shard) for shard in shards))

    async def renew_locks(self) -> None:
        """Keep the locks of what is read in order; readers that lost theirs hand over nothing."""
        queues = [*self._readers, *self._leaving]
        held = await self._driver.run(membership.lock(self._state, self._config.group, queues))
        for queue in queues:
            if reader := self._readers.get(queue):  # those begun meanwhile were not asked for
                reader.set_locked(queue in held)

    async def give_back(self) -> None:
        """Commit and unlock everything: the consumer leaves its group."""
        self._readers |= self._leaving
        self._leaving.clear()
        await self.commit()
        if self._config.orderly:
            await self._driver.run(
                membership.unlock(self._state, self._config.group, list(self._readers))
            )
        self._reassigned.went(self._readers)
        self._readers.clear()
        self.paused.clear()
        await self._tell()

    async def _balance(self, subscription: Subscription) -> bool:
        topic = subscription.topic
        self._state.drop_route(topic)
        mine = await self._driver.run(membership.assignment(self._state, self._config.group, topic))
        if mine is None:
            # The brokers do not know this member: a connection was lost.
            await self._presence.beat()
            return True
        self._known.note(self._state, topic)
        read_now = {queue for queue in self._readers if queue.topic == topic}
        await self._give_up(read_now - set(mine))
        anew = await self._driver.run(self._known.made_anew(self._state, mine))
        for queue in anew & self._readers.keys():
            log.warning("topic_made_anew queue=%s group=%s", queue, self._config.group)
            first = await self._driver.run(pulling.min_offset(self._state, queue))
            await self._go_to(queue, first)
        wanted = set(mine) - read_now
        new = await self._lockable(wanted - self._leaving.keys())
        begun = await asyncio.gather(*(self._begin(queue) for queue in new))
        return all(begun) and len(new) == len(wanted)  # others may hold the locks yet

    async def _begin(self, queue: MessageQueue) -> bool:
        """Read a queue; False where its shard does not say from where: the others go on."""
        try:
            is_new = self._known.is_new(queue)
            offset = await self._driver.run(
                membership.start_offset(self._state, self._config, queue, is_new=is_new)
            )
        except ClientError as error:
            log.warning("start_failed queue=%s error=%s", queue, error)
            return False
        self._read(queue, offset)
        self._reassigned.came(queue)
        return True

    async def _lockable(self, queues: set[MessageQueue]) -> list[MessageQueue]:
        if not self._config.orderly or not queues:
            return sorted(queues)
        held = await self._driver.run(membership.lock(self._state, self._config.group, queues))
        return sorted(held & queues)

    def _read(self, queue: MessageQueue, offset: int) -> None:
        reader = QueueFetcher(self._shared, queue, self._subscriptions[queue.topic], offset)
        reader.set_locked(True)
        reader.set_paused(paused=queue in self.paused)
        self._readers[queue] = reader

    async def _give_up(self, queues: set[MessageQueue]) -> None:
        given = {queue: self._readers.pop(queue) for queue in queues}
        self.paused.resume(queues)
        self._reassigned.went(queues)
        for reader in given.values():
            reader.stop()
        if self._config.orderly:
            for queue, reader in given.items():
                self._leaving[queue] = reader
                self._shared.tasks.keep(partial(self._release, queue, reader), f"release {queue}")
        else:
            await asyncio.gather(
                *(self._commit_one(queue, one.commit_offset) for queue, one in given.items())
            )

    async def _release(self, queue: MessageQueue, reader: QueueFetcher) -> None:
        """Unlock a queue once nothing of it is handled here: its next member begins at once."""
        if not await reader.ended(self._config.release_s):
            log.warning(
                "release_overdue queue=%s group=%s: its handler still runs after %g s and another"
                " member may begin to handle the same messages; raise release_s, or end sooner",
                queue,
                self._config.group,
                self._config.release_s,
            )
        await self._commit_one(queue, reader.commit_offset)
        await self._driver.run(membership.unlock(self._state, self._config.group, [queue]))
        self._leaving.pop(queue, None)

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
            await self._driver.run(pulling.commit(self._state, self._config.group, queue, offset))
        except ClientError as error:
            if times := self._state.warnings.due("commit", queue, type(error)):
                said = "commit_failed queue=%s offset=%d times=%d error=%s"
                log.warning(said, queue, offset, times, error)
            return False
        return True
