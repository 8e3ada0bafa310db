"""`imago_broker.ports.SharedMarks` over a tree of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.cluster import shared
from imago_broker.cluster.removal import remove_shard

if TYPE_CHECKING:
    from imago_broker.cluster.settings import CoordinatorConfig
    from imago_broker.cluster.shared_nodes import SharedNodes
    from imago_broker.cluster.snapshot_reader import SnapshotReader
    from imago_broker.cluster.tree import NodeTree
    from imago_broker.cluster.znodes import Paths


class TreeSharedMarks:
    """What administrators note of shards and of the cluster: each a change of one node."""

    def __init__(
        self,
        config: CoordinatorConfig,
        paths: Paths,
        tree: NodeTree,
        nodes: SharedNodes,
        reader: SnapshotReader,
    ) -> None:
        self._config = config
        self._paths = paths
        self._tree = tree
        self._nodes = nodes
        self._reader = reader

    async def mark_shard(
        self, shard: int, *, cordoned: bool | None = None, drained: bool | None = None
    ) -> None:
        edit = shared.marking(self._paths, shard, cordoned, drained)
        await self._nodes.change(self._paths.shard(shard), edit)

    async def drain_shard(self, shard: int, request_id: str, *, move: bool = True) -> None:
        edit = shared.draining(self._paths, shard, request_id, move=move)
        await self._nodes.change(self._paths.shard(shard), edit)

    async def undrain_shard(self, shard: int) -> None:
        await self._nodes.change(self._paths.shard(shard), shared.undraining(self._paths, shard))

    async def note_drained(self, shard: int, drained: bool) -> None:
        edit = shared.noting_drained(self._paths, shard, drained)
        await self._nodes.change(self._paths.shard(shard), edit)

    async def forget_shard(self, shard: int) -> None:
        for path in (self._paths.shard(shard), self._paths.shards, self._paths.brokers):
            await self._nodes.read_now(path)
        async with self._nodes.answered(self._paths.shard(shard)):
            await remove_shard(self._tree, self._paths, self._config, self._reader.view, shard)
            await self._reader.refresh({self._paths.shards, *self._paths.buckets()})

    async def read_operator_epoch(self) -> int:
        await self._nodes.read_now(self._paths.operator)
        return self._reader.view.operator_epoch

    async def raise_operator_epoch(self, epoch: int) -> None:
        await self._nodes.change(self._paths.operator, shared.raising(self._paths, epoch))

    async def put_kv(self, namespace: str, key: str, value: str | None) -> None:
        await self._nodes.change(self._paths.kv, shared.putting(self._paths, namespace, key, value))

    async def set_write_wiped(self, broker_name: str, wiped: bool) -> None:
        await self._nodes.change(self._paths.wiped, shared.wiping(self._paths, broker_name, wiped))
