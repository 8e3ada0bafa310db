"""What is done about an ImagoBackup: begun, followed to its end, and taken away with its resource.

Brokers take it, and the bucket remembers: whoever asks again goes on with it. So a plan needs no
more than what they say now, and whether we have begun it: a backup of that name that was there
before is somebody else's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from imago_operator.contents.conditions import ContentRefusal, conditions, holds, ready
from imago_operator.contents.leaving import Leaving, leave
from imago_operator.model.state import parsed, written
from imago_operator.spec.backup import BackupPhase
from imago_operator.spec.topic import DeletionPolicy

if TYPE_CHECKING:
    from imago_operator.contents.belonging import Claimant, Place
    from imago_operator.contents.values import SeenBackup
    from imago_operator.model.state import ConditionFinding
    from imago_operator.spec.backup import BackupSpec, BackupStatus

DONE: Final = "done"
GIVEN_UP: Final = timedelta(hours=24)
"""When one that does not succeed is not tried again."""
OVER: Final = frozenset({BackupPhase.SUCCEEDED, BackupPhase.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupLook:
    """One look at an ImagoBackup."""

    me: Claimant
    spec: BackupSpec
    status: BackupStatus
    refusal: ContentRefusal | None = None
    """Why it has no cluster."""
    listed: bool = True
    """Whether brokers told what there is."""
    told: SeenBackup | None = None
    """The backup as they tell it; None: there is none."""


@dataclass(frozen=True, slots=True)
class TakeBackup:
    """Have brokers take it, or go on with it."""


@dataclass(frozen=True, slots=True)
class DeleteBackup:
    """Have brokers delete it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupPlan:
    """What is done now: only `release`, or only `hold`; else `status` is written, then `act`."""

    status: BackupStatus
    hold: bool | None = None
    act: TakeBackup | DeleteBackup | None = None
    release: Leaving | None = None


def backup_name(me: Claimant, cluster: Place) -> str:
    """Return the name of the backup: that of its resource, with a foreign namespace before it."""
    return me.name if me.namespace == cluster[0] else f"{me.namespace}.{me.name}"


def plan(look: BackupLook, now: datetime, *, release_after_s: float) -> BackupPlan:
    """Return what is to be done now."""
    if look.me.deleting:
        return _leaving(look, now, release_after_s)
    if look.me.paused:
        text = "Paused: remove the annotation imago.dev/pause-reconciliation to continue."
        return _said(look, now, holds("Paused", "Annotation", text))
    wanted = look.spec.deletion_policy is DeletionPolicy.DELETE
    hold = None if wanted == look.me.held else wanted
    if look.status.phase in OVER:
        return BackupPlan(status=look.status, hold=hold)
    if look.refusal is not None:
        return _said(look, now, look.refusal.finding)
    if not look.listed:
        return _said(look, now, ContentRefusal("ClusterNotReady", "No broker answers.").finding)
    if look.status.phase is None:
        return _begun(look, now)
    return replace(_followed(look, now), hold=hold)


def _begun(look: BackupLook, now: datetime) -> BackupPlan:
    """Write down that it is ours before it is begun."""
    if look.told is not None:
        text = "A backup of this name is there already, and was not begun by this resource."
        failed = replace(look.status, phase=BackupPhase.FAILED)
        return _said(look, now, ContentRefusal("NameTaken", text).finding, failed)
    running = replace(look.status, phase=BackupPhase.RUNNING)
    return _said(look, now, ContentRefusal("Running", "It begins.").finding, running)


def _followed(look: BackupLook, now: datetime) -> BackupPlan:
    told = look.told
    if told is None:
        said = ContentRefusal("Running", "It begins.").finding
        return replace(_said(look, now, said), act=TakeBackup())
    status = replace(
        look.status,
        started_at=_time(told.started_ms) or look.status.started_at,
        progress=f"{100 * told.done // told.total} %" if told.total else look.status.progress,
    )
    if told.state == DONE:
        over = replace(
            status,
            phase=BackupPhase.SUCCEEDED,
            until=_time(told.until_ms),
            size_bytes=told.size,
            progress="100 %",
        )
        text = f"{told.damaged} parts of the log were out of service." if told.damaged else ""
        if told.lacks:
            text = f"{text} It {told.lacks}.".strip()
        return _said(look, now, ready("Succeeded", text), over)
    if told.error and now - parsed(look.me.created) > GIVEN_UP:
        failed = replace(status, phase=BackupPhase.FAILED)
        return _said(look, now, ContentRefusal("BackupFailed", told.error).finding, failed)
    if told.error:
        text = f"It is tried again: {told.error}"
        finding = ContentRefusal("BackupFailed", text).finding
    else:
        finding = ContentRefusal("Running", "Members send their logs.").finding
    act = None if told.state == "running" else TakeBackup()
    return replace(_said(look, now, finding, status), act=act)


def _leaving(look: BackupLook, now: datetime, release_after_s: float) -> BackupPlan:
    ours = look.status.phase in (BackupPhase.RUNNING, BackupPhase.SUCCEEDED)
    found = leave(
        look.me,
        wanted=look.spec.deletion_policy is DeletionPolicy.DELETE and ours,
        refusal=look.refusal,
        claimed=False,
        exists=None if not look.listed else look.told is not None,
        now=now,
        release_after_s=release_after_s,
    )
    if found is None:
        return BackupPlan(status=look.status)
    if found.release:
        return BackupPlan(status=look.status, release=found)
    said = _said(look, now, found.finding)
    return replace(said, act=DeleteBackup() if found.delete else None)


def refused(
    look: BackupLook, planned: BackupPlan, why: ContentRefusal, now: datetime
) -> BackupPlan:
    """Return what is said when brokers did not do what they were asked for."""
    return _said(look, now, why.finding, planned.status)


def _said(
    look: BackupLook, now: datetime, finding: ConditionFinding, status: BackupStatus | None = None
) -> BackupPlan:
    generation = look.me.generation
    said = conditions((finding,), look.status.conditions, generation, now)
    base = status or look.status
    return BackupPlan(status=replace(base, observed_generation=generation, conditions=said))


def _time(ms: int) -> str | None:
    if not ms:
        return None
    return written(datetime.fromtimestamp(ms // 1000, UTC))
