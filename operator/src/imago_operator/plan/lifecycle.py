"""Clusters that are not worked on: deleted, paused, wrong, or not yet read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_operator.desired import Desired, OwnerResource, UnreadableSpec
from imago_operator.plan.rows import PlanRow, PlanStep
from imago_operator.state import ConditionFinding, PlanWait
from imago_operator.versions import numbers

if TYPE_CHECKING:
    from imago_operator.state import Observed


def standing_still(desired: Desired | UnreadableSpec, observed: Observed) -> PlanStep | None:
    """Return why nothing is to be done at all."""
    resource = desired.resource
    if resource.deleting:
        return _deleting()
    if resource.paused:
        return _paused(resource)
    if isinstance(desired, UnreadableSpec):
        return _invalid(desired.problem, reason=desired.reason)
    if problem := version_problem(desired, observed):
        return _invalid(problem, reason="DowngradeRefused")
    if not observed.synced:
        wait = PlanWait(key="reading", message="Kubernetes' lists to be complete", deadline_s=120)
        return PlanStep(row=PlanRow.READING, wait=wait, next="compare actual with desired state")
    return None


def _deleting() -> PlanStep:
    """Children go by their owner references; no finalizer is in the way."""
    said = ConditionFinding(
        type="Ready", holds=False, reason="Deleting", message="The cluster is being deleted."
    )
    return PlanStep(
        row=PlanRow.DELETING, findings=(said,), next="Kubernetes removes what belongs to it"
    )


def _paused(resource: OwnerResource) -> PlanStep:
    annotation = "imago.dev/pause-reconciliation"
    text = f"{resource.name} is paused: remove the annotation {annotation} to continue."
    said = (ConditionFinding(type="Paused", holds=True, reason="Annotation", message=text),)
    return PlanStep(row=PlanRow.PAUSED, findings=said, next="the annotation is removed")


def _invalid(problem: str, reason: str = "InvalidSpec") -> PlanStep:
    said = (
        ConditionFinding(type="Stalled", holds=True, reason=reason, message=problem),
        ConditionFinding(type="Ready", holds=False, reason="InvalidSpec", message=problem),
    )
    return PlanStep(row=PlanRow.INVALID, findings=said, next="the spec is corrected")


def version_problem(desired: Desired, observed: Observed) -> str | None:
    """Return why the cluster cannot get the version: only one minor step up, none down."""
    running = observed.status.version
    if running is None:
        return None
    now, wanted = numbers(running), numbers(desired.version)
    if wanted[:2] < now[:2]:
        return f"spec.version: {desired.version} is older than {running}, which brokers have"
    if wanted[0] != now[0] or wanted[1] > now[1] + 1:
        text = f"spec.version: from {running} to {desired.version} is more than one minor step"
        return f"{text}; set {now[0]}.{now[1] + 1} first, with an operator that runs it"
    return None
