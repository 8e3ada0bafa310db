"""Whether a cluster's feature level may rise: by what its members understand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.model import feature_level
from imago_broker.model.registry.cluster import shard_name

if TYPE_CHECKING:
    from imago_broker.model.registry.cluster import ClusterView

NAMED_MAX = 5


def behind(view: ClusterView, level: int) -> list[str]:
    """Return live brokers that do not understand a level."""
    return [
        f"{shard_name(broker.shard)}/{broker.replica}"
        for broker in view.brokers
        if broker.feature_level < level
    ]


def absent(view: ClusterView) -> list[str]:
    """Return members of shards in use that are not there, whatever they understand.

    They may be gone for good, and that the registry does not know.
    """
    live = {broker.uuid for broker in view.brokers}
    return [
        f"{shard_name(shard)}/{replica}"
        for shard, members in sorted(view.known.items())
        if shard not in view.drained
        for uuid, replica in sorted(members.items(), key=lambda each: each[1])
        if uuid not in live
    ]


def highest(view: ClusterView) -> int:
    """Return the level that all live brokers understand."""
    levels = [broker.feature_level for broker in view.brokers]
    return max(view.feature_level, min(levels, default=view.feature_level))


def obstacle(view: ClusterView, level: int, *, without_absent: bool) -> str | None:
    """Say what keeps the cluster from this level; None: nothing does."""
    if level > feature_level.NEWEST:
        return f"level {level}: this version understands {feature_level.NEWEST}"
    if level < view.feature_level:
        return f"level {level}: the cluster is at {view.feature_level}, and levels never go down"
    if old := behind(view, level):
        return f"level {level}: {_some(old)} understand less: upgrade them first"
    if not without_absent and (away := absent(view)):
        return (
            f"level {level}: nobody knows what {_some(away)} understand, which are not there:"
            " start them, or go on without them; of an older version they would not start again"
        )
    return None


def _some(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
