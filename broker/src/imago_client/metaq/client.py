"""The asyncio client of MetaQ's text protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from imago_client.metaq.connection import Asking, TextConnections
from imago_client.metaq.producer import MetaqProducer
from imago_client.metaq.reading.bounds import bounds
from imago_client.metaq.reading.consumer import MetaqConsumer, MetaqConsumerConfig
from imago_client.metaq.reading.offsets import MemoryOffsets
from imago_client.metaq.transactions import LocalTransaction, XaResource
from imago_client.metaq.values import (
    Fetched,
    MetaqConfig,
    MetaqError,
    Partition,
    get_command,
    read_get,
    read_offsets,
    read_stats,
    result_text,
)
from imago_wire.text.commands import Stats
from imago_wire.text.status import Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from imago_client.metaq.reading.offsets import OffsetStore
    from imago_client.metaq.values import MetaqMessage


class MetaqClient:
    """One client of some brokers; its producers and consumers share one connection per broker."""

    def __init__(self, servers: str | MetaqConfig, *, connections: Asking | None = None) -> None:
        self.config = MetaqConfig.of(servers)
        self._connections = connections or TextConnections(self.config)

    @property
    def connections(self) -> Asking:
        """The connections, for what else is built on them."""
        return self._connections

    def producer(self) -> MetaqProducer:
        """Return a new producer."""
        return MetaqProducer(self._connections)

    def transaction(self, *, server: str | None = None, timeout_s: int = 0) -> LocalTransaction:
        """Return a transaction for `async with`, at one broker: `server`, or the first.

        `timeout_s`: after so long the broker rolls it back; 0: when the connection is lost.
        """
        return LocalTransaction(self._connections, server or self.config.servers[0], timeout_s)

    def xa_resource(self, qualifier: str, *, server: str | None = None) -> XaResource:
        """Return one broker, `server` or the first, as a resource of a transaction manager."""
        return XaResource(self._connections, server or self.config.servers[0], qualifier)

    def consumer(
        self,
        config: MetaqConsumerConfig | str,
        topics: Sequence[str],
        handler: Callable[[MetaqMessage], Awaitable[None]],
        *,
        offsets: OffsetStore | None = None,
    ) -> MetaqConsumer:
        """Return a consumer of all partitions of some topics (its configuration, or its group)."""
        settings = MetaqConsumerConfig(group=config) if isinstance(config, str) else config
        return MetaqConsumer(self, settings, topics, handler, offsets or MemoryOffsets())

    async def get(
        self, partition: Partition, offset: int, *, group: str, size_max: int = 1 << 20
    ) -> Fetched:
        """Fetch stored messages once, from a byte position on."""
        answer = await self._connections.ask(
            partition.server,
            lambda opaque: get_command(partition, group, offset, size_max, opaque),
            timeout_s=self.config.fetch_timeout_s,
        )
        return read_get(partition, offset, answer)

    async def partitions(
        self, topic: str, *, group: str | None = None
    ) -> dict[Partition, tuple[int, int]]:
        """Return the partitions that hold messages, on all brokers, with first and end position.

        `group`: as its reader each partition is asked, where a broker tells of all together only
        to who may see the cluster.
        """
        servers = self.config.servers
        found: dict[Partition, tuple[int, int]] = {}
        asked = (self.partitions_on(server, topic, group=group) for server in servers)
        for one in await self._connections.together(asked):
            found |= one
        return dict(sorted(found.items()))

    async def partitions_on(
        self, server: str, topic: str, *, group: str | None = None
    ) -> dict[Partition, tuple[int, int]]:
        """Return the same of one broker."""
        try:
            return read_offsets(server, topic, await self._stats(server, "offsets"))
        except MetaqError as error:
            if group is None or error.status != Status.FORBIDDEN:
                raise
        return await bounds(self._connections, server, topic, group)

    async def stats(self, server: str, item: str = "") -> dict[str, str]:
        """Return a broker's statistics."""
        return read_stats(await self._stats(server, item))

    async def close(self) -> None:
        """Close every connection."""
        await self._connections.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def _stats(self, server: str, item: str) -> str:
        answer = await self._connections.ask(
            server,
            lambda opaque: Stats(item, opaque),
            timeout_s=self.config.request_timeout_s,
        )
        return result_text(server, answer)
