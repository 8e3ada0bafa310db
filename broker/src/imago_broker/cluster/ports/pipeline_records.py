"""`imago_broker.ports.PipelineRecords` over a tree of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.cluster.edits import edits, pipelines
from imago_broker.model.pipelines import Pipeline

if TYPE_CHECKING:
    from imago_broker.cluster.ports.shared_nodes import SharedNodes
    from imago_broker.cluster.tree import NodeTree
    from imago_broker.cluster.znodes import Paths
    from imago_broker.model.pipelines import PipelineProgress


class TreePipelineRecords:
    """The fence between the runs of each pipeline."""

    def __init__(self, paths: Paths, tree: NodeTree, nodes: SharedNodes) -> None:
        self._paths = paths
        self._tree = tree
        self._nodes = nodes

    async def read_pipeline(self, name: str) -> Pipeline:
        path = self._paths.pipeline(name)
        async with self._nodes.answered(path):
            await self._tree.sync()
            node = await self._tree.get(path)
            return pipelines.decode_pipeline(path, node.data) if node else Pipeline()

    async def raise_pipeline_epoch(self, name: str, epoch: int) -> None:
        path = self._paths.pipeline(name)
        async with self._nodes.answered(path):
            await edits.change(self._tree, path, pipelines.raising(path, name, epoch))

    async def report_pipeline(self, name: str, epoch: int, progress: PipelineProgress) -> None:
        path = self._paths.pipeline(name)
        async with self._nodes.answered(path):
            edit = pipelines.reporting(path, name, epoch, progress)
            await edits.change(self._tree, path, edit)
