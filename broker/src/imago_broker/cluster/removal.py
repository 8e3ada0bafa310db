"""Taking a shard that holds nothing any more out of the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.cluster import edits
from imago_broker.cluster.metaq_tree import MetaqPaths
from imago_broker.cluster.shared import leaving
from imago_broker.cluster.tree import Delete, NoNodeError, NotEmptyError
from imago_broker.model.cluster import shard_name
from imago_broker.ports import CoordinatorConflictError, CoordinatorError

if TYPE_CHECKING:
    from imago_broker.cluster.settings import CoordinatorConfig
    from imago_broker.cluster.tree import NodeTree
    from imago_broker.cluster.znodes import Paths
    from imago_broker.model.cluster import ClusterView


async def remove_shard(
    tree: NodeTree, paths: Paths, config: CoordinatorConfig, view: ClusterView, shard: int
) -> None:
    """Delete all nodes of a shard, its own record last: what is cut short can be repeated."""
    if shard not in view.known:
        raise CoordinatorError(f"there has never been a {shard_name(shard)}, or it is gone")
    if live := view.members(shard):
        listed = ", ".join(broker.rocketmq_address for broker in live)
        raise CoordinatorConflictError(f"{shard_name(shard)} has live brokers: {listed}")
    if shard not in view.drained:
        raise CoordinatorConflictError(f"{shard_name(shard)} is not drained")
    for path in paths.buckets():
        await edits.change(tree, path, leaving(path, shard))
    broker = MetaqPaths(config.metaq_root, config.metaq_broker_id_base + shard).broker
    for path in (broker, paths.state(shard), paths.shard(shard)):
        try:
            await tree.commit([Delete(path)])
        except NoNodeError:
            continue
        except NotEmptyError as error:
            # A slave of an original broker, or a member of ours that has just come back.
            raise CoordinatorConflictError(f"{path} is in use") from error
