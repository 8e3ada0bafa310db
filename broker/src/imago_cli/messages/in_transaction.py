"""What `imago produce --transaction` sends: readers see all of it or nothing, whatever is killed.

The messages are staged on one shard and published there by one mark, as a sink's micro-batch is: a
command that is killed before has stored nothing that anybody reads, and one that is killed later
all. Over several shards there is no such moment.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from imago_cli.exits import CommandError
from imago_cli.output import counted, say

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from imago_client import Message, MessageQueue, ProducerConfig
    from imago_client.rocketmq.client import Client
    from imago_client.rocketmq.producer import Producer

PART_BYTES: Final = 256 << 10
PART_MESSAGES: Final = 1000
"""A request to stage holds so much of a queue."""
FORGET_SECONDS: Final = 3.0
"""A master that has not answered for long will hardly do so now, and forgets by itself."""


class _Transaction:
    """Messages on their way to the queues of one shard."""

    def __init__(self, producer: Producer, topic: str, queues: list[MessageQueue]) -> None:
        import uuid

        from imago_client.core.sending.staging import MicroBatch

        name, self._first = (chosen := uuid.uuid4()).hex, chosen.int
        self._batch, self._attempt = MicroBatch(f"imago-produce-{name}", 0), name
        self._topic, self._shard = topic, queues[0].shard
        self.messages = 0
        self._producer, self._queues = producer, queues
        self._size = self._parts = 0
        self._held: dict[MessageQueue, list[Message]] = {queue: [] for queue in queues}
        self._held_size = dict.fromkeys(queues, 0)

    async def add(self, message: Message) -> None:
        """Take a message; what waits for its queue is staged once it is enough."""
        from imago_client.core.sending.selection import queue_for_key

        self.messages += 1
        self._check_size()
        key = message.ordering_key
        turn = self._queues[(self._first + self.messages) % len(self._queues)]
        queue = turn if key is None else queue_for_key(key, self._queues)
        self._held[queue].append(message)
        self._held_size[queue] += len(message.body)
        if self._held_size[queue] >= PART_BYTES or len(self._held[queue]) >= PART_MESSAGES:
            await self._stage(queue)

    async def publish(self) -> None:
        """Have readers see all that was staged."""
        if self._parts:
            parts = {self._attempt: {self._shard: self._parts}}
            await self._producer.publish_staged(self._batch, self._topic, parts, only=self._shard)

    async def stage_rest(self) -> None:
        """Stage what still waits."""
        for queue in self._queues:
            await self._stage(queue)

    async def forget(self) -> None:
        """Remove what was staged."""
        if self._parts:
            await self._producer.forget_staged(self._batch, self._topic, only=self._shard)

    async def _stage(self, queue: MessageQueue) -> None:
        held, self._held[queue] = self._held[queue], []
        self._held_size[queue] = 0
        if held:
            part, self._parts = self._parts, self._parts + 1
            self._size += await self._producer.stage(self._batch, self._attempt, part, queue, held)
            self._check_size()

    def _check_size(self) -> None:
        from imago_wire.remoting.staged import BYTES_MAX, ROWS_MAX

        if self.messages > ROWS_MAX or self._size > BYTES_MAX:
            raise CommandError(
                f"one transaction has {ROWS_MAX:,} messages and {BYTES_MAX >> 20} MiB at most",
                cure="send fewer at once",
            )


@asynccontextmanager
async def all_or_none(
    client: Client, config: ProducerConfig, topic: str
) -> AsyncIterator[Callable[[Message], Awaitable[object]]]:
    """Give the way to send; at the block's end readers see all of it, after an error nothing."""
    producer = client.producer(config)
    queues = await producer.queues(topic)
    away = {one.shard for one in await client.admin.missing_shards(topic)}
    shard = min((one.shard in away, one.shard) for one in queues)[1]
    opened = _Transaction(producer, topic, [one for one in queues if one.shard == shard])
    try:
        yield opened.add
        await opened.stage_rest()
    except BaseException:
        await _forget(opened)
        raise
    try:
        await opened.publish()
    except BaseException:
        say(f"of {counted(opened.messages, 'message')} readers see all, or none: it is not known")
        raise


async def _forget(opened: _Transaction) -> None:
    import asyncio

    from imago_client.errors import ClientError

    said = f"{counted(opened.messages, 'message')} rolled back: nobody reads them"
    try:
        async with asyncio.timeout(FORGET_SECONDS):
            await opened.forget()
    except (ClientError, TimeoutError):
        said += "; brokers forget them within a week"
    say(said)
