"""What is done about an ImagoScheduledBackup: a backup when it is due, and an end to old ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from imago_operator.contents.backups.taking import OVER
from imago_operator.contents.conditions import ContentRefusal, conditions, holds, ready
from imago_operator.model import names
from imago_operator.model.state import parsed, written
from imago_operator.spec.backup import BackupPhase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_operator.contents.belonging import Claimant, Manifest
    from imago_operator.spec.backup import ScheduledBackupSpec, ScheduledBackupStatus

NAME_TIME: Final = "%Y%m%d%H%M"


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeBackup:
    """An ImagoBackup of the schedule."""

    name: str
    uid: str
    created: datetime
    phase: BackupPhase | None = None
    deleting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleLook:
    """One look at an ImagoScheduledBackup."""

    me: Claimant
    spec: ScheduledBackupSpec
    status: ScheduledBackupStatus
    refusal: ContentRefusal | None = None
    due: datetime | None = None
    """When it last was due; None: nobody can tell, `problem` says why."""
    problem: str = ""
    backups: tuple[MadeBackup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePlan:
    """What is done now, in this order: `make` is created, `status` is written, `gone` go."""

    status: ScheduledBackupStatus
    make: str = ""
    """Name of the backup to be made; its own, so that it is made once."""
    gone: tuple[MadeBackup, ...] = ()


def plan(look: ScheduleLook, now: datetime) -> SchedulePlan:
    """Return what is to be done now."""
    if look.me.deleting:
        return SchedulePlan(status=look.status)
    if look.me.paused:
        text = "Paused: remove the annotation imago.dev/pause-reconciliation to continue."
        return SchedulePlan(status=_said(look, now, holds("Paused", "Annotation", text)))
    if look.refusal is not None:
        return SchedulePlan(status=_said(look, now, look.refusal.finding))
    if look.due is None:
        finding = ContentRefusal("InvalidSpec", look.problem).finding
        return SchedulePlan(status=_said(look, now, finding))
    gone, whole = expired(look, now), _succeeded(look)
    status = replace(look.status, last_succeeded=whole[0].name if whole else None)
    if look.spec.suspend:
        text = "It is suspended; old backups go all the same."
        return SchedulePlan(status=_said(look, now, ready("Suspended", text), status), gone=gone)
    if look.due <= _since(look):
        said = _said(look, now, ready("Waiting", ""), status)
        return SchedulePlan(status=said, gone=gone)
    if busy := [each for each in look.backups if each.phase not in OVER and not each.deleting]:
        text = f"The next one waits for the end of {busy[0].name}."
        return SchedulePlan(status=_said(look, now, ready("Waiting", text), status), gone=gone)
    name = f"{look.me.name}-{look.due.astimezone(UTC):{NAME_TIME}}"
    made = replace(status, last_backup=name, last_scheduled_at=written(look.due))
    return SchedulePlan(status=_said(look, now, ready("Waiting", ""), made), make=name, gone=gone)


def expired(look: ScheduleLook, now: datetime) -> tuple[MadeBackup, ...]:
    """Return the backups that go: all but the newest complete ones, and those of the last days.

    One that failed goes with the complete ones that are as old.
    """
    kept = _succeeded(look)[: look.spec.retention.keep]
    if not kept:
        return ()
    border = min(kept[-1].created, now - timedelta(days=look.spec.retention.days))
    if len(kept) < look.spec.retention.keep:
        return ()
    over = (each for each in look.backups if each.phase in OVER and not each.deleting)
    return tuple(each for each in over if each.created < border)


def refused(
    look: ScheduleLook, planned: SchedulePlan, why: ContentRefusal, now: datetime
) -> ScheduledBackupStatus:
    """Return what is said when brokers did not delete an old backup."""
    return _said(look, now, why.finding, planned.status)


def backup_of(look: ScheduleLook, name: str) -> Manifest:
    """Return the resource of a backup. It belongs to nobody: it outlives its schedule."""
    spec: dict[str, Any] = {"clusterRef": {"name": look.spec.cluster_ref.name}}
    if look.spec.cluster_ref.namespace:
        spec["clusterRef"]["namespace"] = look.spec.cluster_ref.namespace
    if look.spec.bytes_a_second is not None:
        spec["bytesASecond"] = look.spec.bytes_a_second
    return {
        "apiVersion": f"{names.GROUP}/v1alpha1",
        "kind": "ImagoBackup",
        "metadata": {
            "name": name,
            "namespace": look.me.namespace,
            "labels": {names.SCHEDULE_LABEL: look.me.name},
        },
        "spec": spec,
    }


def made_backup(manifest: Manifest) -> MadeBackup:
    """Return an ImagoBackup as a schedule sees it."""
    metadata, phase = manifest["metadata"], (manifest.get("status") or {}).get("phase")
    return MadeBackup(
        name=metadata["name"],
        uid=metadata["uid"],
        created=parsed(metadata["creationTimestamp"]),
        phase=BackupPhase(phase) if phase else None,
        deleting="deletionTimestamp" in metadata,
    )


def _succeeded(look: ScheduleLook) -> Sequence[MadeBackup]:
    """Return the complete ones, the newest first."""
    whole = (e for e in look.backups if e.phase is BackupPhase.SUCCEEDED and not e.deleting)
    return sorted(whole, key=lambda each: (each.created, each.name), reverse=True)


def _since(look: ScheduleLook) -> datetime:
    """Return from when on it counts that it is due: nothing is made up for from before."""
    last = look.status.last_scheduled_at
    created = parsed(look.me.created)
    return max(created, parsed(last)) if last else created


def _said(
    look: ScheduleLook, now: datetime, finding: Any, status: ScheduledBackupStatus | None = None
) -> ScheduledBackupStatus:
    generation = look.me.generation
    said = conditions((finding,), look.status.conditions, generation, now)
    return replace(status or look.status, observed_generation=generation, conditions=said)
