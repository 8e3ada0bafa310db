"""`imago_broker.ports.SharedMarks` over a tree of nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.cluster.edits import edits, shared
from imago_broker.cluster.edits.shared import leaving
from imago_broker.cluster.metaq_tree import metaq_progress
from imago_broker.cluster.metaq_tree.metaq_tree import MetaqPaths
from imago_broker.cluster.tree import Delete, NoNodeError, NotEmptyError
from imago_broker.core.levelling import obstacle
from imago_broker.model import names
from imago_broker.model.registry.cluster import PERM_WRITE, shard_name
from imago_broker.ports import CoordinatorConflictError, UnknownShardError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from imago_broker.cluster.ports.shared_nodes import SharedNodes
    from imago_broker.cluster.settings import CoordinatorConfig
    from imago_broker.cluster.snapshot_reader import SnapshotReader
    from imago_broker.cluster.tree import NodeTree
    from imago_broker.cluster.znodes import Paths
    from imago_broker.model.registry.cluster import ClusterView

TAKERS_NAMED_MAX = 5


@dataclass(slots=True, eq=False)
class TreeSharedMarks:
    """What administrators note of shards and of the cluster: each a change of one node."""

    config: CoordinatorConfig
    paths: Paths
    tree: NodeTree
    nodes: SharedNodes
    reader: SnapshotReader

    async def mark_shard(
        self, shard: int, *, cordoned: bool | None = None, drained: bool | None = None
    ) -> None:
        edit = shared.marking(self.paths, shard, cordoned, drained)
        await self.nodes.change(self.paths.shard(shard), edit)

    async def drain_shard(self, shard: int, request_id: str, *, move: bool = True) -> None:
        edit = shared.draining(self.paths, shard, request_id, move=move)
        await self.nodes.change(self.paths.shard(shard), edit)

    async def undrain_shard(self, shard: int) -> None:
        await self.nodes.change(self.paths.shard(shard), shared.undraining(self.paths, shard))

    async def note_drained(self, shard: int, drained: bool) -> None:
        edit = shared.noting_drained(self.paths, shard, drained)
        await self.nodes.change(self.paths.shard(shard), edit)

    async def fence_member(
        self, shard: int, uuid: str, *, others: Collection[str], least: int
    ) -> None:
        edit = shared.fencing(self.paths, shard, uuid, others, least)
        await self.nodes.change(self.paths.shard(shard), edit)

    async def unfence_member(self, shard: int, uuid: str) -> None:
        edit = shared.unfencing(self.paths, shard, uuid)
        await self.nodes.change(self.paths.shard(shard), edit)

    async def forget_shard(self, shard: int) -> None:
        for path in (self.paths.shard(shard), self.paths.shards, self.paths.brokers):
            await self.nodes.read_now(path)
        async with self.nodes.answered(self.paths.shard(shard)):
            await remove_shard(self.tree, self.paths, self.config, self.reader.view, shard)
            await self.reader.refresh({self.paths.shards, *self.paths.buckets()})

    async def read_operator_epoch(self) -> int:
        await self.nodes.read_now(self.paths.operator)
        return self.reader.view.operator_epoch

    async def raise_operator_epoch(self, epoch: int) -> None:
        await self.nodes.change(self.paths.operator, shared.raising(self.paths, epoch))

    async def raise_feature_level(self, level: int, *, without_absent: bool = False) -> None:
        for path in (self.paths.shards, self.paths.brokers, self.paths.identity):
            await self.nodes.read_now(path)
        if why := obstacle(self.reader.view, level, without_absent=without_absent):
            raise CoordinatorConflictError(why)
        await self.nodes.change(self.paths.identity, shared.levelling(self.paths, level))

    async def put_kv(self, namespace: str, key: str, value: str | None) -> None:
        await self.nodes.change(self.paths.kv, shared.putting(self.paths, namespace, key, value))

    async def set_write_wiped(self, broker_name: str, wiped: bool) -> None:
        await self.nodes.change(self.paths.wiped, shared.wiping(self.paths, broker_name, wiped))


def _takers(view: ClusterView, cluster: str, shard: int) -> Iterator[str]:
    """Yield the topics that take messages on a shard, of those that somebody has made there."""
    for name, topic in view.topics.items():
        queues = topic.shards.get(shard)
        taking = queues is not None and queues.write and queues.perm & PERM_WRITE
        own = name in names.BROKERS_ALONE or names.on_every_shard(name, cluster)
        if taking and not own:
            yield name


def _refuse(view: ClusterView, cluster: str, shard: int) -> None:
    """CoordinatorError where a shard may not be removed."""
    if shard not in view.known:
        raise UnknownShardError(f"there has never been a {shard_name(shard)}, or it is gone")
    if live := view.members(shard):
        listed = ", ".join(broker.rocketmq_address for broker in live)
        raise CoordinatorConflictError(f"{shard_name(shard)} has live brokers: {listed}")
    if shard not in view.drained:
        raise CoordinatorConflictError(f"{shard_name(shard)} is not drained")
    if taking := sorted(_takers(view, cluster, shard)):
        raise CoordinatorConflictError(
            f"{shard_name(shard)} has been given topics since it was drained, with messages perhaps"
            f" ({', '.join(taking[:TAKERS_NAMED_MAX])}): start its brokers"
        )


async def remove_shard(
    tree: NodeTree, paths: Paths, config: CoordinatorConfig, view: ClusterView, shard: int
) -> None:
    """Delete all nodes of a shard, its own record last: what is cut short can be repeated."""
    _refuse(view, config.cluster, shard)
    for path in paths.buckets():
        await edits.change(tree, path, leaving(path, shard))
    metaq = MetaqPaths(config.metaq_root, config.metaq_broker_id_base + shard)
    await _delete(tree, metaq.broker)
    # A shard that gets this number later has other messages at these positions.
    await metaq_progress.forget(tree, metaq.root, metaq.broker_id)
    await _delete(tree, paths.state(shard))
    await _delete(tree, paths.shard(shard))


async def _delete(tree: NodeTree, path: str) -> None:
    try:
        await tree.commit([Delete(path)])
    except NoNodeError:
        return
    except NotEmptyError as error:
        # A slave of an original broker, or a member of ours that has just come back.
        raise CoordinatorConflictError(f"{path} is in use") from error
