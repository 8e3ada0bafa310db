"""MetaQ's session factory on plain blocking sockets; ZooKeeper's client alone has threads.

with MetaqSessionFactory("127.0.0.1:2181") as factory:
    factory.producer().send("orders", b"hello")
"""

from __future__ import annotations

import logging
from random import Random
from typing import TYPE_CHECKING, Self

from imago_client.blocking.metaq import MetaqClient
from imago_client.blocking.metaq_group import MetaqGroupConsumer
from imago_client.core.metaq.nodes import read_cluster, read_offered
from imago_client.core.metaq.ordering import OrderedPartitions, OrderedStep, by_key, next_step
from imago_client.core.metaq.routes import PartitionRotation, PublishedRoutes, read_routes
from imago_client.errors import ClientError, ConnectionLostError, TryAgainError, UsageError
from imago_client.metaq.groups.group_config import MetaqGroupConsumerConfig, broadcast_group
from imago_client.metaq.groups.group_offsets import LocalFileOffsets, ZooKeeperOffsets
from imago_client.metaq.groups.group_producer import is_closed
from imago_client.metaq.groups.local_messages import KeptByPartition
from imago_client.metaq.groups.sessions import metaq_config
from imago_client.metaq.groups.zookeeper import MetaqTree
from imago_client.metaq.reading.browsing import (
    BROWSER_BYTES,
    BROWSER_GROUP,
    browsing_cursor,
    serving,
)
from imago_client.metaq.values import MetaqError, PutResult, put_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from imago_client.blocking.metaq_transactions import LocalTransaction, XaResource
    from imago_client.core.metaq.nodes import PartitionId
    from imago_client.core.metaq.routes import PartitionSelector
    from imago_client.metaq.groups.group_offsets import OffsetStorage
    from imago_client.metaq.reading.delivery import MessageFilter
    from imago_client.metaq.values import MetaqConfig, MetaqMessage, Partition

log = logging.getLogger(__name__)


class Routes:
    """What a producer knows of the tree, read anew when that has changed."""

    def __init__(self, tree: MetaqTree) -> None:
        self._tree = tree
        self._routes = PublishedRoutes()
        self._topics: tuple[str, ...] = ()
        self._read_at: int | None = None

    def of(self, *topics: str) -> PublishedRoutes:
        """Return where messages of these topics go, among those asked for before."""
        missing = [topic for topic in topics if topic not in self._topics]
        changes = self._tree.changes
        if missing or self._read_at != changes:
            self._topics = (*self._topics, *missing)
            try:
                self._routes = self._tree.run(read_routes(self._tree.paths, self._topics))
                self._read_at = changes
            except ClientError as error:
                if not self._routes.partitions.keys() >= set(topics):
                    raise
                log.warning("routes_not_read error=%s", error)
        return self._routes

    def forget(self) -> None:
        """Read anew next time: what is known has turned out to be wrong."""
        self._read_at = None


class MetaqGroupProducer:
    """Chooses a partition for each message; sends once."""

    def __init__(
        self,
        client: MetaqClient,
        tree: MetaqTree,
        select: PartitionSelector | None,
        default_topic: str | None,
    ) -> None:
        self._client, self._routes = client, Routes(tree)
        self._select: PartitionSelector = select or PartitionRotation()
        self._default_topic = default_topic

    def send(self, topic: str, payload: bytes, *, attribute: str | None = None) -> PutResult:
        """Put one message. NoRouteError: no master offers the topic. MetaqError: refused."""
        routes = self._routes.of(*filter(None, (topic, self._default_topic)))
        partitions = routes.of(topic, self._default_topic)
        chosen = self._select(topic, partitions, payload)
        try:
            return self._client.send(
                topic,
                payload,
                attribute=attribute,
                server=routes.addresses[chosen.broker_id],
                partition=chosen.number,
            )
        except ConnectionLostError:
            self._routes.forget()
            raise


class OrderedProducer:
    """One partition for each key, whether it is there or not; what it cannot take is kept.

    There is no thread: what is kept is sent by `resend`, and by a `send` that finds it in its way.
    """

    def __init__(
        self,
        client: MetaqClient,
        tree: MetaqTree,
        folder: Path,
        partitions: OrderedPartitions,
        *,
        store_when_failed: bool,
    ) -> None:
        self._client, self._routes = client, Routes(tree)
        self._partitions, self._kept = partitions, KeptByPartition(folder)
        self._store_when_failed = store_when_failed
        for topic in partitions.topics:
            self._kept.open(partitions.of(topic))

    @property
    def kept(self) -> int:
        """How many messages wait in the folder."""
        return len(self._kept)

    def send(
        self, topic: str, payload: bytes, *, key: bytes, attribute: str | None = None
    ) -> PutResult | None:
        """Put one message; None: it is kept here until its partition takes it."""
        partition = by_key(key, self._partitions.of(topic))
        put_command(topic, payload, attribute, partition.number, 0)  # what is wrong is refused now
        waits = 0
        while True:
            address = self._address(partition)
            stored = self._kept.count(partition)
            step = next_step(available=address is not None, stored=stored, waits=waits)
            if step is OrderedStep.SEND and address is not None:
                return self._put(address, partition, payload, attribute)
            if step is OrderedStep.STORE:
                self._kept.keep(partition, payload, attribute)
                return None
            waits += 1
            self._resend(partition)

    def resend(self) -> int:
        """Send what is kept, as far as partitions are there; return how many messages that were."""
        return sum(self._resend(partition) for partition in self._kept.partitions)

    def close(self) -> None:
        """Leave what is kept to the next one."""
        self._kept.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _address(self, partition: PartitionId) -> str | None:
        return self._routes.of(*self._partitions.topics).address(partition)

    def _put(
        self, address: str, partition: PartitionId, payload: bytes, attribute: str | None
    ) -> PutResult | None:
        try:
            return self._client.send(
                partition.topic,
                payload,
                attribute=attribute,
                server=address,
                partition=partition.number,
            )
        except (MetaqError, TryAgainError) as error:
            self._routes.forget()
            if not is_closed(error) and not self._store_when_failed:
                raise
            log.warning("message_kept partition=%s error=%s", partition.name, error)
            self._kept.keep(partition, payload, attribute)
            return None

    def _resend(self, partition: PartitionId) -> int:
        sent, store = 0, self._kept.of(partition)
        for number, kept in store:
            address = self._address(partition)
            if address is None:
                break
            try:
                self._client.send(
                    partition.topic,
                    kept.payload,
                    attribute=kept.attribute,
                    server=address,
                    partition=partition.number,
                )
            except ClientError as error:
                self._routes.forget()
                log.warning("resend_failed partition=%s error=%s", partition.name, error)
                break
            store.remove(number)
            sent += 1
        return sent


class MetaqSessionFactory:
    """Producers, consumers, browsers and transactions that find brokers in ZooKeeper."""

    def __init__(self, zookeeper: str | MetaqConfig, *, rng: Random | None = None) -> None:
        self.config = metaq_config(zookeeper)
        self._client = MetaqClient(self.config)
        self._tree = MetaqTree(self.config)
        self._rng = rng or Random()  # noqa: S311 - chooses brokers

    def start(self) -> None:
        """Open the session. ConnectionLostError: no ZooKeeper is there."""
        self._tree.start()
        self._routes = Routes(self._tree)

    def close(self) -> None:
        """End the session and all connections; end producers and consumers before."""
        self._tree.close()
        self._client.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def producer(
        self, *, select: PartitionSelector | None = None, default_topic: str | None = None
    ) -> MetaqGroupProducer:
        """Return a producer; `select` chooses partitions, else they take turns."""
        return MetaqGroupProducer(self._client, self._tree, select, default_topic)

    def ordered_producer(
        self,
        folder: Path,
        partitions: OrderedPartitions | Mapping[str, Mapping[int, int]],
        *,
        store_when_failed: bool = False,
    ) -> OrderedProducer:
        """Return a producer that keeps order, and in `folder` what cannot be put now."""
        if not isinstance(partitions, OrderedPartitions):
            partitions = OrderedPartitions(partitions)
        return OrderedProducer(
            self._client, self._tree, folder, partitions, store_when_failed=store_when_failed
        )

    def transaction(self, *topics: str, timeout_s: int = 0) -> LocalTransaction:
        """Return a transaction at one broker, of those that have all these topics."""
        return self._client.transaction(server=self._one_with(topics), timeout_s=timeout_s)

    def xa_resource(self, qualifier: str, *topics: str) -> XaResource:
        """Return one broker, of those that have all these topics, for a transaction manager."""
        return self._client.xa_resource(qualifier, server=self._one_with(topics))

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
        storage = offsets or ZooKeeperOffsets(self._tree)
        return MetaqGroupConsumer(
            self._client, self._tree, settings, topics, storage, wanted, rng=self._rng
        )

    def broadcast_consumer(
        self, group: str, topics: Sequence[str], folder: Path
    ) -> MetaqGroupConsumer:
        """Return a consumer that reads all, whatever other machines of the group read; how far it
        is stands in `folder`."""
        config = MetaqGroupConsumerConfig(group=broadcast_group(group))
        return self.consumer(config, topics, offsets=LocalFileOffsets(folder / "offsets.json"))

    def partitions(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic that consumers see, with who serves each now."""
        paths, run = self._tree.paths, self._tree.run
        offered = run(read_offered(paths.subscribable(topic), topic, masters_only=False))
        return serving(offered, run(read_cluster(paths)))

    def browse(self, topic: str, *, size_max: int = BROWSER_BYTES) -> Iterator[MetaqMessage]:
        """Go through all that a topic holds now, one partition after the other."""
        for partition in self.partitions(topic):
            cursor = browsing_cursor(size_max)
            while True:
                fetched = self._client.get(
                    partition, cursor.position, group=BROWSER_GROUP, size_max=cursor.fetch_bytes
                )
                before = (cursor.position, cursor.fetch_bytes)
                for message in cursor.take(fetched):
                    cursor.advance(message)
                    yield message
                if (cursor.position, cursor.fetch_bytes) == before:
                    break

    def stats(self, item: str = "", *, server: str | None = None) -> dict[str, dict[str, str]]:
        """Return the statistics of all masters, or of one broker, by address."""
        if server is not None:
            return {server: self._client.stats(server, item)}
        cluster = self._tree.run(read_cluster(self._tree.paths))
        masters = sorted(each.master for each in cluster.values() if each.master)
        return {address: self._client.stats(address, item) for address in masters}

    def _one_with(self, topics: tuple[str, ...]) -> str:
        if not topics:
            raise UsageError("topics: name those that messages will go to")
        return self._routes.of(*topics).broker_with_all(topics, self._rng.choice)
