"""The coordinator over a tree of nodes: ZooKeeper's or the one in memory.

Two tasks: the reader brings the snapshot up to date when a watch fired, the writer runs a pass
of the keeper when what we want changed. Both start over from the beginning whenever a session
comes back, because any watch may have been missed and any node of ours may be gone.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from uuid import uuid4

from imago_broker.cluster import znodes
from imago_broker.cluster.desired.keeper import RECORD, Keeper
from imago_broker.cluster.desired_writer import DesiredWriter
from imago_broker.cluster.edits.shared import surplus
from imago_broker.cluster.ports.metaq_consumers import TreeMetaqConsumers
from imago_broker.cluster.ports.pipeline_records import TreePipelineRecords
from imago_broker.cluster.ports.shard_states import TreeShardStates
from imago_broker.cluster.ports.shared_marks import TreeSharedMarks
from imago_broker.cluster.ports.shared_nodes import SharedNodes
from imago_broker.cluster.preparation import Preparation
from imago_broker.cluster.session.leased_session import LeasedSession
from imago_broker.cluster.session.session_lease import monotonic_ms
from imago_broker.cluster.session.wakeups import RETRY_SECONDS, Wake
from imago_broker.cluster.snapshot_reader import SnapshotReader
from imago_broker.cluster.tree import NodeError, TreeConfigurationError, TreeUnavailableError
from imago_broker.model.registry.cluster import RegistryConnection
from imago_broker.ports import (
    CoordinatorConflictError,
    CoordinatorError,
    CoordinatorUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.cluster.settings import CoordinatorConfig
    from imago_broker.cluster.tree import NodeTree
    from imago_broker.model.registry.cluster import (
        BrokerRecord,
        ClusterView,
        ForeignBroker,
        TopicPlacement,
    )

logger = logging.getLogger(__name__)

SECONDS_PER_TOPIC = 0.005
"""Added to the operation time-out: three nodes a topic are new in a new session."""


class TreeCoordinator:
    """`imago_broker.ports.Coordinator` over a `NodeTree`."""

    def __init__(
        self,
        config: CoordinatorConfig,
        tree: NodeTree,
        *,
        process_id: str | None = None,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        """The process id keeps apart what several processes write; random unless given."""
        paths = znodes.Paths(config.cluster)
        holder = process_id or uuid4().hex
        self._config = config
        self._tree = tree
        self._keeper = Keeper(config, paths, tree, holder=holder, now_ms=now_ms)
        self._read_wake, self._write_wake = Wake(now_ms), Wake(now_ms)
        self._reader = SnapshotReader(
            paths, tree, keeper=self._keeper, read=self._read_wake, write=self._write_wake
        )
        self._preparation = Preparation(config, paths, tree)
        self._session = LeasedSession(
            config,
            tree,
            now_ms=now_ms,
            on_connected=self._connected,
            on_doubt=self._write_wake.set,
        )
        self._writer = DesiredWriter(
            config,
            self._keeper,
            self._reader,
            self._preparation,
            self._session,
            self._write_wake,
        )
        self._paths = paths
        self._nodes = nodes = SharedNodes(config, tree, self._reader)
        self.shard_states = TreeShardStates(
            paths,
            tree,
            nodes=nodes,
            reader=self._reader,
            keeper=self._keeper,
            session=self._session,
        )
        self.marks = TreeSharedMarks(config, paths, tree, nodes, self._reader)
        self.pipelines = TreePipelineRecords(paths, tree, nodes)
        self.metaq_consumers = TreeMetaqConsumers(config, tree, nodes, self._keeper)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def state(self) -> RegistryConnection:
        return self._session.state

    @property
    def registered(self) -> BrokerRecord | None:
        return self._keeper.registered

    @property
    def lease_end_ms(self) -> int:
        return self._session.lease_end_ms

    def view(self) -> ClusterView:
        return self._reader.view

    def on_change(self, callback: Callable[[ClusterView], None]) -> None:
        self._reader.on_change(callback)

    def on_state(self, callback: Callable[[RegistryConnection], None]) -> None:
        self._session.on_state(callback)

    async def start(self) -> None:
        self._tree.on_connection(self._session.connection_changed)
        self._tree.on_watch(self._reader.watch_fired)
        try:
            await self._tree.start()
            await self._begin()
            await self._session.start()
        except TreeUnavailableError as error:
            await self._tree.stop()
            raise CoordinatorUnavailableError(str(error)) from error
        except TreeConfigurationError as error:
            await self._tree.stop()
            raise CoordinatorConflictError(str(error)) from error
        except NodeError as error:
            await self._tree.stop()
            raise CoordinatorError(f"the registry refuses us: {error}") from error
        except asyncio.CancelledError:
            await self._tree.stop()
            raise
        self._tasks = [
            asyncio.create_task(self._read_wake.run("reader", self._reader.step)),
            asyncio.create_task(self._write_wake.run("writer", self._writer.step)),
        ]

    async def _begin(self) -> None:
        """See what there is; again where a connection is lost meanwhile, within the same time."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._config.connect_timeout_ms / 1000
        while True:
            try:
                await self._preparation.prepare(self.view().cluster_id)
                await self._reader.refresh_everything()
            except TreeUnavailableError as error:
                if loop.time() >= end_s:
                    raise
                logger.info("registry_unavailable task=start reason=%s", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks and self.state is RegistryConnection.CONNECTED:
            await self._leave()
        await self._tree.stop()
        await self._session.stop()

    async def register(self, record: BrokerRecord) -> int:
        self._keeper.want_record(record)
        await self._writer.written([RECORD], extra_seconds=self._config.stranger_wait_seconds)
        registered = self._keeper.registered
        if registered is None:
            raise CoordinatorUnavailableError("the session ended while the broker registered")
        return registered.incarnation

    async def unregister(self) -> None:
        self._keeper.want_no_record()
        await self._writer.written([RECORD])

    async def publish_topic(self, placement: TopicPlacement) -> None:
        await self.publish_topics([placement])

    async def publish_topics(
        self, placements: Sequence[TopicPlacement], *, complete: bool = False
    ) -> None:
        keys = self._keeper.topics.want(placements)
        if complete:
            gone = surplus(self.view(), self._keeper.registered, placements)
            keys += self._keeper.topics.want_none(gone)
        await self._writer.written(keys, extra_seconds=len(keys) * SECONDS_PER_TOPIC)

    def tell_checksum(self, checksum: int) -> None:
        if self._keeper.tell_checksum(checksum):
            self._write_wake.set()

    async def offer_patterns(self, patterns: Sequence[TopicPlacement]) -> None:
        await self._writer.written(self._keeper.topics.offer_patterns(patterns))

    async def remove_topic(self, name: str) -> None:
        await self._writer.written(self._keeper.topics.want_none([name]))

    async def read_topic(self, name: str) -> None:
        await self._nodes.read_now(self._paths.bucket(name))

    async def put_foreign(self, broker: ForeignBroker) -> None:
        await self._writer.written([self._keeper.foreigners.want(broker.key, broker)])

    async def remove_foreign(self, key: tuple[str, str, int]) -> None:
        await self._writer.written([self._keeper.foreigners.want(key, None)])

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(self._config.operation_timeout_ms / 1000):
                await self._keeper.leave()
        except (TimeoutError, TreeUnavailableError) as error:
            # The session's end takes the nodes away a little later.
            logger.warning("registry_leave_failed reason=%s", error)

    def _connected(self) -> None:
        self._preparation.forget()
        self._reader.read_everything()
