"""ImagoPipeline: look, plan, keep in mind, act, say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from imago_operator.contents.belonging import cluster_of
from imago_operator.contents.connecting import has_certificates
from imago_operator.errors import BlockedError, InvalidError, RetryError
from imago_operator.model import names
from imago_operator.model.actions import Apply
from imago_operator.model.state import ConditionFinding
from imago_operator.pipelines import reading, state, user
from imago_operator.pipelines.desired import PipelineAccess, desired_pipeline
from imago_operator.pipelines.plan import plan
from imago_operator.pipelines.render import CRON_JOB, JOB, SCHEDULED, SPARK_APPLICATION
from imago_operator.pipelines.status import status_of
from imago_operator.reconcilers.attending import Attendant
from imago_operator.reconcilers.claims import ClaimLookup, status_from
from imago_operator.spec.kinds import PIPELINE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_operator.pipelines.desired import DesiredPipeline
    from imago_operator.pipelines.state import PipelineLook
    from imago_operator.pipelines.user import SeenPipelineUser
    from imago_operator.reconcile import Context, ObjectKey, Reached

SILENT_S: Final = 10.0
SUSPENDED: Final = {"spec": {"suspend": True}}


class PipelineReconciler:
    """Brings one pipeline one step on."""

    kind: Final = PIPELINE.name

    def __init__(self, context: Context) -> None:
        self._context, self._kube = context, context.kube
        self._lookup = ClaimLookup(context)
        self._attendant = Attendant(PIPELINE, context, self._lookup)
        self._voice = self._attendant.voice

    async def reconcile(self, key: ObjectKey) -> float | None:
        return await self._attendant.attend(key, self._look, self._work)

    async def _look(self, manifest: Mapping[str, Any]) -> PipelineLook:
        desired = desired_pipeline(manifest, self._context.operator)
        labels = f"{names.PIPELINE_LABEL}={desired.name}"
        pods = await self._kube.list("Pod", desired.namespace, labels=labels)
        jobs = [
            *await self._kube.list(JOB, desired.namespace, labels=labels),
            *await self._kube.list(CRON_JOB, desired.namespace, labels=labels),
        ]
        applications = await self._applications(desired.namespace, labels)
        refused = await self._lookup.refusal(manifest, desired.spec.cluster_ref)
        seen, former = await self._users(desired)
        if seen is not None and seen.secret and not refused:
            cluster = await self._lookup.cluster(desired.cluster)
            encrypted = cluster is not None and has_certificates(cluster)
            access = PipelineAccess(secret=seen.secret, encrypted=encrypted, shows=seen.shows)
            desired = replace(desired, access=access)
        return state.PipelineLook(
            desired=desired,
            status=status_from(PIPELINE, manifest),
            now=self._context.now(),
            runs=reading.runs_of([*jobs, *(applications or ())], pods),
            drivers=reading.drivers_of(pods),
            executors=reading.executors_of(pods),
            record=None if refused else await self._record(desired),
            spark_operator=applications is not None,
            account=await self._has("ServiceAccount", desired, desired.spec.service_account_name),
            claim_bytes=reading.claim_bytes(await self._claim(desired)),
            refusal=None if refused is None else refused.finding,
            user=seen,
            former_user=former,
        )

    async def _users(
        self, desired: DesiredPipeline
    ) -> tuple[SeenPipelineUser | None, SeenPipelineUser | None]:
        """Return the user that a pipeline is to be, and one of its own that it is not to be."""
        own = await self._user(desired, user.own_name(desired))
        former = own if own is not None and own.owned else None
        if desired.spec.user is None:
            return None, former
        if user.is_own(desired):
            return own, None
        return await self._user(desired, user.object_name(desired)), former

    async def _user(self, desired: DesiredPipeline, name: str) -> SeenPipelineUser | None:
        found = await self._kube.get("ImagoUser", desired.namespace, name)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return None
        seen = user.seen_user(found, desired.resource.uid)
        about = cluster_of(found) == desired.cluster
        text = f"it is a user of {'/'.join(cluster_of(found))}"
        return seen if about else replace(seen, secret="", said=text)

    async def _applications(
        self, namespace: str, labels: str
    ) -> Sequence[Mapping[str, Any]] | None:
        """Return kubeflow's objects; None where there is no such kind, or no right to it."""
        try:
            return [
                *await self._kube.list(SPARK_APPLICATION, namespace, labels=labels),
                *await self._kube.list(SCHEDULED, namespace, labels=labels),
            ]
        except BlockedError:
            return None

    async def _record(self, desired: DesiredPipeline) -> state.PipelineRecord | None:
        try:
            reached = await self._reached(desired)
            return await reached.pipelines.record(reached.brokers, desired.fence)
        except (RetryError, InvalidError):
            return None

    async def _reached(self, desired: DesiredPipeline) -> Reached:
        return await self._lookup.reached(desired.cluster)

    async def _has(self, kind: str, desired: DesiredPipeline, name: str) -> bool:
        found = await self._kube.list(kind, desired.namespace)
        return any(one["metadata"]["name"] == name for one in found)

    async def _claim(self, desired: DesiredPipeline) -> Mapping[str, Any] | None:
        labels = f"{names.PIPELINE_LABEL}={desired.name}"
        found = await self._kube.list("PersistentVolumeClaim", desired.namespace, labels=labels)
        return next((one for one in found if one["metadata"]["name"] == desired.claim_name), None)

    async def _work(self, manifest: Mapping[str, Any], look: PipelineLook) -> float | None:
        planned = plan(look)
        if planned.record is not None:
            # The epoch is spent before anything is done with it.
            await self._voice.write(manifest, planned.record)
        said: list[ConditionFinding] = []
        again = planned.again_s
        for action in planned.actions:
            try:
                await self._do(look.desired, action)
            except RetryError as error:
                said.append(_finding("Ready", "ClusterNotReady", str(error), holds=False))
            except (BlockedError, InvalidError) as error:
                said += _refused(action, error)
            else:
                continue
            again = SILENT_S
            break
        await self._voice.say(manifest, look.status, status_of(look, planned, said))
        return again

    async def _do(self, desired: DesiredPipeline, action: state.Action) -> None:
        self._context.leading()
        match action:
            case Apply(made):
                await self._kube.apply(made)
            case state.RaiseEpoch(name, epoch):
                reached = await self._reached(desired)
                await reached.pipelines.raise_pipeline(
                    reached.brokers, name, epoch, operator_epoch=await reached.epoch()
                )
            case state.StartRun(made):
                await self._kube.create(made)
            case state.RemoveUser(name, uid):
                await self._kube.delete("ImagoUser", desired.namespace, name, uid=uid)
            case state.StopRun(kind, name, uid):
                await self._kube.delete(kind, desired.namespace, name, uid=uid)
            case state.Suspend(kind, name, uid):
                await self._kube.patch(kind, desired.namespace, name, uid=uid, patch=SUSPENDED)


def _refused(action: state.Action, error: BlockedError | InvalidError) -> list[ConditionFinding]:
    if isinstance(action, state.RaiseEpoch):
        return [_finding("Ready", "BrokerRejected", str(error), holds=False)]
    reason = error.reason if isinstance(error, BlockedError) else "PermissionDenied"
    return [_finding("Stalled", reason, str(error), holds=True)]


def _finding(type_: str, reason: str, message: str, *, holds: bool) -> ConditionFinding:
    return ConditionFinding(type=type_, holds=holds, reason=reason, message=message)
