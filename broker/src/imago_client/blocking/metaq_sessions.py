"""MetaQ's session factory on plain blocking sockets; ZooKeeper's client alone has threads.

with MetaqSessionFactory("127.0.0.1:2181") as factory:
    factory.producer().send("orders", b"hello")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

from imago_client.blocking.faces import blocking, completed, completed_each
from imago_client.blocking.metaq import MetaqClient
from imago_client.blocking.metaq_group import MetaqGroupConsumer
from imago_client.blocking.metaq_transactions import LocalTransaction, XaResource
from imago_client.metaq.groups.group_config import MetaqGroupConsumerConfig, broadcast_group
from imago_client.metaq.groups.group_offsets import LocalFileOffsets, ZooKeeperOffsets
from imago_client.metaq.groups.group_producer import MetaqGroupProducer as AsyncGroupProducer
from imago_client.metaq.groups.group_producer import OrderedProducer as AsyncOrderedProducer
from imago_client.metaq.groups.sessions import MetaqSessionFactory as AsyncFactory
from imago_client.metaq.groups.sessions import metaq_config
from imago_client.metaq.reading.browsing import BROWSER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from random import Random

    from imago_client.core.metaq.nodes import PartitionId
    from imago_client.core.metaq.ordering import OrderedPartitions
    from imago_client.core.metaq.routes import PartitionSelector
    from imago_client.metaq.groups.group_offsets import OffsetStorage
    from imago_client.metaq.reading.delivery import MessageFilter
    from imago_client.metaq.values import MetaqConfig, MetaqMessage

P = ParamSpec("P")
T = TypeVar("T")


class MetaqGroupProducer:
    """Chooses a partition for each message; sends once."""

    def __init__(self, face: AsyncGroupProducer) -> None:
        self._face = face

    send = blocking(AsyncGroupProducer.send)


class _Ordered(AsyncOrderedProducer):
    async def _wait(self, partition: PartitionId) -> None:
        await self._resend(partition)


class OrderedProducer:
    """One partition for each key, whether it is there or not; what it cannot take is kept.

    There is no thread: what is kept is sent by `resend`, and by a `send` that finds it in its way.
    """

    def __init__(self, face: AsyncOrderedProducer) -> None:
        self._face = face
        face.open()

    send = blocking(AsyncOrderedProducer.send)
    resend = blocking(AsyncOrderedProducer.resend)
    close = blocking(AsyncOrderedProducer.stop)

    @property
    def kept(self) -> int:
        """How many messages wait in the folder."""
        return self._face.kept

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


async def _at_once(call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    return call(*args, **named)


class MetaqSessionFactory:
    """Producers, consumers, browsers and transactions that find brokers in ZooKeeper."""

    def __init__(self, zookeeper: str | MetaqConfig, *, rng: Random | None = None) -> None:
        self.config = metaq_config(zookeeper)
        self._client = MetaqClient(self.config)
        self._face = AsyncFactory(
            self.config, rng=rng, connections=self._client.connections, apart=_at_once
        )

    start = blocking(AsyncFactory.start)
    close = blocking(AsyncFactory.close)
    partitions = blocking(AsyncFactory.partitions)
    stats = blocking(AsyncFactory.stats)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def producer(
        self, *, select: PartitionSelector | None = None, default_topic: str | None = None
    ) -> MetaqGroupProducer:
        """Return a producer; `select` chooses partitions, else they take turns."""
        return MetaqGroupProducer(self._face.producer(select=select, default_topic=default_topic))

    def ordered_producer(
        self,
        folder: Path,
        partitions: OrderedPartitions | Mapping[str, Mapping[int, int]],
        *,
        store_when_failed: bool = False,
    ) -> OrderedProducer:
        """Return a producer that keeps order, and in `folder` what cannot be put now."""
        face = _Ordered(
            self._client.connections,
            self._face.tree,
            folder,
            partitions,
            store_when_failed=store_when_failed,
        )
        return OrderedProducer(face)

    def transaction(self, *topics: str, timeout_s: int = 0) -> LocalTransaction:
        """Return a transaction at one broker, of those that have all these topics."""
        return LocalTransaction(completed(self._face.transaction(*topics, timeout_s=timeout_s)))

    def xa_resource(self, qualifier: str, *topics: str) -> XaResource:
        """Return one broker, of those that have all these topics, for a transaction manager."""
        return XaResource(completed(self._face.xa_resource(qualifier, *topics)))

    def consumer(
        self,
        config: MetaqGroupConsumerConfig | str,
        topics: Sequence[str],
        *,
        offsets: OffsetStorage | None = None,
        wanted: MessageFilter | None = None,
    ) -> MetaqGroupConsumer:
        """Return a member of a group that reads when it is polled; offsets are in ZooKeeper unless
        a storage is given, and `wanted(group, message)` may leave messages out."""
        settings = MetaqGroupConsumerConfig(group=config) if isinstance(config, str) else config
        storage = offsets or ZooKeeperOffsets(self._face.tree)
        return MetaqGroupConsumer(
            self._client, self._face.tree, settings, topics, storage, wanted, rng=self._face.rng
        )

    def broadcast_consumer(
        self, group: str, topics: Sequence[str], folder: Path
    ) -> MetaqGroupConsumer:
        """Return a consumer that reads all, whatever other machines of the group read; how far it
        is stands in `folder`."""
        config = MetaqGroupConsumerConfig(group=broadcast_group(group))
        return self.consumer(config, topics, offsets=LocalFileOffsets(folder / "offsets.json"))

    def browse(self, topic: str, *, size_max: int = BROWSER_BYTES) -> Iterator[MetaqMessage]:
        """Go through all that a topic holds now, one partition after the other."""
        return completed_each(self._face.browse(topic, size_max=size_max))
