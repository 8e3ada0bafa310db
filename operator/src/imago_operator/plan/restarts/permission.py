"""Whether outdated pods may be restarted now: by whom the change was made, and when it may be."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Final

from imago_operator.model import names
from imago_operator.model.desired import RegistrySteps
from imago_operator.model.state import ConditionFinding
from imago_operator.model.wording import counted
from imago_operator.plan.restarts.staging import with_steps
from imago_operator.plan.rows import PlanRow, PlanStep
from imago_operator.spec.cluster.cluster import OnOperatorUpgrade, UpdateMode
from imago_operator.spec.cluster.cluster_status import PendingApproval
from imago_operator.spec.cluster.zookeeper import QuorumTls, RegistryAccess, RegistryTls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_operator.model.state import Pod
    from imago_operator.plan.look import ClusterLook

PENDING: Final = "UpdatePending"


def revision(look: ClusterLook) -> str:
    """Return what stands for the templates of all pods as they are to be now."""
    return _of_brokers(look) + _of_servers(look)


def _of_brokers(look: ClusterLook) -> str:
    return "".join(look.notes(n).get(names.TEMPLATE_HASH, "") for n in look.targets[:1])


def _of_servers(look: ClusterLook) -> str:
    return look.notes(None).get(names.TEMPLATE_HASH, "")[:4]


def approval_id(look: ClusterLook) -> str:
    """Return what a person approves."""
    return f"restart-{revision(look)}"


def is_approved(look: ClusterLook) -> bool:
    """Whether a person has approved these templates, or the step before that leads to them."""
    approved = look.desired.resource.approved
    if not approved or approved == approval_id(look):
        return bool(approved)
    return approved in _approved_before(look)


def _approved_before(look: ClusterLook) -> set[str]:
    """Return what was approved where the operator's own steps began that led here."""
    if look.desired.spec.zookeeper.managed is None:
        return set()
    said = RegistrySteps.said(look.desired)
    users = product(RegistryAccess, (False, True))
    brokers = [replace(said, access=access, over_tls=over) for access, over in users]
    servers = [
        replace(said, tls=tls, quorum=quorum) for tls, quorum in product(RegistryTls, QuorumTls)
    ]
    of_brokers = {_of_brokers(_at(look, steps)) for steps in brokers}
    of_servers = {_of_servers(_at(look, steps)) for steps in servers}
    return {f"restart-{one}{other}" for one, other in product(of_brokers, of_servers)}


def _at(look: ClusterLook, steps: RegistrySteps) -> ClusterLook:
    before = with_steps(look.desired, steps, ordered=False, ordered_servers=False)
    return replace(look, desired=before)


def obstacle(look: ClusterLook, pod: Pod) -> str:
    """Return the reason why an outdated pod is not restarted now; empty: it may be."""
    policy = look.desired.spec.update_policy
    if is_approved(look) or look.ordered(pod):
        return ""
    if look.by_operator_only(pod) and policy.on_operator_upgrade is OnOperatorUpgrade.HOLD:
        return "OperatorTemplateChanged"
    if policy.mode is UpdateMode.MANUAL:
        return "ApprovalRequired"
    if policy.mode is UpdateMode.WINDOW and not look.observed.window_open:
        return "OutsideWindow"
    return ""


def windows(look: ClusterLook) -> PlanStep:
    """Say which windows cannot be read: all else goes on, restarts wait for the others."""
    problem = look.observed.window_problem
    text = f"{problem}. Restarts wait; all else goes on."
    said = ConditionFinding(type="Stalled", holds=True, reason="InvalidWindow", message=text)
    return PlanStep(row=PlanRow.ROLLOUT, findings=(said,) if problem else ())


def held(
    look: ClusterLook, pods: Iterable[Pod]
) -> tuple[tuple[ConditionFinding, ...], tuple[PendingApproval, ...]]:
    """Return what is to be said about pods that are not restarted now."""
    reasons: dict[str, int] = {}
    for pod in pods:
        if reason := obstacle(look, pod):
            reasons[reason] = reasons.get(reason, 0) + 1
    if not reasons:
        return (), ()
    reason = max(reasons, key=lambda name: reasons[name])
    many, token = sum(reasons.values()), approval_id(look)
    text = f"{counted(many, 'pod')} to restart; waiting for imago.dev/approve={token}."
    approval = PendingApproval(
        id=token, kind="Restart", summary=f"Restart {counted(many, 'pod')}, one by one."
    )
    return (ConditionFinding(type=PENDING, holds=True, reason=reason, message=text),), (approval,)


def cause(look: ClusterLook, pod: Pod) -> str:
    """Return why a pod is outdated."""
    if look.resizing(pod):
        return "VolumeResize"
    if look.ordered(pod):
        return "ManualRestart"
    if pod.edited:
        return "TemplateEdited"
    if look.by_operator_only(pod):
        return "OperatorTemplateChanged"
    wanted = look.notes(pod.shard)
    if pod.annotations.get(names.VERSION) != wanted.get(names.VERSION):
        return "VersionChange"
    if pod.annotations.get(names.CONFIG_HASH) != wanted.get(names.CONFIG_HASH):
        return "ConfigNeedsRestart"
    return "SpecChanged"
