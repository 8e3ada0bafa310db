"""The asyncio consumer of a balanced group: it shares partitions with the group's other members."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, Self

from imago_client.core.metaq.membership import GroupView, TreeMember
from imago_client.core.metaq.nodes import BrokerAddresses, PartitionId, StoredOffset
from imago_client.errors import ClientError, ConnectionLostError, TryAgainError, UsageError
from imago_client.handlers import check_handler
from imago_client.metaq.groups.group_config import new_consumer_id
from imago_client.metaq.groups.threads import in_thread
from imago_client.metaq.reading.cursor import DELAY_STEPS, FetchCursor
from imago_client.metaq.reading.delivery import SeenIds
from imago_client.metaq.reading.fetching import PartitionDelivery
from imago_client.metaq.values import Partition, checked_word
from imago_client.supervision import SupervisedTask, Supervisor
from imago_wire.text.commands import OFFSET_END

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from imago_client.metaq.client import MetaqClient
    from imago_client.metaq.groups.group_config import MetaqGroupConsumerConfig
    from imago_client.metaq.groups.group_offsets import OffsetStorage
    from imago_client.metaq.groups.recovering import RejectionPolicy
    from imago_client.metaq.groups.zookeeper import MetaqTree
    from imago_client.metaq.reading.delivery import MessageFilter
    from imago_client.metaq.values import Fetched, MetaqMessage

log = logging.getLogger(__name__)

SUSPECT_S: Final = 1.0
"""Between reads of the tree that failed fetches ask for."""


@dataclass(slots=True)
class _Subscription:
    handler: Callable[[MetaqMessage], Awaitable[None]]
    wanted: MessageFilter | None


@dataclass(slots=True)
class _Reading:
    """A partition that is read."""

    cursor: FetchCursor
    task: SupervisedTask
    saved: StoredOffset | None = None


@dataclass(slots=True)
class _Known:
    """What the last look found."""

    cluster: dict[int, BrokerAddresses] = field(default_factory=dict)
    first: frozenset[PartitionId] | None = None
    """All partitions that were there at the start."""
    sessions: int = 0
    looked_at: float = 0.0


class MetaqGroupConsumer:
    """Reads its share of the group's partitions, and each in order; use it as `async with`.

    Made by `MetaqSessionFactory.consumer`. Members may be Java's, too: who reads what, and how far
    it is, stands in ZooKeeper. A partition moves when members or brokers come and go; what was
    handled and not yet committed then may come again, and nothing is left out.
    """

    def __init__(
        self,
        client: MetaqClient,
        tree: MetaqTree,
        config: MetaqGroupConsumerConfig,
        offsets: OffsetStorage,
        on_reject: RejectionPolicy | None = None,
        rng: Random | None = None,
    ) -> None:
        self.config = config
        self._client, self._tree, self._offsets = client, tree, offsets
        self._policy = on_reject
        self._rng = rng or Random()  # noqa: S311 - chooses a slave
        self._subscriptions: dict[str, _Subscription] = {}
        self._tasks = Supervisor(config.group, pause_s=config.delay_s_max / DELAY_STEPS)
        self._delivery = PartitionDelivery(
            config, self._tasks, SeenIds(), on_reject.reject if on_reject else None
        )
        self._member: TreeMember | None = None
        self._readings: dict[PartitionId, _Reading] = {}
        self._owned: set[PartitionId] = set()
        self._known = _Known()
        self._changed = asyncio.Event()
        self._saving = asyncio.Lock()

    def subscribe(
        self,
        topic: str,
        handler: Callable[[MetaqMessage], Awaitable[None]],
        *,
        wanted: MessageFilter | None = None,
    ) -> Self:
        """Read a topic, before the start; `wanted(group, message)` may leave messages out."""
        check_handler(handler)
        checked_word("topic", topic)
        if topic in self._subscriptions or self._tasks.is_running or "," in topic:
            raise UsageError(f"topic {topic!r}: subscribe each once, before the start")
        self._subscriptions[topic] = _Subscription(handler, wanted)
        return self

    @property
    def consumer_id(self) -> str:
        """The name in the tree, while it runs."""
        return self._member.name if self._member else ""

    @property
    def positions(self) -> dict[PartitionId, int]:
        """Up to where each partition of its share is consumed."""
        return {each: reading.cursor.position for each, reading in self._readings.items()}

    async def start(self) -> None:
        """Join the group and begin. TryAgainError: ZooKeeper is not there."""
        if self._tasks.is_running:
            raise UsageError(f"group {self.config.group!r}: this consumer runs already")
        if not self._subscriptions:
            raise UsageError("subscribe: a consumer needs at least one topic")
        config = self.config
        self._member = TreeMember(
            self._tree.paths,
            config.group,
            config.consumer_id or new_consumer_id(),
            self._subscriptions,
            config.strategy,
        )
        self._delivery.seen, self._known = SeenIds(), _Known(sessions=self._tree.sessions)
        self._loop = asyncio.get_running_loop()
        self._tasks.start()
        self._tree.listen(self._tree_changed)
        try:
            if self._policy is not None:
                handlers = {name: each.handler for name, each in self._subscriptions.items()}
                self._policy.begin(config.group, handlers, self._tasks)
            complete = await self._balance()
        except BaseException:
            await self.stop()
            raise
        if not complete:
            self._changed.set()
        self._tasks.keep(self._balance_for_ever, "balance")
        self._tasks.keep(self._commit_for_ever, "commits")

    async def stop(self) -> None:
        """Stop reading, save how far it is, and leave its partitions to the others."""
        self._tree.unlisten(self._tree_changed)
        await self._end_reading(self._readings)
        await self._tasks.end()
        if self._policy is not None:
            self._policy.end()
        try:
            await self._save(self._readings)
            if self._member is not None:
                await in_thread(self._tree.run, self._member.leave())
        except (ClientError, OSError) as error:
            log.warning("leave_failed group=%s error=%s", self.config.group, error)
        self._readings.clear()
        self._owned.clear()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    # Sharing

    def _tree_changed(self) -> None:  # in a thread of kazoo
        try:
            self._loop.call_soon_threadsafe(self._changed.set)
        except RuntimeError:
            log.debug("change_dropped: the loop has ended")

    async def _balance_for_ever(self) -> None:
        complete = False
        while True:
            try:
                async with asyncio.timeout(
                    None if complete else self._client.config.rebalance_pause_s
                ):
                    await self._changed.wait()
            except TimeoutError:
                pass
            try:
                complete = await self._balance()
            except (ClientError, OSError) as error:
                log.warning("rebalance_failed group=%s error=%s", self.config.group, error)
                complete = False

    async def _balance(self) -> bool:
        """Make what is read what is to be read; False: others still have some of it."""
        assert self._member is not None, "made by start"
        self._changed.clear()
        if self._known.sessions != self._tree.sessions:
            await self._lose_all()
        member, run = self._member, self._tree.run
        await in_thread(run, member.join())
        view: GroupView = await in_thread(run, member.look())
        self._known.cluster = dict(view.cluster)
        self._known.looked_at = self._loop.time()
        if self._known.first is None:
            self._known.first = view.offered
        await self._give_up(self._owned - view.wanted)
        taken = await in_thread(run, member.claim(view.wanted - self._owned))
        self._owned |= taken
        for partition in sorted(self._owned - self._readings.keys()):
            stored = await in_thread(self._offsets.load, member.group, partition)
            self._begin(partition, stored)
        if taken:
            log.info(
                "group_rebalanced group=%s member=%s partitions=%d",
                member.group,
                member.name,
                len(self._owned),
            )
        return self._owned == view.wanted

    async def _lose_all(self) -> None:
        """The session is lost, and with it all that was owned: others may read it by now."""
        self._known.sessions = self._tree.sessions
        self._owned.clear()
        gone = list(self._readings)
        await self._end_reading(gone)
        for partition in gone:
            del self._readings[partition]

    async def _give_up(self, partitions: Iterable[PartitionId]) -> None:
        assert self._member is not None, "made by start"
        gone = list(partitions)
        if not gone:
            return
        await self._end_reading(gone)
        try:
            await self._save(gone)
        except (ClientError, OSError) as error:
            log.warning("save_failed group=%s error=%s", self.config.group, error)
        for partition in gone:
            self._readings.pop(partition, None)
        await in_thread(self._tree.run, self._member.release(gone))
        self._owned.difference_update(gone)

    # Reading

    def _begin(self, partition: PartitionId, stored: StoredOffset | None) -> None:
        config = self.config
        at_start = partition in (self._known.first or ())
        position = stored.position if stored else 0
        if at_start and (config.always_from_end or (config.from_end and stored is None)):
            position = OFFSET_END
        cursor = FetchCursor(position, config.fetch_bytes, config.delay_s_max)
        cursor.last_id = stored.message_id if stored else -1
        subscription = self._subscriptions[partition.topic]
        task = self._tasks.keep(
            partial(
                self._delivery.fetch_loop,
                partial(self._fetch, partition),
                cursor,
                subscription.handler,
                subscription.wanted,
            ),
            f"fetch {partition.topic} {partition.name}",
        )
        self._readings[partition] = _Reading(cursor, task, stored)

    async def _fetch(self, partition: PartitionId, cursor: FetchCursor) -> Fetched:
        address = self._address(partition.broker_id)
        found = Partition(partition.topic, address, partition.number, partition.broker_id)
        try:
            return await self._client.get(
                found, cursor.position, group=self.config.group, size_max=cursor.fetch_bytes
            )
        except ConnectionLostError:
            self._suspect()
            raise

    def _address(self, broker_id: int) -> str:
        found = self._known.cluster.get(broker_id)
        if found is None or not (found.master or found.slaves):
            self._suspect()
            raise TryAgainError(f"broker {broker_id}: neither master nor slave is in ZooKeeper")
        return found.master or self._rng.choice(found.slaves)

    def _suspect(self) -> None:
        """Read the tree before it reports a change: its session may take long to end."""
        if self._loop.time() - self._known.looked_at >= SUSPECT_S:
            self._changed.set()

    async def _end_reading(self, partitions: Iterable[PartitionId]) -> None:
        """End the loops; a handler that runs may finish its message, for a while."""
        ending = [self._readings[each] for each in partitions if each in self._readings]
        for reading in ending:
            reading.cursor.ending = True
        busy = [each.task.task for each in ending if each.cursor.handling]
        if busy:
            await asyncio.wait(busy, timeout=self.config.drain_s)
        for reading in ending:
            reading.task.cancel()
        tasks = [each.task.task for each in ending]
        if tasks:
            await asyncio.wait(tasks)

    # Offsets

    async def _commit_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.config.commit_s)
            try:
                await self._save(self._readings)
            except (ClientError, OSError) as error:
                log.warning("save_failed group=%s error=%s", self.config.group, error)

    async def _save(self, partitions: Iterable[PartitionId]) -> None:
        async with self._saving:  # an older position must not come behind a newer one
            changed = {}
            for partition in partitions:
                reading = self._readings.get(partition)
                if reading is None or reading.cursor.position == OFFSET_END:
                    continue
                offset = StoredOffset(reading.cursor.position, reading.cursor.last_id)
                if offset != reading.saved:
                    changed[partition] = offset
            if not changed:
                return
            await in_thread(self._offsets.save, self.config.group, changed)
            for partition, offset in changed.items():
                if partition in self._readings:
                    self._readings[partition].saved = offset
