"""Members that cannot come back by themselves: pods that never run, nodes that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.model import names
from imago_operator.model.actions import DeleteClaim, DeletePod
from imago_operator.model.state import ConditionFinding, PlanWait, parsed, written
from imago_operator.model.wording import counted
from imago_operator.plan import membership
from imago_operator.plan.rows import PlanRow, PlanStep
from imago_operator.spec.cluster.cluster_status import ReplacedMember

if TYPE_CHECKING:
    from imago_operator.model.actions import Action
    from imago_operator.model.state import Claim, Pod
    from imago_operator.plan.look import ClusterLook

GONE_S: Final = 300.0
"""How long a node must be gone before the disk that was on it counts as lost."""


def stuck(look: ClusterLook) -> PlanStep | None:
    """Delete pods that never run, where today's template may cure them.

    It does not wait for health: such a pod may be why the shard is not healthy.
    """
    actions: list[Action] = []
    for shard in (None, *look.running):
        for pod in look.observed.pods_of(shard):
            if membership.never_runs(look, pod) and (look.outdated(pod) or _has_no_file(look, pod)):
                actions.append(DeletePod(pod.name, pod.uid, shard, f"stuck: {pod.waiting}"))
                break  # one at a time in each shard
    if not actions:
        return None
    text = f"{counted(len(actions), 'pod')} never ran: {_listed(actions)}."
    said = ConditionFinding(type="Updating", holds=True, reason="Repair", message=text)
    return PlanStep(row=PlanRow.STUCK, actions=tuple(actions), findings=(said,), next="they run")


def _has_no_file(look: ClusterLook, pod: Pod) -> bool:
    """Whether the settings that the pod was made with are gone: another one names today's."""
    return bool(pod.config) and look.observed.child("ConfigMap", pod.config) is None


def _listed(actions: list[Action]) -> str:
    return ", ".join(action.name for action in actions if isinstance(action, DeletePod))


def replace(look: ClusterLook) -> PlanStep | None:
    """Give up a member whose disk was on a node that is gone for good.

    Only where another member of the shard is in sync, one in a shard at a time, and only after
    the desired has been on record for a while: a node that comes back takes it back.
    """
    recorded = {member.claim: member for member in look.observed.status.replaced_members}
    lost = {c.name: c for n in look.running for c in _lost(look, n)}
    kept = tuple(m for name, m in recorded.items() if name in lost and lost[name].uid == m.uid)
    new = [
        claim
        for claim in _one_each(list(lost.values()))
        if not any(lost[m.claim].shard == claim.shard for m in kept)
    ]
    if new:
        return _record(look, kept, new)
    if kept != look.observed.status.replaced_members:
        return PlanStep(
            row=PlanRow.REPLACE, record={"replaced_members": kept}, next="nothing is given up"
        )
    due = [m for m in kept if (look.now - parsed(m.at)).total_seconds() >= GONE_S]
    actions = [action for m in due for action in _give_up(look, lost[m.claim])]
    if actions:
        return PlanStep(
            row=PlanRow.REPLACE, actions=tuple(actions), next="the member copies the log anew"
        )
    if kept:
        text = f"node {kept[0].node} to come back"
        wait = PlanWait(key=f"node {kept[0].node}", message=text, deadline_s=None)
        return PlanStep(row=PlanRow.REPLACE, wait=wait, next=f"give up claim {kept[0].claim}")
    return None


def _record(look: ClusterLook, kept: tuple[ReplacedMember, ...], new: list[Claim]) -> PlanStep:
    at = written(look.now)
    added = tuple(ReplacedMember(claim=c.name, uid=c.uid, node=c.node or "", at=at) for c in new)
    text = f"{', '.join(c.name for c in new)}: the node is gone."
    said = ConditionFinding(type="Degraded", holds=True, reason="NodeLost", message=text)
    return PlanStep(
        row=PlanRow.REPLACE,
        record={"replaced_members": (*kept, *added)},
        findings=(said,),
        next="wait for the node",
    )


def _lost(look: ClusterLook, number: int) -> list[Claim]:
    """Return claims of a shard that nobody will ever mount again, where another member is whole."""
    nodes = look.observed.nodes
    if nodes is None or not look.informed:
        return []
    found = []
    for claim in filter(look.has_member, look.observed.claims_of(number)):
        pod = _pod(look, claim)
        # A node that is only off the list may still run a pod that serves.
        running = pod is not None and (pod.ready or pod.broker is not None or pod.node in nodes)
        on_lost_node = claim.node is not None and claim.node not in nodes
        kept = names.pod(look.desired.name, number, claim.ordinal) in membership.fence_orders(look)
        if on_lost_node and not (running or kept) and _another_in_sync(look, claim):
            found.append(claim)
    return found


def _pod(look: ClusterLook, claim: Claim) -> Pod | None:
    pods = (p for p in look.observed.pods_of(claim.shard) if p.ordinal == claim.ordinal)
    return next(pods, None)


def _another_in_sync(look: ClusterLook, claim: Claim) -> bool:
    shard = look.shard(claim.shard)
    if shard is None:
        return False
    others = {
        pod.broker.uuid
        for pod in look.observed.pods_of(claim.shard)
        if pod.broker and pod.ordinal != claim.ordinal and pod.serving
    }
    return bool(others & shard.in_sync)


def _one_each(claims: list[Claim]) -> list[Claim]:
    first: dict[int, Claim] = {}
    for claim in sorted(claims, key=lambda c: c.ordinal):
        first.setdefault(claim.shard, claim)
    return list(first.values())


def _give_up(look: ClusterLook, claim: Claim) -> list[Action]:
    """Return the deletions; a pod that waits for the claim would hold it back."""
    actions: list[Action] = [DeleteClaim(claim.name, claim.uid, claim.shard)]
    pod = _pod(look, claim)
    if pod is not None and not pod.deleting:
        name = names.pod(look.desired.name, claim.shard, claim.ordinal)
        actions.append(DeletePod(name, pod.uid, claim.shard, "its node is gone"))
    return actions
