"""Taking a shard that holds nothing any more out of the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.cluster import edits
from imago_broker.cluster.metaq_tree import MetaqPaths
from imago_broker.cluster.shared import leaving
from imago_broker.cluster.tree import Delete, NoNodeError, NotEmptyError
from imago_broker.model import names
from imago_broker.model.cluster import PERM_WRITE, shard_name
from imago_broker.ports import CoordinatorConflictError, CoordinatorError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_broker.cluster.settings import CoordinatorConfig
    from imago_broker.cluster.tree import NodeTree
    from imago_broker.cluster.znodes import Paths
    from imago_broker.model.cluster import ClusterView


TAKERS_NAMED_MAX = 5


def _takers(view: ClusterView, shard: int) -> Iterator[str]:
    """Yield the topics that take messages on a shard."""
    for name, topic in view.topics.items():
        queues = topic.shards.get(shard)
        taking = queues is not None and queues.write and queues.perm & PERM_WRITE
        if taking and not names.is_system(name):
            yield name


def _refuse(view: ClusterView, shard: int) -> None:
    """CoordinatorError where a shard is none that may be removed."""
    if shard not in view.known:
        raise CoordinatorError(f"there has never been a {shard_name(shard)}, or it is gone")
    if live := view.members(shard):
        listed = ", ".join(broker.rocketmq_address for broker in live)
        raise CoordinatorConflictError(f"{shard_name(shard)} has live brokers: {listed}")
    if shard not in view.drained:
        raise CoordinatorConflictError(f"{shard_name(shard)} is not drained")
    if taking := sorted(_takers(view, shard)):
        raise CoordinatorConflictError(
            f"{shard_name(shard)} has been given topics since it was drained, with messages perhaps"
            f" ({', '.join(taking[:TAKERS_NAMED_MAX])}): start its brokers"
        )


async def remove_shard(
    tree: NodeTree, paths: Paths, config: CoordinatorConfig, view: ClusterView, shard: int
) -> None:
    """Delete all nodes of a shard, its own record last: what is cut short can be repeated."""
    _refuse(view, shard)
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
