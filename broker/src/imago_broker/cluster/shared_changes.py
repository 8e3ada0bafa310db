"""Changes of what all processes share, as one half of the coordinator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from imago_broker.cluster import edits, metaq_progress, pipelines, shared
from imago_broker.cluster.removal import remove_shard
from imago_broker.model.pipelines import Pipeline

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from contextlib import AbstractAsyncContextManager

    from imago_broker.cluster.settings import CoordinatorConfig
    from imago_broker.cluster.shared import Edit
    from imago_broker.cluster.tree import NodeTree
    from imago_broker.cluster.znodes import Paths
    from imago_broker.model.cluster import BrokerRecord, ClusterView
    from imago_broker.model.pipelines import PipelineProgress
    from imago_broker.ports import MetaqProgress


class SharedChanges(ABC):
    """The methods of `imago_broker.ports.Coordinator` that compare and set one shared node."""

    _config: CoordinatorConfig
    _tree: NodeTree
    _paths: Paths

    @property
    @abstractmethod
    def registered(self) -> BrokerRecord | None: ...

    @abstractmethod
    def view(self) -> ClusterView: ...

    @abstractmethod
    async def _change(self, path: str, edit: Edit) -> None:
        """Compare and set a node that many processes share, then read it back."""

    @abstractmethod
    async def _read_now(self, path: str) -> None:
        """Bring a node of the snapshot up to what the ensemble's leader has."""

    @abstractmethod
    async def _refresh(self, paths: set[str]) -> None:
        """Read these nodes into the snapshot."""

    @abstractmethod
    def _answered(self, path: str) -> AbstractAsyncContextManager[None]:
        """Say in the port's terms what became of work on a node, and give it an end."""

    async def mark_shard(
        self, shard: int, *, cordoned: bool | None = None, drained: bool | None = None
    ) -> None:
        edit = shared.marking(self._paths, shard, cordoned, drained)
        await self._change(self._paths.shard(shard), edit)

    async def drain_shard(self, shard: int, request_id: str, *, move: bool = True) -> None:
        edit = shared.draining(self._paths, shard, request_id, move=move)
        await self._change(self._paths.shard(shard), edit)

    async def undrain_shard(self, shard: int) -> None:
        await self._change(self._paths.shard(shard), shared.undraining(self._paths, shard))

    async def note_drained(self, shard: int, drained: bool) -> None:
        edit = shared.noting_drained(self._paths, shard, drained)
        await self._change(self._paths.shard(shard), edit)

    async def forget_shard(self, shard: int) -> None:
        for path in (self._paths.shard(shard), self._paths.shards, self._paths.brokers):
            await self._read_now(path)
        async with self._answered(self._paths.shard(shard)):
            await remove_shard(self._tree, self._paths, self._config, self.view(), shard)
            await self._refresh({self._paths.shards, *self._paths.buckets()})

    async def metaq_progress(
        self, topics: Collection[str], groups: Collection[str] | None = None
    ) -> MetaqProgress:
        record = self.registered
        if record is None or self._config.alone:
            return {}
        root, broker_id = self._config.metaq_root, self._config.metaq_broker_id_base + record.shard
        async with self._answered(f"{root}/consumers"):
            return await metaq_progress.read(
                self._tree,
                root,
                broker_id,
                frozenset(topics),
                None if groups is None else [*groups],
            )

    async def metaq_groups(self) -> tuple[str, ...]:
        if self.registered is None or self._config.alone:
            return ()
        root = self._config.metaq_root
        async with self._answered(f"{root}/consumers"):
            return await metaq_progress.groups(self._tree, root)

    async def metaq_members(self, groups: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        if self.registered is None or self._config.alone:
            return {}
        root = self._config.metaq_root
        async with self._answered(f"{root}/consumers"):
            return await metaq_progress.members(self._tree, root, [*groups])

    async def read_operator_epoch(self) -> int:
        await self._read_now(self._paths.operator)
        return self.view().operator_epoch

    async def raise_operator_epoch(self, epoch: int) -> None:
        await self._change(self._paths.operator, shared.raising(self._paths, epoch))

    async def read_pipeline(self, name: str) -> Pipeline:
        path = self._paths.pipeline(name)
        async with self._answered(path):
            await self._tree.sync()
            node = await self._tree.get(path)
            return pipelines.decode_pipeline(path, node.data) if node else Pipeline()

    async def raise_pipeline_epoch(self, name: str, epoch: int) -> None:
        path = self._paths.pipeline(name)
        async with self._answered(path):
            await edits.change(self._tree, path, pipelines.raising(path, name, epoch))

    async def report_pipeline(self, name: str, epoch: int, progress: PipelineProgress) -> None:
        path = self._paths.pipeline(name)
        async with self._answered(path):
            edit = pipelines.reporting(path, name, epoch, progress)
            await edits.change(self._tree, path, edit)

    async def put_kv(self, namespace: str, key: str, value: str | None) -> None:
        await self._change(self._paths.kv, shared.putting(self._paths, namespace, key, value))

    async def set_write_wiped(self, broker_name: str, wiped: bool) -> None:
        await self._change(self._paths.wiped, shared.wiping(self._paths, broker_name, wiped))
