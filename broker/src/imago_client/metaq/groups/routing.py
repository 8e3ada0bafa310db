"""A producer's view of the topics that it publishes, read anew when the tree has changed."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from imago_client.core.metaq.routes import PublishedRoutes, read_routes
from imago_client.errors import ClientError

if TYPE_CHECKING:
    from imago_client.metaq.groups.zookeeper import MetaqTree

log = logging.getLogger(__name__)


class RouteFinder:
    """For asyncio; the tree is asked only where something may have changed since."""

    def __init__(self, tree: MetaqTree) -> None:
        self._tree = tree
        self._routes = PublishedRoutes()
        self._topics: tuple[str, ...] = ()
        self._read_at: int | None = None
        self._reading = asyncio.Lock()

    async def publish(self, *topics: str) -> None:
        """Find where these go, besides what was published before."""
        self.want(*topics)
        await self.routes()

    def want(self, *topics: str) -> None:
        """Find where these go too, with the next look at the tree."""
        missing = [topic for topic in topics if topic not in self._topics]
        if missing:
            self._topics = (*self._topics, *missing)
            self._read_at = None

    async def routes(self) -> PublishedRoutes:
        """Return what is known; the former view stays while ZooKeeper is not there."""
        if self._read_at == self._tree.changes:
            return self._routes
        async with self._reading:
            changes = self._tree.changes
            if self._read_at != changes:
                try:
                    operation = read_routes(self._tree.paths, self._topics)
                    self._routes = await self._tree.ask(operation)
                    self._read_at = changes
                except ClientError as error:
                    if not self._routes.partitions.keys() >= set(self._topics):
                        raise
                    log.warning("routes_not_read error=%s", error)
        return self._routes

    def forget(self) -> None:
        """Read anew next time: what is known has turned out to be wrong."""
        self._read_at = None
