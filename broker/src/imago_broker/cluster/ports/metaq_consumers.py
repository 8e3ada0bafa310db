"""`imago_broker.ports.MetaqConsumers` over a tree of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.cluster.metaq_tree import metaq_progress
from imago_broker.cluster.metaq_tree.metaq_nodes import read_master, read_tree
from imago_broker.cluster.metaq_tree.metaq_tree import MetaqPaths
from imago_broker.ports import CoordinatorUnavailableError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from imago_broker.cluster.desired.keeper import Keeper
    from imago_broker.cluster.ports.shared_nodes import SharedNodes
    from imago_broker.cluster.settings import CoordinatorConfig
    from imago_broker.cluster.tree import NodeTree
    from imago_broker.core.metaq.metaq_tree_check import TreeNode
    from imago_broker.model.metaq_tree import MetaqMaster, OffsetCopy, OffsetRecord
    from imago_broker.ports import MetaqProgress


class TreeMetaqConsumers:
    """Reads what MetaQ's consumers have written, as long as we are registered."""

    def __init__(
        self, config: CoordinatorConfig, tree: NodeTree, nodes: SharedNodes, keeper: Keeper
    ) -> None:
        self._config = config
        self._tree = tree
        self._nodes = nodes
        self._keeper = keeper

    async def metaq_progress(
        self, topics: Collection[str], groups: Collection[str] | None = None
    ) -> MetaqProgress:
        record = self._keeper.registered
        if record is None or self._config.alone:
            return {}
        root, broker_id = self._config.metaq_root, self._config.metaq_broker_id_base + record.shard
        async with self._nodes.answered(f"{root}/consumers"):
            return await metaq_progress.read(
                self._tree,
                root,
                broker_id,
                frozenset(topics),
                None if groups is None else [*groups],
            )

    async def metaq_master(self) -> MetaqMaster | None:
        record = self._keeper.registered
        if record is None or self._config.alone:
            return None
        root, broker_id = self._config.metaq_root, self._config.metaq_broker_id_base + record.shard
        async with self._nodes.answered(f"{root}/brokers"):
            return await read_master(self._tree, MetaqPaths(root, broker_id))

    async def copy_offsets(self, topic: str, copy: OffsetCopy) -> list[str]:
        root = self._config.metaq_root
        if self._config.alone:
            return []
        async with self._nodes.answered(f"{root}/consumers"):
            return await metaq_progress.copy_offsets(self._tree, root, topic, copy)

    async def metaq_owners(self, topic: str, group: str) -> Mapping[int, str]:
        record, root = self._keeper.registered, self._config.metaq_root
        if record is None or self._config.alone:
            return {}
        broker_id = self._config.metaq_broker_id_base + record.shard
        async with self._nodes.answered(f"{root}/consumers"):
            return await metaq_progress.owners(self._tree, root, broker_id, topic, group)

    async def set_metaq_offset(self, topic: str, group: str, partition: int, at: int) -> None:
        record, root = self._keeper.registered, self._config.metaq_root
        if record is None or self._config.alone:
            raise CoordinatorUnavailableError("there is no ZooKeeper in which groups keep offsets")
        broker_id = self._config.metaq_broker_id_base + record.shard
        async with self._nodes.answered(f"{root}/consumers"):
            path = f"{root}/consumers/{group}/offsets/{topic}/{broker_id}-{partition}"
            await metaq_progress.set_offset(self._tree, path, at)

    async def offset_records(self, topics: Collection[str]) -> list[OffsetRecord]:
        record = self._keeper.registered
        if record is None or self._config.alone:
            return []
        root, broker_id = self._config.metaq_root, self._config.metaq_broker_id_base + record.shard
        async with self._nodes.answered(f"{root}/consumers"):
            return await metaq_progress.records(self._tree, root, broker_id, topics)

    async def move_offset(self, record: OffsetRecord, position: int) -> bool:
        registered = self._keeper.registered
        if registered is None or self._config.alone:
            return False
        root, base = self._config.metaq_root, self._config.metaq_broker_id_base
        async with self._nodes.answered(f"{root}/consumers"):
            return await metaq_progress.move(
                self._tree, root, base + registered.shard, record, position
            )

    async def metaq_tree(self) -> tuple[str, Mapping[str, TreeNode]]:
        root = self._config.metaq_root
        if self._config.alone:
            return root, {}
        async with self._nodes.answered(root):
            return root, await read_tree(self._tree, root)

    async def metaq_groups(self) -> tuple[str, ...]:
        if self._keeper.registered is None or self._config.alone:
            return ()
        root = self._config.metaq_root
        async with self._nodes.answered(f"{root}/consumers"):
            return await metaq_progress.groups(self._tree, root)

    async def metaq_members(self, groups: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        if self._keeper.registered is None or self._config.alone:
            return {}
        root = self._config.metaq_root
        async with self._nodes.answered(f"{root}/consumers"):
            return await metaq_progress.members(self._tree, root, [*groups])
