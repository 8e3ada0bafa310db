"""The cluster's feature level: raised once the last of all wanted members understands the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_operator.model.actions import RaiseLevel
from imago_operator.plan.rows import PlanRow, PlanStep

if TYPE_CHECKING:
    from imago_operator.plan.look import ClusterLook


def understood(look: ClusterLook) -> int | None:
    """Return the level that every member understands; None: one is missing, or nobody knows."""
    registry = look.observed.registry
    if not look.informed or registry is None or registry.feature_level is None:
        return None
    wanted = look.desired.replicas
    here = [look.shard(number) for number in look.targets]
    if any(shard is None or len(shard.members) < wanted for shard in here):
        return None
    return min((m.feature_level for s in registry.shards.values() for m in s.members), default=None)


def rise(look: ClusterLook) -> PlanStep | None:
    """Raise it, unless spec.featureLevel holds it or pods are still to get another version."""
    registry, level = look.observed.registry, understood(look)
    if registry is None or registry.feature_level is None or level is None:
        return None
    if look.desired.spec.feature_level is not None:
        level = min(level, look.desired.spec.feature_level)
    pods = [pod for number in look.running for pod in look.observed.pods_of(number)]
    if level <= registry.feature_level or any(map(look.outdated, pods)):
        return None
    return PlanStep(
        row=PlanRow.SETTINGS,
        actions=(RaiseLevel(level),),
        next=f"brokers use what feature level {level} has; older versions do not start again",
    )
