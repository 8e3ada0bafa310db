"""How far all who read a queue have come: what is before may go where a disk has no room.

A group reads a topic if it has told its progress anywhere in the topic, if its consumers are
connected and want it, if it was known before (`known_readers`), or if MetaQ's tree or the master of
another shard says so: who reads a topic on one shard reads it on all. Where it has told none it has
read nothing; where there is no group, nobody has. Who is connected is known only some time after a
member has begun to lead.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from imago_broker.model import names
from imago_broker.ports import CoordinatorError
from imago_log.lifecycle.claims import NOBODY_READS
from imago_log.lifecycle.retention import FORCED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping

    from imago_broker.ports import Clock, MetaqConsumers, MetaqProgress
    from imago_broker.service.groups.clients import ClientRegistry
    from imago_broker.service.groups.offsets import ConsumerOffsets
    from imago_broker.service.needed_records import NeededRecords
    from imago_broker.service.topics.topics import TopicService
    from imago_log.store import MessageStore

    Elsewhere = Callable[[], Awaitable[Mapping[str, Collection[str]] | None]]
    """Asks the other shards which groups read which topics; None: not all of them say."""

logger = logging.getLogger(__name__)

READ_BY_NOBODY = names.WITHHELD_TOPICS | {
    "OFFSET_MOVED_EVENT",
    "SELF_TEST_TOPIC",
    "RMQ_SYS_TRACE_TOPIC",
}
"""Topics of the broker's own, and of what clients tell about themselves: no group has to read them.
What still has to come of their records is asked elsewhere (`NeededRecords`)."""
RETURN_MS = 60_000
"""How long after it has begun to lead a member does not know all who are connected: clients send
their heartbeats every 30 s."""
LOOK_SECONDS = 5.0
"""How often MetaQ's tree and the other shards are asked while the disk has no room."""


def reached(store: MessageStore, topic: str, queue_id: int, position: int) -> int:
    """Return the offset below which a group of MetaQ's has read that says it is at a position.

    MetaQ's tree outlives topics and shards: a position behind the end is of a queue that was here
    before, and tells nothing of this one. Whoever says so has read nothing.
    """
    end = store.position_range(topic, queue_id)[1]
    return 0 if position > end else store.offset_of(topic, queue_id, position)


class QueueReaders:
    """Asked about each queue before old files go for want of room."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicService,
        offsets: ConsumerOffsets,
        clients: ClientRegistry,
        *,
        clock: Clock,
        cluster: str,
    ) -> None:
        self._store, self._topics, self._offsets = store, topics, offsets
        self._clients, self._clock = clients, clock
        self._led_since_ms: int | None = None
        """Since when this member leads, by the monotonic clock."""
        self._own = READ_BY_NOBODY | {names.reply_topic(cluster)}
        self._metaq: MetaqProgress | None = None
        """What MetaQ's groups have read; None: nobody knows."""
        self._elsewhere: Mapping[str, Collection[str]] | None = None
        """Who reads what on other shards; None: nobody knows."""
        self._looking: asyncio.Task[None] | None = None

    def read_to(self, topic: str, queue_id: int) -> int:
        """Return the offset below which all have read: see `imago_log.lifecycle.claims`."""
        if topic in self._own:
            return NOBODY_READS
        return min(self._progress(topic, queue_id), default=0)

    def _progress(self, topic: str, queue_id: int) -> Iterator[int]:
        committed = self._offsets.in_queue(topic, queue_id)
        yield from committed.values()
        if self._elsewhere is None or self._return_ms():
            yield 0
            return
        known = self._offsets.readers.of_topic(topic)
        known.update(self._clients.groups_of_topic(topic), self._elsewhere.get(topic, ()))
        if known - committed.keys() - names.OWN_GROUPS:
            yield 0
        config = self._topics.get(topic)
        if config is None or not config.dual:
            return
        if self._metaq is None:
            yield 0
            return
        for positions in self._metaq.get(topic, {}).values():
            yield reached(self._store, topic, queue_id, positions.get(queue_id, 0))

    def clients_return_ms(self) -> int:
        """Return how long clients may take still to come back; 0: all who are there are known.

        Whose log was empty when it began to lead had no clients before.
        """
        epochs = self._store.epochs
        if self._store.leading and epochs and epochs[-1][1] == 0:
            return 0
        return self._return_ms()

    def _return_ms(self) -> int:
        if self._led_since_ms is None:
            return RETURN_MS
        return max(0, self._led_since_ms + RETURN_MS - self._clock.monotonic_ms())

    def look(self, consumers: MetaqConsumers, elsewhere: Elsewhere) -> None:
        """Know what others say of who has read what while that matters: call it every second."""
        if not self._store.leading:
            self._led_since_ms = None
        elif self._led_since_ms is None:
            self._led_since_ms = self._clock.monotonic_ms()
        if not self._store.leading or self._store.disk_level not in FORCED:
            self._metaq = self._elsewhere = None
        elif self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look(consumers, elsewhere))

    async def stop(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look(self, consumers: MetaqConsumers, elsewhere: Elsewhere) -> None:
        self._elsewhere = await elsewhere()
        duals = {config.name for config in self._topics.all() if config.dual}
        try:
            self._metaq = await consumers.metaq_progress(duals)
        except CoordinatorError as error:
            self._metaq = None
            logger.warning("metaq_progress_unknown reason=%s: no unexpired message goes", error)
        await asyncio.sleep(LOOK_SECONDS)


class LogClaims:
    """What a broker needs of old records: `imago_log.lifecycle.claims.Claims` for its store."""

    def __init__(
        self, needed: NeededRecords, readers: QueueReaders, may_force: Callable[[], bool]
    ) -> None:
        """`may_force`: whether no other member of the shard has room instead."""
        self._needed, self._readers, self._may_force = needed, readers, may_force

    def needed_from(self) -> int:
        return self._needed.needed_from()

    def may_force(self) -> bool:
        return self._may_force()

    def read_to(self, topic: str, queue_id: int) -> int:
        return self._readers.read_to(topic, queue_id)
