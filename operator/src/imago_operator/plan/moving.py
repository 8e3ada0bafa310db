"""Members that get another disk, one at a time: of another class, larger, or somewhere else.

A claim cannot be changed, and a StatefulSet makes each of its pods again with the claim of its
name. So the set goes for a moment, with its pods left in place; then the member's pod goes, then
its claim, which no pod has any more; then the set comes back, which makes both anew, and the member
copies its shard from those that stayed. The status names pod and claim before any of it. A set that
is away while another member lacks comes back at once, whether or not the claim has gone: until that
one goes, everything is as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.model import names
from imago_operator.model.actions import DeleteChild, DeleteClaim, DeletePod, Handover
from imago_operator.model.state import ConditionFinding, PlanWait, written
from imago_operator.plan import membership
from imago_operator.plan.members.counting import LEAST
from imago_operator.plan.restarts import rollout
from imago_operator.plan.rows import PlanRow, PlanStep
from imago_operator.spec.cluster.cluster import UpdateMode
from imago_operator.spec.cluster.cluster_status import MovedMember

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_operator.model.actions import Action
    from imago_operator.model.state import Claim, OwnedObject, Pod
    from imago_operator.plan.look import ClusterLook

COPY_S: Final = 3600.0
ORDERED: Final = "Ordered"
CLASS: Final = "StorageClass"
SIZE: Final = "Size"
PLACE: Final = "Placement"


def reason(look: ClusterLook, claim: Claim) -> str:
    """Return why a member is to get another claim; empty: it keeps the one that it has."""
    storage, pod = look.desired.spec.brokers.storage, _pod(look, claim)
    if pod is not None and pod.annotations.get(names.MOVE) == "true":
        return ORDERED
    if storage.storage_class_name not in (None, claim.storage_class):
        return CLASS
    grows = look.observed.expandable.get(claim.storage_class or "", False)
    small = storage.size is not None and claim.requested < storage.size.bytes
    if small and not grows and look.desired.replicas > look.desired.min_in_sync:
        return SIZE
    wanted = look.desired.node_selector(claim.shard)
    node = (look.observed.nodes or {}).get(claim.node or "")
    lost = pod is not None and bool(pod.unscheduled) and node is not None
    return PLACE if lost and node and not wanted.items() <= node.labels.items() else ""


def holds_back(look: ClusterLook, number: int) -> bool:
    """Whether the StatefulSet of a shard is away on purpose, and stays away for now."""
    record = look.observed.status.moved_member
    claim = _recorded(look, record)
    if record is None or claim is None or claim.shard != number or number in look.observed.sets():
        return False
    return not _is_off(look, record, claim)


def go_on(look: ClusterLook) -> PlanStep | None:
    """Return the next step for the member that the status names."""
    record = look.observed.status.moved_member
    if record is None:
        return None
    claim = _recorded(look, record)
    if claim is None:
        return _copying(look, record)
    if why := _is_off(look, record, claim):
        return _step(f"{record.pod} stays as it is: {why}.", record=None, next_="nothing is moved")
    pod = _pod(look, claim)
    if pod is not None and _leads(look, pod) and not pod.deleting:
        return _step(f"{pod.name} hands over.", _handover(look, pod), next_="its pod goes")
    if found := look.observed.sets().get(claim.shard):
        return _set_goes(found, record)
    return _goes(record, pod, claim)


def _set_goes(found: OwnedObject, record: MovedMember) -> PlanStep:
    if found.deleting:
        return _wait(f"StatefulSet {found.name} to be away", next_=f"{record.pod} goes")
    away = DeleteChild(found.kind, found.name, found.uid, orphan=True)
    return _step(f"{record.pod} moves.", away, next_=f"{record.pod} goes, other pods stay")


def _goes(record: MovedMember, pod: Pod | None, claim: Claim) -> PlanStep:
    """Have the pod go that nothing makes again, and then its claim."""
    if pod is None:
        return _step(
            f"{record.claim} goes: its pod is gone, and all other members are in sync.",
            DeleteClaim(claim.name, claim.uid, claim.shard),
            next_="the member begins on a new claim",
        )
    if pod.deleting:
        return _wait(f"{record.pod} to be gone", next_=f"claim {record.claim} goes")
    gone = DeletePod(pod.name, pod.uid, claim.shard, f"moves: {record.reason}")
    return _step(f"{pod.name} goes.", gone, next_=f"claim {claim.name} goes")


def begin(look: ClusterLook) -> PlanStep | None:
    """Name the next member that moves, if one may now."""
    if look.observed.status.moved_member is not None:
        return None
    for claim in _due(look):
        if not _obstacle(look, claim):
            at = written(look.now)
            name = names.pod(look.desired.name, claim.shard, claim.ordinal)
            why = reason(look, claim)
            record = MovedMember(pod=name, claim=claim.name, uid=claim.uid, reason=why, at=at)
            return _step(f"{name} moves.", record=record, next_="it hands over if it leads")
    return None


def held(look: ClusterLook) -> PlanStep | None:
    """Say what those that are to move wait for."""
    for claim in _due(look):
        text = _obstacle(look, claim)
        if text:
            said = _said("MoveHeld", f"{claim.name} is to be replaced; that waits for {text}.")
            wait = PlanWait(key=f"move {text}", message=text)
            return PlanStep(
                row=PlanRow.MOVE_MEMBERS, wait=wait, findings=(said,), next="a member moves"
            )
    return None


def _due(look: ClusterLook) -> list[Claim]:
    """Return the claims that are to go, those of members that follow before those that lead."""
    claims = [
        c
        for c in look.observed.claims
        if c.shard in look.running and c.shard in look.targets and c.ordinal < look.desired.replicas
    ]
    due = [claim for claim in claims if reason(look, claim)]
    return sorted(due, key=lambda c: (reason(look, c) != ORDERED, c.shard, _led(look, c)))


def _led(look: ClusterLook, claim: Claim) -> bool:
    pod = _pod(look, claim)
    return pod is not None and _leads(look, pod)


def _obstacle(look: ClusterLook, claim: Claim) -> str:
    """Return what the move of a member waits for; empty: it may begin."""
    policy = look.desired.spec.update_policy
    waits = policy.mode is UpdateMode.WINDOW and not look.observed.window_open
    if waits and reason(look, claim) != ORDERED:
        return "a window of updatePolicy"
    classes, wanted = (
        look.observed.storage_classes,
        look.desired.spec.brokers.storage.storage_class_name,
    )
    if wanted and classes is not None and wanted not in classes:
        return f"the storage class {wanted}, which is not there"
    if lacking := _lacking(look, claim):
        return lacking
    others = [n for n in look.running if n != claim.shard]
    if missing := next(filter(None, (membership.lacks(look, n) for n in others)), ""):
        return missing
    pod = _pod(look, claim)
    if pod is None or pod.deleting:
        return f"{names.pod(look.desired.name, claim.shard, claim.ordinal)} to be there"
    return rollout.refused(look, pod)


def _lacking(look: ClusterLook, claim: Claim) -> str:
    """Return which members a shard lacks beside the one that moves; empty: none."""
    name, many = f"shard-{claim.shard}", look.desired.replicas - 1
    if not look.informed or look.shard(claim.shard) is None:
        return f"{name}: brokers to answer"
    if (need := max(1, *_least(look, claim.shard))) > many:
        return f"{name}: replicasPerShard {need + 1}, since puts need {need} members beside it"
    others = _others(look, claim)
    if len(others) < many or not all(membership.able(look, pod) for pod in others):
        return f"{name}: all other members to be in sync"
    if all(not _leads(look, pod) for pod in (*others, *filter(None, [_pod(look, claim)]))):
        return f"{name}: a master"
    return ""


def _least(look: ClusterLook, number: int) -> Iterator[int]:
    """Yield how many members brokers need in sync for a put."""
    yield look.desired.min_in_sync
    for pod in look.observed.pods_of(number):
        said = pod.broker.config.get(LEAST) if pod.broker else None
        yield said if isinstance(said, int) else 0


def _is_off(look: ClusterLook, record: MovedMember, claim: Claim) -> str:
    """Return why a move that has begun is not gone on with; empty: it is."""
    if look.desired.spec.hibernated or look.desired.problem is not None:
        return "the spec says otherwise"
    stays = claim.shard in look.targets and claim.ordinal < look.desired.replicas
    # The order is on the pod, and goes with it.
    asked = reason(look, claim) or (record.reason == ORDERED and _pod(look, claim) is None)
    if not stays or not asked:
        return "nobody asks for it any more"
    return _lacking(look, claim)


def _copying(look: ClusterLook, record: MovedMember) -> PlanStep:
    """Wait until the member is in sync again on its new claim."""
    pod = next((pod for pod in look.observed.pods if pod.name == record.pod), None)
    wanted = {
        names.pod(look.desired.name, n, m)
        for n in look.targets
        for m in range(look.desired.replicas)
    }
    if (pod is not None and membership.able(look, pod)) or record.pod not in wanted:
        return _step(f"{record.pod} is in sync.", record=None, next_="the next member moves")
    return _wait(f"{record.pod} to be in sync on its new claim", next_="the next member moves")


def _recorded(look: ClusterLook, record: MovedMember | None) -> Claim | None:
    """Return the claim that is to go, as long as it is there."""
    if record is None:
        return None
    claims = look.observed.claims
    return next((c for c in claims if (c.name, c.uid) == (record.claim, record.uid)), None)


def _pod(look: ClusterLook, claim: Claim) -> Pod | None:
    pods = look.observed.pods_of(claim.shard)
    return next((pod for pod in pods if pod.ordinal == claim.ordinal), None)


def _others(look: ClusterLook, claim: Claim) -> list[Pod]:
    pods = look.observed.pods_of(claim.shard)
    return [p for p in pods if p.ordinal != claim.ordinal and p.ordinal < look.desired.replicas]


def _leads(look: ClusterLook, pod: Pod) -> bool:
    shard = None if pod.shard is None else look.shard(pod.shard)
    return bool(shard and pod.broker and shard.master == pod.broker.uuid)


def _handover(look: ClusterLook, pod: Pod) -> Handover:
    shard = None if pod.shard is None else look.shard(pod.shard)
    assert shard is not None
    assert pod.broker is not None
    return Handover(pod.name, pod.broker.uuid, shard.id, shard.epoch or 0)


def _step(
    message: str, *actions: Action, next_: str, record: MovedMember | str | None = ""
) -> PlanStep:
    """`record`: what the status names from now on; empty: what it did."""
    return PlanStep(
        row=PlanRow.MOVE_MEMBERS,
        actions=actions,
        record={} if record == "" else {"moved_member": record},
        findings=(_said("MovingMembers", message),),
        next=next_,
    )


def _wait(text: str, *, next_: str) -> PlanStep:
    return PlanStep(
        row=PlanRow.MOVE_MEMBERS,
        wait=PlanWait(key=f"move {text}", message=text, deadline_s=COPY_S),
        findings=(_said("MovingMembers", f"A member moves; it waits for {text}."),),
        next=next_,
    )


def _said(why: str, message: str) -> ConditionFinding:
    return ConditionFinding(type="Reconciling", holds=True, reason=why, message=message)
