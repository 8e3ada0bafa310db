"""`imago_broker.ports.ShardStates` over a tree of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.cluster.edits import leadership
from imago_broker.cluster.tree import TreeUnavailableError
from imago_broker.model.registry.cluster import RegistryConnection
from imago_broker.ports import CoordinatorConflictError, CoordinatorUnavailableError

if TYPE_CHECKING:
    from imago_broker.cluster.desired.keeper import Keeper
    from imago_broker.cluster.ports.shared_nodes import SharedNodes
    from imago_broker.cluster.session.leased_session import LeasedSession
    from imago_broker.cluster.snapshot_reader import SnapshotReader
    from imago_broker.cluster.tree import NodeTree
    from imago_broker.cluster.znodes import Paths
    from imago_broker.model.registry.shard import ShardState


class TreeShardStates:
    """Changes of leadership."""

    def __init__(
        self,
        paths: Paths,
        tree: NodeTree,
        *,
        nodes: SharedNodes,
        reader: SnapshotReader,
        keeper: Keeper,
        session: LeasedSession,
    ) -> None:
        self._paths = paths
        self._tree = tree
        self._nodes = nodes
        self._reader = reader
        self._keeper = keeper
        self._session = session

    async def change_shard(self, shard: int, state: ShardState) -> ShardState:
        record = self._keeper.registered
        if record is None or record.shard != shard:
            raise CoordinatorConflictError(f"no registration of ours in shard {shard}")
        if self._session.state is not RegistryConnection.CONNECTED:
            raise CoordinatorUnavailableError(f"the registry session is {self._session.state}")
        if giving := state.leader != (record.uuid, record.incarnation):
            self._keeper.hold()
        path = self._paths.state(shard)
        async with self._nodes.answered(path):
            try:
                return await leadership.change(self._tree, self._paths, state, record)
            finally:
                if giving:
                    self._reader.leadership_given()
                await self._look_again(path)

    async def read_shard(self, shard: int) -> ShardState | None:
        await self._nodes.read_now(self._paths.state(shard))
        return self._reader.view.states.get(shard)

    async def _look_again(self, path: str) -> None:
        try:
            await self._reader.refresh({path})
        except TreeUnavailableError:
            self._reader.watch_fired(path)
