"""What is said of an ImagoMirror: what its process tells, and what keeps it from its work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from imago_operator.contents.conditions import ContentRefusal, conditions, holds, ready
from imago_operator.model.state import written
from imago_operator.reasons.mirror import TOLD
from imago_operator.spec.mirror import MirrorState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.contents.belonging import Claimant
    from imago_operator.model.state import ConditionFinding
    from imago_operator.spec.mirror import MirrorSpec, MirrorStatus

_DOING: Final = {"copying": "Copying", "suspended": "Suspended", "failed-over": "FailedOver"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorLook:
    """One look at an ImagoMirror."""

    me: Claimant
    spec: MirrorSpec
    status: MirrorStatus
    refusal: ContentRefusal | None = None
    """Why nothing can run."""
    told: Mapping[str, Any] | None = None
    """What its process says; None: it does not answer."""
    pods: str = ""
    """What its pods are at, where it does not answer."""


def status_of(look: MirrorLook, now: datetime) -> MirrorStatus:
    """Return the status after a look."""
    told, status = look.told, look.status
    if told is not None:
        status = replace(
            status,
            state=_DOING.get(str(told.get("state"))),
            source_cluster=str(told.get("sourceCluster") or "") or status.source_cluster,
            target_cluster=str(told.get("targetCluster") or "") or status.target_cluster,
            topics=len(told.get("topics") or ()),
            lag_messages=int(told.get("lagMessages") or 0),
            lag_seconds=int(told.get("lagSeconds") or 0),
            last_copied_at=_time(int(told.get("lastCopiedMs") or 0)) or status.last_copied_at,
            lacks=_lacks(told),
        )
    generation = look.me.generation
    said = conditions((_finding(look),), look.status.conditions, generation, now)
    return replace(status, observed_generation=generation, conditions=said)


def _finding(look: MirrorLook) -> ConditionFinding:
    if look.me.paused:
        text = "Paused: remove the annotation imago.dev/pause-reconciliation to continue."
        return holds("Paused", "Annotation", text)
    if look.refusal is not None:
        return look.refusal.finding
    told = look.told
    if told is None:
        text = look.pods or "Its process does not answer yet."
        return ContentRefusal("Starting", text).finding
    known = [each for each in told.get("troubles") or () if each.get("reason") in TOLD]
    state = _DOING.get(str(told.get("state")))
    if known and state != MirrorState.FAILED_OVER.value:
        worst = min(known, key=lambda each: TOLD.index(each["reason"]))
        more = f" And {len(known) - 1} more." if len(known) > 1 else ""
        text = f"{worst.get('subject')}: {worst.get('message')}. {worst.get('cure')}.{more}"
        return ContentRefusal(str(worst["reason"]), text[:1000]).finding
    if not told.get("begun") or state != look.spec.state.value:
        return ContentRefusal("Starting", "It finds out how far it is.").finding
    if state == MirrorState.FAILED_OVER.value:
        return ready("FailedOver", f"The target lacks {_lacks(told) or 0} messages.")
    return ready(state)


def _lacks(told: Mapping[str, Any]) -> int | None:
    lacks = (told.get("failover") or {}).get("lacks")
    return None if lacks is None else sum(lacks.values())


def _time(ms: int) -> str | None:
    return written(datetime.fromtimestamp(ms // 1000, UTC)) if ms else None
