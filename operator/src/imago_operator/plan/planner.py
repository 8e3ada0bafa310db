"""The order in which cases are asked, and what none of them may do.

What only adds something is done in every look. Of all else the first case that holds decides, so
that never two of them take something away at a time. Where not everything is known, nothing is
taken away but pods that do not run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from imago_operator.model.desired import Desired, UnreadableSpec
from imago_operator.model.state import ConditionFinding, PlanWait, parsed
from imago_operator.plan import (
    hibernation,
    lifecycle,
    moving,
    objects,
    repair,
    scaledown,
    storage,
    troubles,
)
from imago_operator.plan.look import ClusterLook
from imago_operator.plan.members import fencing, leaving
from imago_operator.plan.registry import joining, levels, registry, spreading
from imago_operator.plan.restarts import permission, rollout
from imago_operator.plan.rows import PlanRow, PlanStep, ReconcilePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from imago_operator.model.state import Observed

READY_S: Final = 600.0
STANDING: Final = frozenset(
    {PlanRow.DELETING, PlanRow.PAUSED, PlanRow.INVALID, PlanRow.HIBERNATING}
)
"""Cases that hold though there is nothing to do or to wait for."""
URGENT: Final[tuple[Callable[[ClusterLook], PlanStep | None], ...]] = (
    fencing.fence,
    repair.stuck,
    registry.registry,
    repair.replace,
    registry.failover,
    registry.user,
)
"""Asked in any state of the objects: they cure what keeps objects from being applied."""
ORDERLY: Final[tuple[Callable[[ClusterLook], PlanStep | None], ...]] = (
    fencing.stand,
    storage.storage,
    moving.go_on,
    moving.begin,
    rollout.rollout,
    leaving.leave,
    leaving.join,
    leaving.claims,
    joining.change,
    spreading.spread,
    moving.held,
    scaledown.resume,
    scaledown.scale_down,
    storage.grown,
    levels.rise,
)
"""Asked only when all objects are as desired: pods get their content."""


def plan(desired: Desired | UnreadableSpec, observed: Observed, now: datetime) -> ReconcilePlan:
    """Return what is to be done now; nothing of it depends on anything but the arguments."""
    still = lifecycle.standing_still(desired, observed)
    if still is not None or isinstance(desired, UnreadableSpec):
        assert still is not None
        return _plan([still], observed, now)
    look = ClusterLook(desired, observed, now)
    found = _plan(list(_steps(look)), observed, now)
    return replace(found, record={**found.record, **lifecycle.accepted(look)})


def _steps(look: ClusterLook) -> Iterator[PlanStep]:
    if wrong := lifecycle.refused(look):
        yield wrong
    if look.desired.observed_only:
        yield from (troubles.members(look), troubles.pods(look))
        return
    applied = objects.children(look)
    yield objects.certificates(look)
    yield from (_asleep if look.desired.spec.hibernated else _awake)(look, applied)


def _awake(look: ClusterLook, applied: PlanStep) -> Iterator[PlanStep]:
    yield from (applied, objects.roles(look), objects.settings(look), objects.scale_up(look))
    yield from (storage.classes(look), troubles.members(look), troubles.pods(look))
    remade = storage.remade(look)
    yield from (storage.growth(look), remade, permission.windows(look), registry.openness(look))
    if waking := hibernation.wake(look):
        yield waking
        return
    # By a spec that somebody has tried to change nothing is restarted or removed.
    urgent = applied.actions or remade.actions or look.desired.problem is not None
    cases = URGENT if urgent else (*URGENT, *ORDERLY)
    for case in cases:
        step = case(look)
        if step is None:
            continue
        yield step
        if step.decides:
            return
    if missing := _members(look):
        yield missing


def _asleep(look: ClusterLook, applied: PlanStep) -> Iterator[PlanStep]:
    """Yield what is done about a cluster that hibernates: nothing but its objects and volumes."""
    remade = storage.remade(look)
    yield from (applied, storage.classes(look), storage.growth(look), remade)
    if not (applied.actions or remade.actions or look.desired.problem is not None):
        yield hibernation.sleep(look)


def _members(look: ClusterLook) -> PlanStep | None:
    """Say which members are not there: Kubernetes brings them back."""
    down = [n for n in (*look.targets, *look.victims) if n not in look.stopped and look.is_down(n)]
    late = [n for n in look.targets if (s := look.shard(n)) is None or s.master is None]
    if not (down or late):
        return None
    text = ", ".join(f"shard-{n}" for n in sorted({*down, *late}))
    missing = ConditionFinding(
        type="Degraded",
        holds=True,
        reason="ReplicasMissing",
        message=f"{text}: members are missing.",
    )
    # Where it is known why they are, that is said already.
    said = () if troubles.pods(look).findings else (missing,)
    wait = PlanWait(key=f"members {text}", message=f"members of {text}", deadline_s=READY_S)
    return PlanStep(row=PlanRow.MEMBERS, wait=wait, findings=said, next="all members are in sync")


def _plan(steps: list[PlanStep], observed: Observed, now: datetime) -> ReconcilePlan:
    decisive = [step for step in steps if step.decides] or [
        step for step in steps if step.row in STANDING
    ]
    first = min(decisive, key=lambda step: step.row.number, default=None)
    wait = next((step.wait for step in decisive if step.wait), None)
    return ReconcilePlan(
        row=first.row if first else PlanRow.SETTLED,
        actions=tuple(action for step in steps for action in step.actions),
        wait=wait,
        next=first.next if first else "look again when something changes",
        findings=tuple(finding for step in steps for finding in step.findings),
        record={name: value for step in steps for name, value in step.record.items()},
        late_s=_late(wait, observed, now),
    )


def _late(wait: PlanWait | None, observed: Observed, now: datetime) -> float | None:
    """Return for how long a wait has been late: its deadline runs from when it began."""
    progress = observed.status.progress
    if wait is None or wait.deadline_s is None or progress is None or progress.step != wait.key:
        return None
    late = (now - parsed(progress.since)).total_seconds() - wait.deadline_s
    return late if late > 0 else None
