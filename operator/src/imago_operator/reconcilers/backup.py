"""ImagoBackup and ImagoScheduledBackup: look, plan, note, act."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from imago_operator.brokers.http import SilentError
from imago_operator.contents.backups import scheduling, taking
from imago_operator.contents.belonging import claimant_of, cluster_of
from imago_operator.contents.conditions import ContentRefusal
from imago_operator.errors import BlockedError, InvalidError, RetryError
from imago_operator.model import names
from imago_operator.observing.windows import last_time
from imago_operator.reconcilers.attending import Attendant
from imago_operator.reconcilers.claims import ClaimLookup, problem_of, status_from
from imago_operator.spec.kinds import BACKUP, SCHEDULED_BACKUP

if TYPE_CHECKING:
    from imago_operator.contents.backups.scheduling import ScheduleLook
    from imago_operator.contents.backups.taking import BackupLook, BackupPlan
    from imago_operator.contents.belonging import Manifest
    from imago_operator.contents.values import SeenBackup
    from imago_operator.errors import OperatorError
    from imago_operator.reconcile import Context, ObjectKey

SOON_S: Final = 5.0
AGAIN_S: Final = 30.0
SCHEDULE_S: Final = 20.0
"""How late a backup may begin."""


class BackupReconciler:
    """Has brokers take one backup, and delete it with its resource."""

    kind: Final = BACKUP.name

    def __init__(self, context: Context) -> None:
        self._context, self._lookup = context, ClaimLookup(context)
        self._attendant = Attendant(BACKUP, context, self._lookup)
        self._voice = self._attendant.voice

    async def reconcile(self, key: ObjectKey) -> float | None:
        return await self._attendant.attend(key, self._look, self._work)

    async def _look(self, manifest: Manifest) -> BackupLook:
        spec, status = BACKUP.read(manifest), status_from(BACKUP, manifest)
        me = claimant_of(manifest)
        refused = await self._lookup.refusal(manifest, spec.cluster_ref)
        look = taking.BackupLook(me=me, spec=spec, status=status, refusal=refused, listed=False)
        if refused or (status.phase in taking.OVER and not me.deleting):
            return look
        try:
            told = await self._told(manifest)
        except (RetryError, BlockedError, InvalidError) as error:
            refusal = None if isinstance(error, SilentError) else _refusal(error)
            return taking.BackupLook(me=me, spec=spec, status=status, refusal=refusal, listed=False)
        return taking.BackupLook(me=me, spec=spec, status=status, told=told)

    async def _told(self, manifest: Manifest) -> SeenBackup | None:
        place = cluster_of(manifest)
        reached = await self._lookup.reached(place)
        name = taking.backup_name(claimant_of(manifest), place)
        return await reached.contents.backup(reached.brokers, name)

    async def _work(self, manifest: Manifest, look: BackupLook) -> float | None:
        planned = taking.plan(
            look, self._context.now(), release_after_s=self._context.release_after_s
        )
        if planned.release is not None:
            await self._voice.release(manifest, planned.release)
            return None
        if planned.hold is not None:
            await self._voice.hold(manifest, held=planned.hold)
            return 0.0
        await self._voice.say(manifest, look.status, planned.status)
        if planned.act is not None:
            return await self._act(manifest, look, planned)
        if planned.status.phase in taking.OVER:
            return None
        return SOON_S if look.listed else AGAIN_S

    async def _act(self, manifest: Manifest, look: BackupLook, planned: BackupPlan) -> float:
        self._context.leading()
        if problem := await problem_of(self._have_done(manifest, look, planned)):
            said = taking.refused(look, planned, problem, self._context.now())
            await self._voice.say(manifest, planned.status, said.status)
            return AGAIN_S
        return AGAIN_S if look.told is not None and look.told.error else SOON_S

    async def _have_done(self, manifest: Manifest, look: BackupLook, planned: BackupPlan) -> None:
        place = cluster_of(manifest)
        reached, name = await self._lookup.reached(place), taking.backup_name(look.me, place)
        calls, epoch = reached.contents, await reached.epoch()
        if isinstance(planned.act, taking.TakeBackup):
            await calls.take_backup(
                reached.brokers, name, look.spec.bytes_a_second, operator_epoch=epoch
            )
        else:
            await calls.delete_backup(reached.brokers, name, operator_epoch=epoch)


def _refusal(error: OperatorError) -> ContentRefusal:
    """Return what brokers that answer say, without where they are."""
    if isinstance(error, RetryError):
        said = str(error).partition(": ")[2] or str(error)
        return ContentRefusal("BackupFailed", f"It is tried again: {said}")
    return ContentRefusal("BrokerRejected", str(error))


class ScheduledBackupReconciler:
    """Makes backups when they are due, and deletes old ones."""

    kind: Final = SCHEDULED_BACKUP.name

    def __init__(self, context: Context) -> None:
        self._context, self._lookup = context, ClaimLookup(context)
        self._attendant = Attendant(SCHEDULED_BACKUP, context, self._lookup)
        self._voice = self._attendant.voice

    async def reconcile(self, key: ObjectKey) -> float | None:
        return await self._attendant.attend(key, self._look, self._work)

    async def _look(self, manifest: Manifest) -> ScheduleLook:
        spec, me = SCHEDULED_BACKUP.read(manifest), claimant_of(manifest)
        due, problem = None, ""
        try:
            due = last_time(spec.schedule, spec.time_zone, self._context.now())
        except InvalidError as error:
            problem = str(error)
        found = await self._context.kube.list(BACKUP.name, me.namespace)
        return scheduling.ScheduleLook(
            me=me,
            spec=spec,
            status=status_from(SCHEDULED_BACKUP, manifest),
            refusal=await self._lookup.refusal(manifest, spec.cluster_ref),
            due=due,
            problem=problem,
            backups=tuple(
                scheduling.made_backup(one)
                for one in found
                if (one["metadata"].get("labels") or {}).get(names.SCHEDULE_LABEL) == me.name
            ),
        )

    async def _work(self, manifest: Manifest, look: ScheduleLook) -> float | None:
        planned = scheduling.plan(look, self._context.now())
        if planned.make:
            self._context.leading()
            await self._context.kube.create(scheduling.backup_of(look, planned.make))
        await self._voice.say(manifest, look.status, planned.status)
        for old in planned.gone:
            self._context.leading()
            # The backup first: its resource keeps it, so that nobody loses any with a namespace.
            if problem := await problem_of(self._delete(manifest, old.name)):
                said = scheduling.refused(look, planned, problem, self._context.now())
                await self._voice.say(manifest, planned.status, said)
                return AGAIN_S
            await self._context.kube.delete(BACKUP.name, look.me.namespace, old.name, uid=old.uid)
        return None if look.me.deleting else SCHEDULE_S

    async def _delete(self, manifest: Manifest, name: str) -> None:
        place = cluster_of(manifest)
        reached = await self._lookup.reached(place)
        epoch = await reached.epoch()
        name = taking.backup_name(replace(claimant_of(manifest), name=name), place)
        await reached.contents.delete_backup(reached.brokers, name, operator_epoch=epoch)
