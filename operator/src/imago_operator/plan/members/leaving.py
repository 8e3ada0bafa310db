"""Members that leave a shard: one at a time, never the leader, never one that a put waits for.

The last of a StatefulSet goes first. It goes only while all that stay are in sync and no broker
needs more than these for a put; where it leads, it hands over to one that stays. Whoever somebody
added by scaling a StatefulSet up leaves in the same way, and so does who is there while the
StatefulSet is made anew.

Its claim is kept, or goes, as claims of shards that go. A member that comes to a kept claim copies
what it lacks. And where nobody who is there may lead, those that have left come back: it may be one
of them that everything was acknowledged by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.model import names
from imago_operator.model.actions import DeleteClaim, Handover
from imago_operator.model.state import ConditionFinding, PlanWait, written
from imago_operator.plan import membership
from imago_operator.plan.members.counting import LEAST
from imago_operator.plan.rows import PlanRow, PlanStep
from imago_operator.spec.cluster.cluster_status import LeftMember
from imago_operator.spec.schema.common import Retention

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_operator.model.state import Claim, OwnedObject, Pod
    from imago_operator.plan.look import ClusterLook

LEAVE_S: Final = 600.0


def size(look: ClusterLook, number: int) -> int:
    """Return how many members a shard's StatefulSet is to have for now."""
    least = max(look.desired.replicas, called_back(look, number))
    found = look.observed.sets().get(number)
    if found is None or not found.replicas:
        # Its controller takes away whoever is beyond what it begins with.
        there = (pod.ordinal + 1 for pod in look.observed.pods_of(number) if not pod.deleting)
        return max(least, *there, 0)
    if found.replicas <= least:
        return least
    return found.replicas if _obstacle(look, found) else found.replicas - 1


def called_back(look: ClusterLook, number: int) -> int:
    """Return how many members a shard needs that nobody leads; 0: those that it has may do.

    Somebody may have scaled its StatefulSet down, or pods have gone while it was made anew. Only
    claims tell then who was there. Those that are there get the time that an election takes, but
    for those that no node takes.
    """
    shard, pods = look.shard(number), look.observed.pods_of(number)
    if not look.informed or shard is None or shard.drained:
        return 0
    if shard.master is not None or shard.in_sync or not pods:
        return 0
    if any(pod.fenced for pod in pods):
        return 0  # whoever is fenced has what the others lack, and comes back first
    on_nodes = [pod for pod in pods if not pod.unscheduled]
    if any(membership.unready_for(look, pod) < membership.UNREADY_S for pod in on_nodes):
        return 0
    return max((claim.ordinal + 1 for claim in look.observed.claims_of(number)), default=0)


def _obstacle(look: ClusterLook, found: OwnedObject) -> str:
    """Return what the last member of a set waits for before it leaves; empty: nothing."""
    assert found.shard is not None
    assert found.replicas is not None
    name = f"shard-{found.shard}"
    pods = look.observed.pods_of(found.shard)
    if going := [pod.name for pod in pods if pod.deleting or pod.ordinal >= found.replicas]:
        return f"{name}: {going[0]} to be gone"
    last = next((pod for pod in pods if pod.ordinal == found.replicas - 1), None)
    if last is None and look.empty(found.shard):
        return ""
    if len(list(_staying(look, found.shard))) < look.desired.replicas:
        return f"{name}: a missing pod to be back"  # until it is, this one stands in for it
    if not (look.informed and _do_without(look, found.shard)):
        return f"{name}: those that stay to be in sync"
    able = [pod for pod in pods if pod is not last and membership.able(look, pod)]
    if any(_least(pod) > len(able) for pod in pods):
        return f"{name}: puts to need no more than {len(able)} members"
    if not any(_leads(look, pod) for pod in pods if pod is not last):
        return f"{name}: another to lead"  # the last one may, also where it does not answer
    return ""


def _staying(look: ClusterLook, number: int) -> Iterator[Pod]:
    """Yield the members that a shard is to have, as far as they are there."""
    return (p for p in look.observed.pods_of(number) if p.ordinal < look.desired.replicas)


def _do_without(look: ClusterLook, number: int) -> bool:
    """Whether a shard has all members that it is to have in sync, however the others are."""
    able = [pod for pod in _staying(look, number) if membership.able(look, pod)]
    return len(able) == look.desired.replicas


def _least(pod: Pod) -> int:
    said = pod.broker.config.get(LEAST, 0) if pod.broker else 0
    return said if isinstance(said, int) else 0


def _leads(look: ClusterLook, pod: Pod) -> bool:
    shard = None if pod.shard is None else look.shard(pod.shard)
    return bool(shard and pod.broker and shard.master == pod.broker.uuid)


def leave(look: ClusterLook) -> PlanStep | None:
    """Have leaders hand over that are to leave; say what the others wait for."""
    leaving = list(_leaving(look))
    if not leaving:
        return None
    for found in leaving:
        if handover := _handover(look, found):
            return PlanStep(
                row=PlanRow.CHANGE_MEMBERS,
                actions=(handover,),
                findings=(_said("RemovingMembers", f"{handover.pod} hands over, then leaves."),),
                next="it leaves",
            )
    text = next(filter(None, (_obstacle(look, one) for one in leaving)), "the last to leave")
    return PlanStep(
        row=PlanRow.CHANGE_MEMBERS,
        wait=PlanWait(key=f"leave {text}", message=text, deadline_s=LEAVE_S),
        findings=(_said("RemovingMembers", f"Members leave; it waits for {text}."),),
        next="the next member leaves",
    )


def _leaving(look: ClusterLook) -> Iterator[OwnedObject]:
    """Yield the sets of shards that have more members than they are to have."""
    for number in look.running:
        found = look.observed.sets()[number]
        if (found.replicas or 0) > look.desired.replicas:
            yield found


def _handover(look: ClusterLook, found: OwnedObject) -> Handover | None:
    """Return how a leader that is the next to leave gives its place to one that stays."""
    pods = look.observed.pods_of(found.shard)
    last = pods[-1] if pods else None
    shard = None if found.shard is None else look.shard(found.shard)
    if last is None or last.broker is None or shard is None or not _leads(look, last):
        return None
    if not (look.informed and all(_do_without(look, number) for number in look.running)):
        return None
    if membership.another_goes(look, last):
        return None
    heirs = [pod.broker.uuid for pod in _staying(look, shard.id) if pod.broker]
    return Handover(last.name, last.broker.uuid, shard.id, shard.epoch or 0, target=heirs[0])


def join(look: ClusterLook) -> PlanStep | None:
    """Wait until members that were added are in sync: until then acknowledgements do without."""
    desired = look.desired
    if not desired.changes_members or any(_leaving(look)):
        return None
    if desired.replicas < desired.spec.brokers.replicas_per_shard:
        text = "brokers to have version 0.2 or later: earlier ones let nobody join while they run"
        wait = PlanWait(key="members held", message=text)
        said = _said("MembersHeld", f"No member is added; that waits for {text}.")
        return PlanStep(row=PlanRow.CHANGE_MEMBERS, wait=wait, findings=(said,), next="add members")
    missing = [name for number in look.running for name in _not_in_sync(look, number)]
    text = f"{', '.join(missing[:8]) or 'all members'} to be in sync"
    return PlanStep(
        row=PlanRow.CHANGE_MEMBERS,
        wait=PlanWait(key="members join", message=text),
        findings=(_said("AddingMembers", f"Members join; it waits for {text}."),),
        next="puts count on all members",
    )


def _not_in_sync(look: ClusterLook, number: int) -> Iterator[str]:
    able = {p.ordinal for p in look.observed.pods_of(number) if membership.able(look, p)}
    for ordinal in range(look.desired.replicas):
        if ordinal not in able:
            yield names.pod(look.desired.name, number, ordinal)


# ---- claims of members that have left --------------------------------------------------------


def claims(look: ClusterLook) -> PlanStep | None:
    """Have claims go whose members have left, if claims of what goes are not kept."""
    recorded = {(one.claim, one.uid): one for one in look.observed.status.left_members}
    doomed = list(_doomed(look))
    kept = tuple(recorded[c.name, c.uid] for c in doomed if (c.name, c.uid) in recorded)
    at = written(look.now)
    new = tuple(
        LeftMember(claim=c.name, uid=c.uid, at=at)
        for c in doomed
        if (c.name, c.uid) not in recorded
    )
    if new or len(kept) < len(recorded):
        return PlanStep(
            row=PlanRow.CHANGE_MEMBERS,
            record={"left_members": (*kept, *new)},
            next="remove their claims" if (*kept, *new) else "look again when something changes",
        )
    if not doomed:
        return None
    gone = tuple(DeleteClaim(c.name, c.uid, c.shard) for c in doomed)
    said = _said("RemovingMembers", f"Claims of members that have left go: {len(gone)}.")
    return PlanStep(
        row=PlanRow.CHANGE_MEMBERS, actions=gone, findings=(said,), next="the members are gone"
    )


def _doomed(look: ClusterLook) -> Iterator[Claim]:
    policy = look.desired.spec.brokers.storage.persistent_volume_claim_retention_policy
    if policy.when_scaled is Retention.RETAIN or not look.informed:
        return
    there = {pod.name for pod in look.observed.pods}
    for number in look.targets:
        if number not in look.observed.sets() or membership.lacks(look, number):
            continue
        for claim in look.observed.claims_of(number):
            name = names.pod(look.desired.name, number, claim.ordinal)
            if not look.has_member(claim) and name not in there:
                yield claim


def _said(reason: str, message: str) -> ConditionFinding:
    return ConditionFinding(type="Reconciling", holds=True, reason=reason, message=message)
