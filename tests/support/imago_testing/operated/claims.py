"""Which claims may go, and which members a shard has: part of what no plan may ever do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_operator.model.actions import DeleteClaim
from imago_operator.model.state import parsed
from imago_operator.spec.schema.common import Retention

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from imago_operator.model.desired import Desired
    from imago_operator.model.state import Observed, Pod
    from imago_operator.plan import ReconcilePlan

REPLACE_AFTER_S = 300.0


def in_sync(observed: Observed, number: int | None) -> frozenset[str]:
    registry = observed.registry
    if registry is None or not registry.connected or number is None:
        return frozenset()
    shard = registry.shards.get(number)
    return shard.in_sync if shard else frozenset()


def can_lead(observed: Observed, pod: Pod) -> bool:
    """Whether a member could lead its shard: whether its pod is ready says nothing of that."""
    if pod.broker is None or pod.deleting or not pod.broker.caught_up:
        return False
    return pod.broker.uuid in in_sync(observed, pod.shard)


def down(desired: Desired, observed: Observed, shard: int) -> bool:
    """Whether a shard lacks a member that it is to have, for whatever reason."""
    pods = [pod for pod in observed.pods_of(shard) if pod.ordinal < desired.replicas]
    return len(pods) < desired.replicas or not all(can_lead(observed, pod) for pod in pods)


def claims(
    desired: Desired, observed: Observed, plan: ReconcilePlan, now: datetime
) -> Iterator[str]:
    doomed = [action for action in plan.actions if isinstance(action, DeleteClaim)]
    for action in doomed:
        claim = next((c for c in observed.claims if c.name == action.name), None)
        if claim is None or claim.uid != action.uid:
            yield f"a claim that was not seen: {action}"
        elif not (
            _is_of_drained(desired, observed, action)
            or _is_replaced(observed, action, now)
            or _has_left(desired, observed, action)
            or _is_exchanged(desired, observed, action)
        ):
            yield f"a claim that somebody needs: {action}"
    shards = [
        a.shard
        for a in doomed
        if not (_is_of_drained(desired, observed, a) or _has_left(desired, observed, a))
    ]
    if len(shards) != len(set(shards)):
        yield "two members of a shard at a time"


def _is_of_drained(desired: Desired, observed: Observed, action: DeleteClaim) -> bool:
    registry, begun = observed.registry, observed.status.scale_down
    shard = registry.shards.get(action.shard) if registry and registry.connected else None
    pods = {f"data-{pod.name}" for pod in observed.pods}
    listed = begun is not None and action.name in begun.claims
    stays = len(observed.sets()) <= desired.spec.brokers.shards
    return bool(shard and shard.drained and listed and action.name not in pods and not stays)


def _has_left(desired: Desired, observed: Observed, action: DeleteClaim) -> bool:
    """Whether nobody mounts the claim any more, and all that stay have what it has."""
    claim = next(c for c in observed.claims if c.name == action.name)
    child = observed.sets().get(action.shard)
    policy = desired.spec.brokers.storage.persistent_volume_claim_retention_policy
    on_record = any(
        m.claim == action.name and m.uid == claim.uid for m in observed.status.left_members
    )
    if child is None or not on_record or policy.when_scaled is not Retention.DELETE:
        return False
    beyond = claim.ordinal >= max(child.replicas or 0, desired.spec.brokers.replicas_per_shard)
    there = {f"data-{pod.name}" for pod in observed.pods}
    return beyond and action.name not in there and not down(desired, observed, action.shard)


def _is_exchanged(desired: Desired, observed: Observed, action: DeleteClaim) -> bool:
    """Whether a member without pod and StatefulSet is to begin anew, and all others could lead."""
    record, registry = observed.status.moved_member, observed.registry
    if record is None or (record.claim, record.uid) != (action.name, action.uid):
        return False
    pods = observed.pods_of(action.shard)
    if action.shard in observed.sets() or any(f"data-{p.name}" == action.name for p in pods):
        return False
    able = [p for p in pods if p.ordinal < desired.replicas and can_lead(observed, p)]
    shard = registry.shards.get(action.shard) if registry and registry.connected else None
    led = shard is not None and any(p.broker and p.broker.uuid == shard.master for p in able)
    return led and len(able) == desired.replicas - 1 >= desired.min_in_sync


def _is_replaced(observed: Observed, action: DeleteClaim, now: datetime) -> bool:
    records = [m for m in observed.status.replaced_members if m.claim == action.name]
    claim = next(c for c in observed.claims if c.name == action.name)
    if not records or records[0].uid != action.uid or observed.nodes is None:
        return False
    waited = (now - parsed(records[0].at)).total_seconds() >= REPLACE_AFTER_S
    registry = observed.registry
    shard = registry.shards.get(action.shard) if registry and registry.connected else None
    others = {
        pod.broker.uuid
        for pod in observed.pods_of(action.shard)
        if pod.broker and pod.ordinal != claim.ordinal
    }
    pod = next((p for p in observed.pods_of(action.shard) if p.ordinal == claim.ordinal), None)
    runs = pod is not None and (pod.serving or pod.broker or pod.node in observed.nodes)
    gone = claim.node is not None and claim.node not in observed.nodes
    return bool(waited and gone and not runs and shard and shard.in_sync & others)
