"""Asyncio producers that find brokers and partitions in MetaQ's tree."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Self

from imago_client.core.metaq.ordering import (
    WAIT_S,
    OrderedPartitions,
    OrderedStep,
    by_key,
    next_step,
)
from imago_client.core.metaq.routes import PartitionRotation
from imago_client.errors import ClientError, ConnectionLostError, TryAgainError
from imago_client.metaq.groups.local_messages import KeptByPartition
from imago_client.metaq.groups.routing import RouteFinder
from imago_client.metaq.values import MetaqError, Partition, PutResult, put_command, read_put
from imago_client.supervision import Supervisor
from imago_wire.text.status import Status

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from imago_client.core.metaq.nodes import PartitionId
    from imago_client.core.metaq.routes import PartitionSelector
    from imago_client.metaq.connection import Asking
    from imago_client.metaq.groups.zookeeper import MetaqTree

log = logging.getLogger(__name__)

RECOVER_S: Final = 300.0


class Putter:
    """Puts one message into one partition of one broker."""

    def __init__(self, connections: Asking) -> None:
        self._connections = connections

    async def put(
        self, address: str, to: PartitionId, payload: bytes, attribute: str | None
    ) -> PutResult:
        """MetaqError: refused. TryAgainError: stored or not, nobody knows."""
        connections = self._connections
        async with connections.admission.room(len(payload)):
            answer = await connections.ask(
                address,
                lambda opaque: put_command(to.topic, payload, attribute, to.number, opaque),
                timeout_s=connections.config.request_timeout_s,
            )
        found = read_put(address, to.topic, answer)
        number = found.partition.number
        return PutResult(
            found.message_id, Partition(to.topic, address, number, to.broker_id), found.offset
        )


class MetaqGroupProducer:
    """[SimpleMessageProducer] Chooses a partition for each message; sends once.

    `default_topic`: what has no partition of its own goes to the brokers and partition numbers of
    that topic, under its own name; brokers need a pattern for it.
    """

    def __init__(
        self,
        connections: Asking,
        tree: MetaqTree,
        *,
        select: PartitionSelector | None = None,
        default_topic: str | None = None,
    ) -> None:
        self._finder, self._putter = RouteFinder(tree), Putter(connections)
        self._select: PartitionSelector = select or PartitionRotation()
        self._default_topic = default_topic

    async def publish(self, *topics: str) -> None:
        """Find the partitions of topics now; else their first message does."""
        await self._finder.publish(*topics)

    async def send(self, topic: str, payload: bytes, *, attribute: str | None = None) -> PutResult:
        """Put one message. NoRouteError: no master offers the topic. MetaqError: refused."""
        await self._finder.publish(*filter(None, (topic, self._default_topic)))
        routes = await self._finder.routes()
        to = self._select(topic, routes.of(topic, self._default_topic), payload)
        address = routes.addresses[to.broker_id]
        try:
            return await self._putter.put(address, to, payload, attribute)
        except ConnectionLostError:
            self._finder.forget()
            raise


class OrderedProducer:
    """[OrderedMessageProducer] One partition for each key, whether it is there or not.

    What its partition cannot take is kept in a folder, and new messages of that partition go behind
    it; so their order stays. Use it as `async with`: it sends what is kept again and again.
    """

    def __init__(
        self,
        connections: Asking,
        tree: MetaqTree,
        folder: Path,
        partitions: OrderedPartitions | Mapping[str, Mapping[int, int]],
        *,
        every_s: float = RECOVER_S,
        store_when_failed: bool = False,
    ) -> None:
        """`store_when_failed`: keep also what was refused or whose answer was lost; the latter may
        then be stored twice."""
        self._finder, self._putter = RouteFinder(tree), Putter(connections)
        self._apart = tree.apart
        self._partitions = (
            partitions
            if isinstance(partitions, OrderedPartitions)
            else OrderedPartitions(partitions)
        )
        self._every_s, self._store_when_failed = every_s, store_when_failed
        self._kept = KeptByPartition(folder)
        self._locks: dict[PartitionId, asyncio.Lock] = {}
        self._ending = False
        self._tasks = Supervisor("ordered", pause_s=1.0)

    @property
    def kept(self) -> int:
        """How many messages wait in the folder."""
        return len(self._kept)

    def open(self) -> None:
        """Take over what an earlier process has kept, and send none of it by itself."""
        for topic in self._partitions.topics:
            self._kept.open(self._partitions.of(topic))
        self._finder.want(*self._partitions.topics)

    async def start(self) -> None:
        """Take over what an earlier process has kept."""
        self._ending = False
        self.open()
        self._tasks.start()
        self._tasks.keep(self._resend_for_ever, "resend")
        await self._finder.routes()

    async def stop(self) -> None:
        """Leave what is kept to the next one."""
        self._ending = True
        for partition in self._kept.partitions:  # what is being sent again is forgotten first
            async with self._lock(partition):
                pass
        await self._tasks.end()
        self._kept.close()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    async def send(
        self, topic: str, payload: bytes, *, key: bytes, attribute: str | None = None
    ) -> PutResult | None:
        """Put one message; None: it is kept here until its partition takes it."""
        partition = by_key(key, self._partitions.of(topic))
        put_command(topic, payload, attribute, partition.number, 0)  # what is wrong is refused now
        waits = 0
        while True:
            async with self._lock(partition):
                routes = await self._finder.routes()
                address = routes.address(partition)
                step = next_step(
                    available=address is not None, stored=self._kept.count(partition), waits=waits
                )
                if step is OrderedStep.SEND and address is not None:
                    return await self._put(address, partition, payload, attribute)
                if step is OrderedStep.STORE:
                    await self._keep(partition, payload, attribute)
                    return None
            waits += 1
            await self._wait(partition)

    async def resend(self) -> int:
        """Send what is kept, as far as partitions are there; return how many messages that were."""
        sent = 0
        for partition in self._kept.partitions:
            async with self._lock(partition):
                sent += await self._resend(partition)
        return sent

    async def _wait(self, _partition: PartitionId) -> None:
        await asyncio.sleep(WAIT_S)

    async def _put(
        self, address: str, partition: PartitionId, payload: bytes, attribute: str | None
    ) -> PutResult | None:
        try:
            return await self._putter.put(address, partition, payload, attribute)
        except (MetaqError, TryAgainError) as error:
            self._finder.forget()
            if not is_closed(error) and not self._store_when_failed:
                raise
            log.warning("message_kept partition=%s error=%s", partition.name, error)
            await self._keep(partition, payload, attribute)
            return None

    async def _resend(self, partition: PartitionId) -> int:
        sent, store = 0, self._kept.of(partition)
        for number, kept in store:
            address = (await self._finder.routes()).address(partition)
            if address is None or self._ending:
                break
            try:
                await self._putter.put(address, partition, kept.payload, kept.attribute)
            except ClientError as error:
                self._finder.forget()
                log.warning("resend_failed partition=%s error=%s", partition.name, error)
                break
            store.remove(number)
            sent += 1
        return sent

    async def _resend_for_ever(self) -> None:
        while True:
            await self.resend()
            await asyncio.sleep(self._every_s)

    async def _keep(self, partition: PartitionId, payload: bytes, attribute: str | None) -> None:
        await self._apart(self._kept.keep, partition, payload, attribute)

    def _lock(self, partition: PartitionId) -> asyncio.Lock:
        return self._locks.setdefault(partition, asyncio.Lock())


def is_closed(error: Exception) -> bool:
    """Whether a put was refused since its partition is closed."""
    return isinstance(error, MetaqError) and error.status == Status.FORBIDDEN
