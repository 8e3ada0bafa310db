"""Clusters that are not worked on: deleted, paused, wrong, or not yet read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_operator.model.accepted import kept_form
from imago_operator.model.desired import Desired, OwnerResource, UnreadableSpec
from imago_operator.model.state import ConditionFinding, PlanWait
from imago_operator.model.versions import step_problem
from imago_operator.plan.rows import PlanRow, PlanStep

if TYPE_CHECKING:
    from imago_operator.model.state import Observed
    from imago_operator.plan.look import ClusterLook


def standing_still(desired: Desired | UnreadableSpec, observed: Observed) -> PlanStep | None:
    """Return why nothing is to be done at all."""
    resource = desired.resource
    if resource.deleting:
        return _deleting()
    if resource.paused:
        return _paused(resource)
    if isinstance(desired, UnreadableSpec):
        return _invalid(desired.problem, reason=desired.reason)
    if desired.problem is None:
        problem = step_problem(
            observed.status.version, desired.version, observed.status.feature_level
        )
        if problem is not None:
            return _invalid(problem, reason="DowngradeRefused")
    if not observed.synced:
        wait = PlanWait(key="reading", message="Kubernetes' lists to be complete", deadline_s=120)
        return PlanStep(row=PlanRow.READING, wait=wait, next="compare actual with desired state")
    return None


def accepted(look: ClusterLook) -> dict[str, Any]:
    """Return what is to be kept in mind of the spec before anything is done by it."""
    text = None if look.desired.problem is not None else kept_form(look.desired)
    known = text is None or text == look.observed.status.accepted_spec
    return {} if known else {"accepted_spec": text}


def refused(look: ClusterLook) -> PlanStep | None:
    """Say what is wrong with the spec where the cluster is kept by the one before."""
    problem = look.desired.problem
    if problem is None:
        return None
    go_on = "observed only" if look.desired.observed_only else "kept as the spec before has it"
    text = f"{problem.problem}. Until that is corrected the cluster is {go_on}."
    said = ConditionFinding(type="Stalled", holds=True, reason=problem.reason, message=text)
    return PlanStep(row=PlanRow.INVALID, findings=(said,), next="the spec is corrected")


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
