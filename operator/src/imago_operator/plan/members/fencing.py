"""Members that somebody has fenced: their brokers keep their logs, and serve nobody.

A member is fenced only while all others of its shard could lead and are enough for a put: then no
client is refused, and what was acknowledged is where it is served from. A shard whose members are
all named is fenced as a whole, and so is a member with `!`: clients are refused then, as somebody
has said. Nothing is lost either way: the logs stay, and a broker that ends in order hands over
first. While a fence stands or waits nothing is restarted, moved or removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.model import names
from imago_operator.model.actions import FenceMember, LiftFence
from imago_operator.model.state import ConditionFinding, PlanWait
from imago_operator.plan import membership
from imago_operator.plan.rows import PlanRow, PlanStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_operator.model.state import Pod
    from imago_operator.plan.look import ClusterLook

CONDITION: Final = "Fenced"
LISTED_MAX: Final = 10
LIFTED: Final = "kubectl imago unfence {} lifts it"


def fence(look: ClusterLook) -> PlanStep | None:
    """Fence who is to be, lift what is over; say how it stands.

    It decides where it has something to do, and where nobody is left to serve: no broker answers
    then. Of members here and there it only tells, so that what repairs is asked as always.
    """
    lifted = [LiftFence(p.name, u) for p, u in _brokers(look) if _is_over(look, p)]
    ordered: list[FenceMember] = []
    waits = []
    for pod, uuid in _brokers(look):
        if pod.name not in membership.fence_orders(look) or pod.fenced:
            continue
        if why := _obstacle(look, pod):
            waits.append(f"{pod.name} waits for {why}")
        elif pod.shard not in {one.shard for one in ordered} or membership.fenced_whole(
            look, pod.shard
        ):
            alone = membership.fence_orders(look)[pod.name] or membership.fenced_whole(
                look, pod.shard
            )
            ordered.append(FenceMember(pod.name, uuid, pod.shard or 0, anyway=alone))
    waits += [f"there is no member {name}" for name in _unknown(look)]
    stands = [pod.name for pod in look.observed.pods if pod.fenced]
    if not (lifted or ordered or waits or stands or membership.fence_orders(look)):
        return None
    said = (_said(look, stands, waits, begins=bool(ordered)),)
    if ordered or lifted:
        return PlanStep(
            row=PlanRow.FENCING,
            actions=(*lifted, *ordered),
            findings=said,
            next="their brokers end, and answer as fenced",
        )
    if stands and all(membership.fenced_whole(look, n) for n in look.running):
        return _waiting(look, said)
    return PlanStep(row=PlanRow.FENCING, findings=said)


def stand(look: ClusterLook) -> PlanStep | None:
    """Have nothing restarted, moved or removed while a fence stands or is to stand."""
    return _waiting(look) if membership.fence_orders(look) else None


def _waiting(look: ClusterLook, said: tuple[ConditionFinding, ...] = ()) -> PlanStep:
    after = LIFTED.format(look.desired.name)
    wait = PlanWait(key="fenced", message="the fence to be lifted")
    return PlanStep(row=PlanRow.FENCING, wait=wait, findings=said, next=after)


def _brokers(look: ClusterLook) -> Iterator[tuple[Pod, str]]:
    """Yield the pods whose brokers answer, and stay, with their names for ever."""
    for pod in look.observed.pods:
        if pod.shard is not None and pod.broker is not None and not pod.deleting:
            yield pod, pod.broker.uuid


def _is_over(look: ClusterLook, pod: Pod) -> bool:
    return pod.fenced and pod.name not in membership.fence_orders(look)


def _obstacle(look: ClusterLook, pod: Pod) -> str:
    """Return what a member waits for until it may be fenced; empty: nothing."""
    if membership.fence_orders(look)[pod.name] or membership.fenced_whole(look, pod.shard):
        return ""
    others = [one for one in look.observed.pods_of(pod.shard) if one.name != pod.name]
    able = [one for one in others if membership.able(look, one)]
    if not able:
        return "another member of its shard to be in sync"
    if len(able) < look.desired.min_in_sync:
        return f"{look.desired.min_in_sync} others to be in sync: puts need them"
    if not membership.others_able(look, pod):
        return "all others of its shard to be in sync"
    return ""


def _unknown(look: ClusterLook) -> list[str]:
    shards = (*look.targets, *look.victims)
    known = {
        names.pod(look.desired.name, n, ordinal)
        for n in shards
        for ordinal in range(max(look.desired.replicas, look.desired.members_there))
    }
    return sorted(
        membership.fence_orders(look).keys() - known - {pod.name for pod in look.observed.pods}
    )


def _said(
    look: ClusterLook, stands: list[str], waits: list[str], *, begins: bool
) -> ConditionFinding:
    whole = [f"shard-{n}" for n in look.running if membership.fenced_whole(look, n)]
    parts = [f"{', '.join(stands[:LISTED_MAX])}: fenced"] if stands else []
    parts += [f"{', '.join(whole[:LISTED_MAX])}: no client is served"] if whole else []
    parts += waits[:LISTED_MAX]
    reason = "FenceHeld" if waits else "Fencing" if begins or not stands else "MembersFenced"
    text = f"{'; '.join(parts) or 'Brokers end'}. {LIFTED.format(look.desired.name)}."
    return ConditionFinding(type=CONDITION, holds=True, reason=reason, message=text)
