"""The asyncio pull consumer: the caller says what to read, from where, and when to commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.checks import check_queue
from imago_client.core.consuming import pulling
from imago_client.core.consuming.subscriptions import ALL, TAG, subscribe
from imago_client.core.lookup import find_named_route

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_client.core.effects import Runner
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue
    from imago_client.messages import QueueEnd, ShardBounds
    from imago_client.received import Pulled


class PullConsumer:
    """Reads queues of the caller's choice; made by `Client.pull_consumer`.

    `group` names the committed offsets. There is no balancing between members: that is what
    `Client.push_consumer` does.
    """

    def __init__(self, state: ClientState, driver: Runner, group: str) -> None:
        self._state, self._driver = state, driver
        self.group = group
        self._started_ms = state.clock_ms()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return all queues of a topic that can be read, sorted."""
        route = await self._driver.run(find_named_route(self._state, topic))
        return route.read_queues

    async def lost_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return those of its queues that nobody can read now: their shards have no live broker."""
        return (await self._driver.run(find_named_route(self._state, topic))).lost_queues

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        tags: str = ALL,
        messages_max: int = 32,
        bulk_bytes: int | None = None,
        poll_s: float = 0.0,
    ) -> Pulled:
        """Read messages of a queue from `offset` on; go on at the answer's `next_offset`.

        `tags`: a TAG expression, or a `Sql` filter. `poll_s`: how long the broker may wait for a
        message if there is none. `bulk_bytes`: ask for larger answers than RocketMQ's 32 messages
        or 256 KiB, where the broker gives them.
        """
        check_queue(queue)
        return await self._driver.run(
            pulling.pull(
                self._state,
                pulling.PullArguments(
                    group=self.group,
                    queue=queue,
                    offset=offset,
                    subscription=subscribe(queue.topic, tags, self._started_ms),
                    messages_max=messages_max,
                    bulk_bytes=bulk_bytes,
                    poll_s=poll_s,
                ),
            )
        )

    async def check(self, topic: str, tags: str) -> None:
        """Have a broker say whether it can select so. BrokerError: it cannot, and why."""
        wanted = subscribe(topic, tags, self._started_ms)
        if wanted.kind != TAG:
            from imago_client.core.consuming.membership import check_filters

            await self._driver.run(check_filters(self._state, self.group, [wanted]))

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the first offset that still exists."""
        return await self._driver.run(pulling.min_offset(self._state, queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the queue's next message will get."""
        return await self._driver.run(pulling.max_offset(self._state, queue))

    async def end(self, queue: MessageQueue) -> QueueEnd:
        """Return the same, and which topic of the name it is."""
        return await self._driver.run(pulling.queue_end(self._state, queue))

    async def shard_bounds(self, topic: str, shard: str, count: int) -> ShardBounds | None:
        """Return where the first `count` queues of a topic, or more, begin and end on a shard.

        One request for a few thousand of them. None: the broker answers for single queues only.
        """
        return await self._driver.run(pulling.shard_bounds(self._state, topic, shard, count))

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at that time (ms since 1970) or later."""
        return await self._driver.run(pulling.offset_at(self._state, queue, timestamp_ms))

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's committed offset, None if there is none."""
        return await self._driver.run(pulling.committed_offset(self._state, self.group, queue))

    async def lock(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Hold queues of the group against other clients for a minute; return those it holds now.

        Members of groups that read in order do so, too. Said again, it is held for another minute.
        """
        from imago_client.core.consuming.membership import lock

        return await self._driver.run(lock(self._state, self.group, list(queues)))

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Let others have them."""
        from imago_client.core.consuming.membership import unlock

        await self._driver.run(unlock(self._state, self.group, list(queues)))

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit for the group: everything below `offset` is consumed."""
        await self._driver.run(pulling.commit(self._state, self.group, queue, offset))
