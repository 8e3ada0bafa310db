"""What of a look is worth an event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_operator.model.actions import destructive
from imago_operator.reasons import find
from imago_operator.reporting.deeds import told
from imago_operator.reporting.room import DELETED_FOR_ROOM, stretches
from imago_operator.reporting.service import HIBERNATED
from imago_operator.reporting.status import GOOD, MESSAGE_MAX
from imago_operator.spec.kinds import CLUSTER
from imago_operator.spec.schema.common import Condition, ConditionStatus

if TYPE_CHECKING:
    from imago_operator.plan.rows import ReconcilePlan
    from imago_operator.spec.cluster.cluster_status import ClusterStatus


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, for `kubectl describe`."""

    type: str
    """Normal or Warning."""
    reason: str
    message: str


def events_of(
    before: ClusterStatus, after: ClusterStatus, plan: ReconcilePlan
) -> tuple[Event, ...]:
    """Return what is worth an event: conditions that changed, and what was taken away."""
    old = {c.type: (c.status, c.reason) for c in before.conditions}
    found = [
        Event(_severity(c), c.reason, c.message or _meaning(c))
        for c in after.conditions
        if old.get(c.type) != (c.status, c.reason) and c.type != "Reconciling"
    ]
    found += [Event("Warning", DELETED_FOR_ROOM, text) for text in stretches(before, after)]
    found += [
        Event("Normal", type(action).__name__, told(action)[:MESSAGE_MAX])
        for action in destructive(plan.actions)
    ]
    return tuple(found)


def _meaning(condition: Condition) -> str:
    """Return what the runbook says of a condition that has nothing to add."""
    entry = find(CLUSTER.name, condition.type, condition.reason)
    return entry.means if entry else condition.type


def _severity(condition: Condition) -> str:
    bad = (condition.type in GOOD) == (condition.status is not ConditionStatus.TRUE)
    calm = {"Updating", "ScalingDown", "UpdatePending", "Paused", HIBERNATED}
    usual = {"Applying", "BrokersStarting", "Expanding", "Deleting", "Paused", "RestartsPending"}
    usual.add(HIBERNATED)
    known = condition.type in calm or condition.reason in usual
    return "Warning" if bad and not known else "Normal"
