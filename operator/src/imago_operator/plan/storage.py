"""Volumes that grow. The wanted size is a floor: what is larger stays larger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_operator.model.actions import ClassClaim, DeleteChild, GrowClaim
from imago_operator.model.state import STATEFUL_SET, ConditionFinding, PlanWait, written
from imago_operator.plan import growing
from imago_operator.plan.look import RESIZE_PENDING
from imago_operator.plan.objects import is_made_anew, wanted
from imago_operator.plan.rows import PlanRow, PlanStep

if TYPE_CHECKING:
    from imago_operator.model.actions import Action
    from imago_operator.model.state import Claim
    from imago_operator.plan.look import ClusterLook

STORAGE = "StorageReady"
RESIZE_S = 1800.0
LISTED_MAX = 10


def growth(look: ClusterLook) -> PlanStep:
    """Grow claims, whatever else there is: it takes nothing away, and may be the cure."""
    size = look.desired.spec.brokers.storage.size
    told = [GrowClaim(c.name, c.uid, size.text) for c in _short(look) if size and _grows(look, c)]
    told += _servers(look)
    text = f"{len(told)} claims grow to {told[0].size}." if told else ""
    if own := _by_themselves(look):
        listed = ", ".join(f"{one.name} to {one.size}" for one in own[:LISTED_MAX])
        text = f"{text} By themselves grow {listed}.".lstrip()
        told += own
    return PlanStep(
        row=PlanRow.STORAGE,
        actions=tuple(told),
        findings=(_said(False, "Expanding", text),) if told else (),
        next="they grow",
    )


def _servers(look: ClusterLook) -> list[GrowClaim]:
    """Return the claims of ZooKeeper's servers that grow; those that cannot stay as they are."""
    managed = look.desired.spec.zookeeper.managed
    if managed is None:
        return []
    size = managed.storage.size
    short = [c for c in look.observed.server_claims if c.requested < size.bytes]
    return [GrowClaim(c.name, c.uid, size.text) for c in short if _grows(look, c)]


def _by_themselves(look: ClusterLook) -> list[GrowClaim]:
    """Return how claims grow that are as large as the spec says, and nearly full."""
    short = {claim.name for claim in _short(look)}
    mine = {claim.name: claim for claim in _mine(look)}
    return [
        GrowClaim(name, mine[name].uid, _text(size), written(look.now))
        for name, size in growing.growth(look, list(mine.values())).sizes.items()
        if name not in short and _grows(look, mine[name])
    ]


def _text(size: int) -> str:
    whole, rest = divmod(size, growing.GIB)
    return str(size) if rest else f"{whole}Gi"


def remade(look: ClusterLook) -> PlanStep:
    """Have StatefulSets made anew whose claim templates differ; their pods stay.

    Until then a set gets neither a pod template nor replicas: it waits for nothing, not even for
    claims that do not grow.
    """
    anew = _made_anew(look)
    short = len(_short(look))
    text = f"{short} claims grow. " if short else ""
    made = _said(False, "Expanding", f"{text}StatefulSets are made anew; their pods stay.")
    said = _unsupported(look) or made
    return PlanStep(
        row=PlanRow.STORAGE,
        actions=anew,
        findings=(said,) if anew else (),
        next="apply them again",
    )


def storage(look: ClusterLook) -> PlanStep | None:
    """Say how volumes are."""
    if said := _unsupported(look):
        return PlanStep(row=PlanRow.STORAGE, findings=(said,))
    if _short(look) or _by_themselves(look):
        return None  # they have just been told to grow
    return _growing(look, _mine(look))


def _unsupported(look: ClusterLook) -> ConditionFinding | None:
    grown = growing.growth(look, _mine(look)).sizes
    asked = [*_short(look), *(claim for claim in _mine(look) if claim.name in grown)]
    fixed = [claim for claim in asked if not _grows(look, claim)]
    if not fixed:
        return None
    text = f"Storage class {fixed[0].storage_class or 'of the cluster'} cannot grow volumes"
    if not _short(look):
        text += ": autoGrow changes nothing."
    elif look.desired.replicas > look.desired.min_in_sync:
        text += ": members begin on larger claims, one by one."
    else:
        text += ", and puts need every member: none can begin on a larger claim."
    return _said(False, "ExpansionUnsupported", text)


def _short(look: ClusterLook) -> list[Claim]:
    """Return claims of brokers that are to run and ask for less than is wanted."""
    size = look.desired.spec.brokers.storage.size
    if size is None:
        return []
    return [claim for claim in _mine(look) if claim.requested < size.bytes]


def _mine(look: ClusterLook) -> list[Claim]:
    """Return the claims of members that are to run; those of who has left stay as they are."""
    return [c for c in look.observed.claims if c.shard in look.running and look.has_member(c)]


def _grows(look: ClusterLook, claim: Claim) -> bool:
    return look.observed.expandable.get(claim.storage_class or "", False)


def classes(look: ClusterLook) -> PlanStep:
    """Have claims get the VolumeAttributesClass that is wanted; nothing waits for it."""
    desired = look.desired.spec.brokers.storage.volume_attributes_class_name
    actions = [
        ClassClaim(c.name, c.uid, desired)
        for c in filter(look.has_member, look.observed.claims)
        if desired is not None and desired not in (c.attributes_class, c.attributes_asked)
    ]
    return PlanStep(row=PlanRow.STORAGE, actions=tuple(actions), next="their volumes are changed")


def _made_anew(look: ClusterLook) -> tuple[Action, ...]:
    found: list[Action] = []
    for manifest in wanted(look):
        if manifest["kind"] != STATEFUL_SET:
            continue
        now = look.observed.child(STATEFUL_SET, manifest["metadata"]["name"])
        if now is not None and not now.deleting and is_made_anew(now, manifest):
            found.append(DeleteChild(now.kind, now.name, now.uid, orphan=True))
    return tuple(found)


def _growing(look: ClusterLook, claims: list[Claim]) -> PlanStep | None:
    lost = [c.name for c in claims if c.phase == "Lost"]
    if lost:
        return PlanStep(row=PlanRow.STORAGE, findings=(_said(False, "ClaimLost", ", ".join(lost)),))
    waiting = _small(claims)
    if waiting:
        text = f"{waiting[0].name} to have the requested size"
        pending = any(RESIZE_PENDING in c.conditions for c in waiting)
        reason = RESIZE_PENDING if pending else "Expanding"
        return PlanStep(row=PlanRow.STORAGE, findings=(_said(False, reason, text),))
    if waits := growing.growth(look, claims).finding:
        return PlanStep(row=PlanRow.STORAGE, findings=(waits,))
    size = look.desired.storage_bytes
    larger = [c.name for c in claims if size is not None and c.requested > size]
    said = _said(True, "LargerThanSpec", ", ".join(larger)) if larger else _said(True, "Bound", "")
    return PlanStep(row=PlanRow.STORAGE, findings=(said,))


def grown(look: ClusterLook) -> PlanStep | None:
    """Wait until volumes have the size asked for: nothing else waits for that."""
    waiting = _small(_mine(look))
    if not waiting:
        return None
    text = f"{waiting[0].name} to have the requested size"
    return PlanStep(
        row=PlanRow.STORAGE, wait=PlanWait(key="resize", message=text, deadline_s=RESIZE_S)
    )


def _small(claims: list[Claim]) -> list[Claim]:
    """Return claims whose volumes are smaller than what was asked for."""
    return [c for c in claims if c.capacity is not None and c.capacity < c.requested]


def _said(holds: bool, reason: str, message: str) -> ConditionFinding:
    return ConditionFinding(type=STORAGE, holds=holds, reason=reason, message=message)
