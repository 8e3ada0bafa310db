"""Shards that go: closed to new messages, read out, put on record, and only then removed.

Every step follows from the actual state, not from what was done: an operator that dies in
between, and one that is asked to take the shards back, go on from the facts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from imago_operator.manifests.brokers import stateful_set
from imago_operator.model import names
from imago_operator.model.actions import (
    Apply,
    Cordon,
    DeleteChild,
    DeleteClaim,
    MarkDrained,
    Stop,
    Uncordon,
)
from imago_operator.model.state import STATEFUL_SET, ConditionFinding, PlanWait, written
from imago_operator.model.wording import counted
from imago_operator.plan.objects import REBALANCE, rebalance
from imago_operator.plan.rows import PlanRow, PlanStep
from imago_operator.spec.cluster.cluster import DrainPolicy
from imago_operator.spec.cluster.cluster_status import ScaleDownStatus
from imago_operator.spec.schema.common import Retention

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_operator.model.actions import Action
    from imago_operator.model.state import Claim, OwnedObject
    from imago_operator.plan.look import ClusterLook

REMOVE_S: Final = 600.0


def resume(look: ClusterLook) -> PlanStep | None:
    """Take shards back that were to go; clear away what is left of a drain that is over."""
    begun = look.observed.status.scale_down
    back = [n for n in (begun.victims if begun else ()) if n in look.targets]
    # Shards that are gone are not taken back: what is cleared away then is the drain's own end.
    row = PlanRow.RESUME if back else PlanRow.SCALE_DOWN
    actions: list[Action] = [Uncordon(n) for n in back if _is_closed(look, n)]
    actions += [DeleteChild(c.kind, c.name, c.uid) for c in (*_over(look), *_filled(look))]
    if actions:
        following = "the shards take topics again" if back else _following(look)
        return PlanStep(row=row, actions=tuple(actions), next=following)
    if begun is not None and not look.victims:
        following = "all shards stay" if back else _following(look)
        return PlanStep(row=row, record={"scale_down": None}, next=following)
    return None


def _following(look: ClusterLook) -> str:
    return "close the shards" if look.victims else "look again when something changes"


def _over(look: ClusterLook) -> Iterator[OwnedObject]:
    """Yield drains of other shards than those that go now."""
    current = names.drain(look.desired.name, look.victims)
    prefix = names.drain(look.desired.name, ())
    for found in look.observed.children:
        mine = found.kind == REBALANCE and found.name.startswith(prefix) and not found.deleting
        if mine and (not look.victims or found.name != current):
            yield found


def _filled(look: ClusterLook) -> Iterator[OwnedObject]:
    """Yield what once gave queues to shards that go: should they come back, it is done anew."""
    prefix = names.fill(look.desired.name, ())
    for found in look.observed.children:
        shards = found.name.removeprefix(prefix).split("-")
        mine = found.kind == REBALANCE and found.name.startswith(prefix) and not found.deleting
        if mine and any(str(number) in shards for number in look.victims):
            yield found


def _is_closed(look: ClusterLook, number: int) -> bool:
    shard = look.shard(number)
    return shard is not None and (shard.cordoned or shard.drained)


def scale_down(look: ClusterLook) -> PlanStep | None:
    """Return the next step of the shards that go."""
    if not look.victims:
        return None
    if reason := blocked(look):
        text = f"{_listed(look.victims)}: {reason[1]}"
        said = ConditionFinding(type="ScalingDown", holds=True, reason=reason[0], message=text)
        wait = PlanWait(key="blocked", message=reason[1])
        return PlanStep(row=PlanRow.BLOCKED, wait=wait, findings=(said,), next="close the shards")
    for step in (_record, _close, _empty, _mark, _list_claims, _stop, _claims, _remove):
        found = step(look)
        if found is not None:
            return found
    return None


def blocked(look: ClusterLook) -> tuple[str, str] | None:
    """Return why shards cannot go, as reason and text; none once they are drained."""
    if all(look.empty(n) for n in look.victims):
        return None
    left = len(look.targets)
    for topic in look.observed.topics:
        if topic.count is not None and topic.count > left:
            return (
                "NotEnoughShards",
                f"topic {topic.name} needs {counted(topic.count, 'shard')}, {left} would stay",
            )
        if pinned := set(topic.shard_ids) & set(look.victims):
            return "TopicPinned", f"topic {topic.name} names {_listed(sorted(pinned))}"
    return None


def _record(look: ClusterLook) -> PlanStep | None:
    """Put the shards on record before anything happens to them."""
    begun = look.observed.status.scale_down
    if begun is not None and begun.victims == look.victims:
        return None
    claims = () if begun is None else _still(look, begun.claims)
    new = ScaleDownStatus(
        victims=look.victims, step="Cordoning", claims=claims, started_at=written(look.now)
    )
    return PlanStep(
        row=PlanRow.SCALE_DOWN,
        record={"scale_down": new},
        findings=(_said("Cordoning", f"{_listed(look.victims)} goes."),),
        next="close the shards to new topics",
    )


def _still(look: ClusterLook, claims: tuple[str, ...]) -> tuple[str, ...]:
    """Return the recorded claims of shards that still go."""
    mine = {c.name for n in look.victims for c in look.observed.claims_of(n)}
    return tuple(name for name in claims if name in mine)


def _close(look: ClusterLook) -> PlanStep | None:
    opened = [n for n in look.victims if not look.empty(n) and not _is_closed(look, n)]
    if not opened:
        return None
    return PlanStep(
        row=PlanRow.SCALE_DOWN,
        actions=tuple(Cordon(n) for n in opened),
        findings=(_said("Cordoning", f"{_listed(opened)} takes no new topics."),),
        next="close their queues",
    )


def _empty(look: ClusterLook) -> PlanStep | None:
    """Have queues closed, and wait until what is in them is read or expired."""
    full = [n for n in look.victims if not look.empty(n)]
    if not full:
        return None
    name = names.drain(look.desired.name, look.victims)
    if look.observed.child(REBALANCE, name) is None:
        mode = "Seal" if look.desired.spec.scale_down.drain is DrainPolicy.SEAL else "Drain"
        moves = Apply(rebalance(look, name, mode, look.victims), "shards go")
        said = _said("Draining", f"{_listed(full)} is closed.")
        return PlanStep(
            row=PlanRow.SCALE_DOWN, actions=(moves,), findings=(said,), next="read them out"
        )
    if any(look.observed.remaining.get(n) and look.observed.remaining[n].nothing for n in full):
        return None
    known = [found for n in full if (found := look.observed.remaining.get(n))]
    queues = sum(found.writable_queues for found in known)
    unread = sum(found.unread_messages for found in known)
    text = f"{_listed(full)}: {queues} open queues, {unread} unread messages"
    wait = PlanWait(
        key=f"drain {look.victims}",
        message=text,
        deadline_s=look.desired.spec.scale_down.timeout.seconds,
    )
    return PlanStep(
        row=PlanRow.SCALE_DOWN,
        wait=wait,
        findings=(_said("Draining", f"{text}."),),
        next="record that nothing is left",
        record=_counted(look, queues, unread),
    )


def _counted(look: ClusterLook, queues: int, unread: int) -> dict[str, object]:
    begun = look.observed.status.scale_down
    assert begun is not None
    new = replace(begun, step="Draining", queues_remaining=queues, messages_remaining=unread)
    return {} if new == begun else {"scale_down": new}


def _mark(look: ClusterLook) -> PlanStep | None:
    done = [
        n
        for n in look.victims
        if not look.empty(n) and (left := look.observed.remaining.get(n)) and left.nothing
    ]
    if not done:
        return None
    said = _said("Draining", f"{_listed(done)} is empty.")
    marks = tuple(MarkDrained(n) for n in done)
    return PlanStep(row=PlanRow.SCALE_DOWN, actions=marks, findings=(said,), next="stop their pods")


def _doomed(look: ClusterLook) -> list[Claim]:
    """Return the claims of drained shards that are not to be kept."""
    policy = look.desired.spec.brokers.storage.persistent_volume_claim_retention_policy
    if policy.when_scaled is Retention.RETAIN:
        return []
    return [c for n in look.victims if look.drained(n) for c in look.observed.claims_of(n)]


def _list_claims(look: ClusterLook) -> PlanStep | None:
    """Put the claims on record before one of them goes."""
    begun = look.observed.status.scale_down
    assert begun is not None
    missing = [c.name for c in _doomed(look) if c.name not in begun.claims]
    if not missing:
        return None
    new = replace(begun, step="RemovingPods", claims=(*begun.claims, *missing))
    return PlanStep(row=PlanRow.SCALE_DOWN, record={"scale_down": new}, next="stop their pods")


def _stop(look: ClusterLook) -> PlanStep | None:
    sets = look.observed.sets()
    running = [n for n in look.victims if n in sets and sets[n].replicas != 0]
    if running:
        stops = tuple(Stop(stateful_set(look.desired, n, replicas=0), n) for n in running)
        said = _said("RemovingPods", f"{_listed(running)} stops.")
        return PlanStep(
            row=PlanRow.SCALE_DOWN, actions=stops, findings=(said,), next="remove claims"
        )
    pods = [pod.name for n in look.victims for pod in look.observed.pods_of(n)]
    if not pods:
        return None
    text = f"{', '.join(pods)} to stop"
    wait = PlanWait(key="pods stop", message=text, deadline_s=REMOVE_S)
    said = _said("RemovingPods", f"{text}.")
    return PlanStep(row=PlanRow.SCALE_DOWN, wait=wait, findings=(said,), next="remove claims")


def _claims(look: ClusterLook) -> PlanStep | None:
    """Delete claims: nothing mounts them, their shard is on record as drained, and so are they."""
    begun = look.observed.status.scale_down
    listed = begun.claims if begun else ()
    present = {pod.name for pod in look.observed.pods}
    doomed = [
        c
        for c in _doomed(look)
        if c.name in listed and names.pod(look.desired.name, c.shard, c.ordinal) not in present
    ]
    if not doomed:
        return None
    gone = tuple(DeleteClaim(c.name, c.uid, c.shard) for c in doomed)
    said = _said("RemovingClaims", f"{len(gone)} claims go.")
    return PlanStep(
        row=PlanRow.SCALE_DOWN, actions=gone, findings=(said,), next="remove StatefulSets"
    )


def _remove(look: ClusterLook) -> PlanStep | None:
    sets = look.observed.sets()
    left = [sets[n] for n in look.victims if n in sets and not sets[n].deleting]
    actions = tuple(DeleteChild(STATEFUL_SET, c.name, c.uid) for c in left)
    if not actions:
        wait = PlanWait(key="sets go", message="StatefulSets to go", deadline_s=REMOVE_S)
        return PlanStep(row=PlanRow.SCALE_DOWN, wait=wait, next="the shards are gone")
    said = _said("RemovingPods", f"{_listed(look.victims)} is removed.")
    return PlanStep(
        row=PlanRow.SCALE_DOWN, actions=actions, findings=(said,), next="the shards are gone"
    )


def _said(reason: str, message: str) -> ConditionFinding:
    return ConditionFinding(type="ScalingDown", holds=True, reason=reason, message=message)


def _listed(numbers: object) -> str:
    assert isinstance(numbers, (list, tuple))
    return ", ".join(f"shard-{n}" for n in numbers)
