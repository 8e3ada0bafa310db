"""What the original calls a session factory: all that one client makes over one ZooKeeper session.

async with MetaqSessionFactory("127.0.0.1:2181") as factory:
    await factory.producer().send("orders", b"hello")
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Self

from imago_client.checks import check_text
from imago_client.config import parse_addresses
from imago_client.core.metaq.nodes import read_cluster, read_offered
from imago_client.errors import UsageError
from imago_client.metaq.client import MetaqClient
from imago_client.metaq.groups.group_config import MetaqGroupConsumerConfig, broadcast_group
from imago_client.metaq.groups.group_consumer import MetaqGroupConsumer
from imago_client.metaq.groups.group_offsets import LocalFileOffsets, ZooKeeperOffsets
from imago_client.metaq.groups.group_producer import RECOVER_S, MetaqGroupProducer, OrderedProducer
from imago_client.metaq.groups.oneway_producer import WINDOW_UNITS, OnewayProducer
from imago_client.metaq.groups.routing import RouteFinder
from imago_client.metaq.groups.threads import in_thread
from imago_client.metaq.groups.zookeeper import MetaqTree
from imago_client.metaq.reading.browsing import (
    BROWSER_BYTES,
    BROWSER_GROUP,
    browsing_cursor,
    serving,
)
from imago_client.metaq.values import MetaqConfig, Partition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from imago_client.core.metaq.ordering import OrderedPartitions
    from imago_client.core.metaq.routes import PartitionSelector
    from imago_client.metaq.connection import Asking
    from imago_client.metaq.groups.group_offsets import OffsetStorage
    from imago_client.metaq.groups.recovering import RejectionPolicy
    from imago_client.metaq.groups.threads import Apart
    from imago_client.metaq.transactions import LocalTransaction, XaResource
    from imago_client.metaq.values import MetaqMessage


def metaq_config(zookeeper: str | MetaqConfig) -> MetaqConfig:
    """Return `zookeeper` itself if it is a configuration that names one, else one made of it."""
    if isinstance(zookeeper, MetaqConfig):
        if zookeeper.zookeeper is None:
            raise UsageError("zookeeper: a session factory needs its address, host:port[,…]")
        return zookeeper
    check_text("zookeeper", zookeeper)
    servers, slash, chroot = zookeeper.partition("/")
    hosts = ",".join(parse_addresses(servers, "zookeeper"))
    return MetaqConfig(zookeeper=hosts + slash + chroot)


class MetaqSessionFactory:
    """Producers, consumers, browsers and transactions that find brokers in ZooKeeper."""

    def __init__(
        self,
        zookeeper: str | MetaqConfig,
        *,
        rng: Random | None = None,
        connections: Asking | None = None,
        apart: Apart = in_thread,
    ) -> None:
        """`connections`, `apart`: of the blocking face, which needs no event loop."""
        self.config = metaq_config(zookeeper)
        self._client = MetaqClient(self.config, connections=connections)
        self.tree = MetaqTree(self.config, apart)
        self.rng = rng or Random()  # noqa: S311 - chooses brokers

    async def start(self) -> None:
        """Open the session. ConnectionLostError: no ZooKeeper is there."""
        await self.tree.apart(self.tree.start)
        self._finder = RouteFinder(self.tree)

    async def close(self) -> None:
        """End the session and all connections; end producers and consumers before."""
        await self.tree.apart(self.tree.close)
        await self._client.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    # Producers

    def producer(
        self, *, select: PartitionSelector | None = None, default_topic: str | None = None
    ) -> MetaqGroupProducer:
        """Return a producer; `select` chooses partitions, else they take turns."""
        return MetaqGroupProducer(
            self._client.connections, self.tree, select=select, default_topic=default_topic
        )

    def ordered_producer(
        self,
        folder: Path,
        partitions: OrderedPartitions | Mapping[str, Mapping[int, int]],
        *,
        every_s: float = RECOVER_S,
        store_when_failed: bool = False,
    ) -> OrderedProducer:
        """Return a producer that keeps order, and in `folder` what cannot be put now.

        `partitions`: all that each topic is to have, `{"orders": {0: 4, 1: 4}}`.
        """
        return OrderedProducer(
            self._client.connections,
            self.tree,
            folder,
            partitions,
            every_s=every_s,
            store_when_failed=store_when_failed,
        )

    def oneway_producer(
        self, folder: Path, *, window: int = WINDOW_UNITS, every_s: float = RECOVER_S
    ) -> OnewayProducer:
        """Return a producer that waits for nothing, and keeps in `folder` what fails."""
        return OnewayProducer(self.producer(), folder, window=window, every_s=every_s)

    async def transaction(self, *topics: str, timeout_s: int = 0) -> LocalTransaction:
        """Return a transaction at one broker, of those that have all these topics."""
        return self._client.transaction(server=await self._one_with(topics), timeout_s=timeout_s)

    async def xa_resource(self, qualifier: str, *topics: str) -> XaResource:
        """Return one broker, of those that have all these topics, for a transaction manager."""
        return self._client.xa_resource(qualifier, server=await self._one_with(topics))

    async def _one_with(self, topics: tuple[str, ...]) -> str:
        if not topics:
            raise UsageError("topics: name those that messages will go to")
        await self._finder.publish(*topics)
        return (await self._finder.routes()).broker_with_all(topics, self.rng.choice)

    # Consumers

    def consumer(
        self,
        config: MetaqGroupConsumerConfig | str,
        *,
        offsets: OffsetStorage | None = None,
        on_reject: RejectionPolicy | None = None,
    ) -> MetaqGroupConsumer:
        """Return a member of a group (its configuration, or its name); `subscribe`, then start.

        Offsets are kept in ZooKeeper unless a storage is given. `on_reject` takes what its handler
        refuses; without it such a message holds up its partition.
        """
        settings = MetaqGroupConsumerConfig(group=config) if isinstance(config, str) else config
        storage = offsets or ZooKeeperOffsets(self.tree)
        return MetaqGroupConsumer(self._client, self.tree, settings, storage, on_reject, self.rng)

    def broadcast_consumer(
        self, group: str, folder: Path, *, on_reject: RejectionPolicy | None = None
    ) -> MetaqGroupConsumer:
        """Return a consumer that reads all, whatever other machines of the group read; how far it
        is stands in `folder`."""
        config = MetaqGroupConsumerConfig(group=broadcast_group(group))
        offsets = LocalFileOffsets(folder / "offsets.json")
        return self.consumer(config, offsets=offsets, on_reject=on_reject)

    # Looking

    async def partitions(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic that consumers see, with who serves each now."""
        paths, ask = self.tree.paths, self.tree.ask
        offered = await ask(read_offered(paths.subscribable(topic), topic, masters_only=False))
        return serving(offered, await ask(read_cluster(paths)))

    async def browse(
        self, topic: str, *, size_max: int = BROWSER_BYTES
    ) -> AsyncIterator[MetaqMessage]:
        """Go through all that a topic holds now, one partition after the other."""
        for partition in await self.partitions(topic):
            cursor = browsing_cursor(size_max)
            while True:
                fetched = await self._client.get(
                    partition, cursor.position, group=BROWSER_GROUP, size_max=cursor.fetch_bytes
                )
                before = (cursor.position, cursor.fetch_bytes)
                for message in cursor.take(fetched):
                    cursor.advance(message)
                    yield message
                if (cursor.position, cursor.fetch_bytes) == before:
                    break

    async def stats(
        self, item: str = "", *, server: str | None = None
    ) -> dict[str, dict[str, str]]:
        """Return the statistics of all masters, or of one broker, by address."""
        if server is not None:
            return {server: await self._client.stats(server, item)}
        cluster = await self.tree.ask(read_cluster(self.tree.paths))
        masters = sorted(each.master for each in cluster.values() if each.master)
        return {address: await self._client.stats(address, item) for address in masters}
