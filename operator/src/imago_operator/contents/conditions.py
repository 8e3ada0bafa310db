"""Conditions and events of resources that are about what is in a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from imago_operator.model.state import ConditionFinding
from imago_operator.reporting.happenings import Event
from imago_operator.reporting.status import condition_of
from imago_operator.spec.schema.common import Condition, ConditionStatus

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

READY: Final = "Ready"
"""The one condition that is always there; all others only while they hold."""
CALM: Final = frozenset(
    {
        *("Approved", "ApprovalRequired", "Running", "Stopping", "Stopped"),
        *("Annotation", "Deleting", "Deleted", "Retained", "ResetPending"),
    }
)
"""Reasons and types that are no reason to worry."""


@dataclass(frozen=True, slots=True)
class ContentRefusal:
    """Why nothing can be done for a resource now."""

    reason: str
    message: str

    @property
    def finding(self) -> ConditionFinding:
        return ConditionFinding(type=READY, holds=False, reason=self.reason, message=self.message)


def ready(reason: str, message: str = "") -> ConditionFinding:
    """Say that a resource is what it is to be."""
    return ConditionFinding(type=READY, holds=True, reason=reason, message=message)


def holds(type_: str, reason: str, message: str) -> ConditionFinding:
    """Say something that is no matter of being ready."""
    return ConditionFinding(type=type_, holds=True, reason=reason, message=message)


def conditions(
    found: Iterable[ConditionFinding], before: Iterable[Condition], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Return the conditions after a look, Ready first; of one type the last finding counts."""
    old = {condition.type: condition for condition in before}
    said = {finding.type: finding for finding in found}
    made = [condition_of(f, old.get(f.type), generation, now) for f in said.values()]
    if READY not in said and READY in old:
        made.append(old[READY])
    return tuple(sorted(made, key=lambda c: (c.type != READY, c.type)))


def changes(before: Iterable[Condition], after: Iterable[Condition]) -> tuple[Event, ...]:
    """Return an event for each condition that has changed, one for those that say the same."""
    old = {c.type: (c.status, c.reason) for c in before}
    said = (
        Event(_severity(c), c.reason, c.message or f"{c.type} is {c.status.value}")
        for c in after
        if old.get(c.type) != (c.status, c.reason)
    )
    return tuple(dict.fromkeys(said))


def _severity(condition: Condition) -> str:
    bad = (condition.type == READY) == (condition.status is ConditionStatus.FALSE)
    return "Warning" if bad and CALM.isdisjoint((condition.type, condition.reason)) else "Normal"
