"""What is done about a pipeline: a pure function of one look at it.

The order that keeps two runs from writing at the same time: the object of every earlier run is
gone and its driver has ended, or had its time; the next epoch is written into the status, then
brokers receive it, which shuts out whatever still runs; then the run is made that has it. A
crash in between wastes an epoch, nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from imago_operator.model import names
from imago_operator.model.actions import Apply
from imago_operator.model.state import ConditionFinding, parsed, written
from imago_operator.pipelines import render, user
from imago_operator.pipelines.state import (
    Action,
    PipelinePlan,
    RaiseEpoch,
    RemoveUser,
    RunStage,
    StartRun,
    StopRun,
    Suspend,
)
from imago_operator.spec.pipeline import Engine, RestartPolicy

if TYPE_CHECKING:
    from imago_operator.pipelines.state import PipelineLook, RunObject

SOON_S: Final = 2.0
SILENT_S: Final = 10.0
WATCH_S: Final = 10.0
"""How often a run's progress is read."""
PATIENCE: Final = timedelta(seconds=60)
"""A driver that should have been killed that long ago is on a node that does not answer."""
HOUR: Final = timedelta(hours=1)
WHERE: Final = "manifests/spark/rbac.yaml"


def plan(look: PipelineLook) -> PipelinePlan:
    """Return what is to be done now."""
    if look.desired.resource.deleting:
        return PipelinePlan()  # its owner references take all but the claim along
    if look.desired.resource.paused:
        return PipelinePlan(
            findings=(_not_ready("Annotation", "imago.dev/pause-reconciliation is set."),)
        )
    current = look.current
    olds = tuple(_stop(run) for run in look.runs if not run.deleting and run is not current)
    decided = _decide(look, current)
    return replace(decided, actions=(*olds, *decided.actions))


def _decide(look: PipelineLook, current: RunObject | None) -> PipelinePlan:
    if look.refusal is not None:
        return PipelinePlan(findings=(look.refusal,), again_s=SILENT_S)
    if look.desired.spec.paused:
        return _paused(look, current)
    if current is None:
        return _without_run(look)
    if current.stage is RunStage.SUSPENDED:
        return _replace(look, current, "Resuming", "It goes on with a new run.")
    if current.stage.ended:
        return _ended(look, current)
    if current.hash != look.desired.hash:
        return _replace(
            look, current, "SpecChanged", "The run of the former spec is being stopped."
        )
    return _active(look, current)


def _paused(look: PipelineLook, current: RunObject | None) -> PipelinePlan:
    actions: tuple[Action, ...] = ()
    if current is not None and not current.stage.ended and not current.suspend:
        actions = (Suspend(current.kind, current.name, current.uid),)
    stopping = bool(look.drivers)
    text = "Its driver is stopping." if stopping else "Nothing runs; the checkpoint stays."
    said = (
        ConditionFinding(type="Paused", holds=not stopping, reason="Paused", message=text),
        _not_ready("Paused", "spec.paused is true."),
    )
    return PipelinePlan(
        actions=actions, findings=said, again_s=SOON_S if actions or stopping else None
    )


def _active(look: PipelineLook, current: RunObject) -> PipelinePlan:
    if current.stage is RunStage.SCHEDULED:
        return PipelinePlan(findings=_scheduled(look, current), again_s=WATCH_S)
    if current.stage is RunStage.RUNNING:
        text = f"Run {current.epoch} by {current.kind} {current.name}."
        return PipelinePlan(findings=(_ready("Running", text),), again_s=WATCH_S)
    text = f"{current.kind} {current.name}: {current.said or 'waiting for its pod'}."
    return PipelinePlan(
        findings=(_not_ready("Starting", text), _busy("Starting", text)), again_s=WATCH_S
    )


def _scheduled(look: PipelineLook, current: RunObject) -> tuple[ConditionFinding, ...]:
    """Say when it runs, and how the last run ended."""
    when = look.desired.spec.schedule
    times = f" ({when.cron}, {when.time_zone})" if when else ""
    ready = _ready("Scheduled", f"{current.kind} {current.name} runs it{times}.")
    if current.error is None:
        return (ready,)
    text = f"The last run failed: {current.error}"
    return ready, ConditionFinding(type="Degraded", holds=True, reason="RunFailed", message=text)


def _replace(look: PipelineLook, current: RunObject, reason: str, text: str) -> PipelinePlan:
    """Stop a run so that another can begin; not while nobody could allow the other one."""
    if look.record is None:
        return _silent()
    said = (_not_ready(reason, text), _busy(reason, text))
    return PipelinePlan(actions=(_stop(current),), findings=said, again_s=SOON_S)


def _ended(look: PipelineLook, current: RunObject) -> PipelinePlan:
    policy = look.desired.spec.restart.policy
    if current.hash != look.desired.hash:
        return _replace(look, current, "SpecChanged", "The spec has changed since the last run.")
    if current.stage is RunStage.COMPLETED and policy is not RestartPolicy.ALWAYS:
        return PipelinePlan(findings=(_ready("Completed", "It has completed."),))
    failed = current.stage is RunStage.FAILED
    text = f"Run {current.epoch} failed: {current.error or 'cause unknown'}"
    if failed and policy is RestartPolicy.NEVER:
        return PipelinePlan(findings=(_not_ready("RunFailed", text), _stalled("RunFailed", text)))
    said = _retried(text) if failed else (_not_ready("Restarting", "It ended; a new run starts."),)
    if (left := _hour_left(look)) is not None:
        limit = look.desired.spec.restart.max_per_hour
        text = f"{limit} starts in an hour; the next one in {left:.0f} s. {text if failed else ''}"
        stalled = (_not_ready("RestartLimit", text), _stalled("RestartLimit", text))
        return PipelinePlan(findings=stalled, again_s=left)
    if (left := _backoff_left(look)) > 0:
        return PipelinePlan(findings=said, again_s=left)
    return replace(_replace(look, current, "Restarting", "A new run starts."), findings=said)


def _retried(text: str) -> tuple[ConditionFinding, ...]:
    degraded = ConditionFinding(type="Degraded", holds=True, reason="RunFailed", message=text)
    return _not_ready("RunFailed", text), degraded, _busy("Restarting", "A new run starts.")


def _backoff_left(look: PipelineLook) -> float:
    """Return for how long it rests yet, from when its end was first seen."""
    finished = _finished_at(look)
    rest = timedelta(seconds=look.desired.spec.restart.backoff.seconds)
    return (finished + rest - look.now).total_seconds()


def _finished_at(look: PipelineLook) -> datetime:
    runs = look.status.runs
    known = runs.last_finished is not None and (runs.last_started or "") <= runs.last_finished
    return parsed(runs.last_finished) if known and runs.last_finished else look.now


def _hour_left(look: PipelineLook) -> float | None:
    """Return how long no run may be started any more; None: one may."""
    runs = look.status.runs
    if runs.hour_began is None or runs.in_hour < look.desired.spec.restart.max_per_hour:
        return None
    left = (parsed(runs.hour_began) + HOUR - look.now).total_seconds()
    return left if left > 0 else None


def _without_run(look: PipelineLook) -> PipelinePlan:
    desired, status = look.desired, look.status
    done = status.state == RunStage.COMPLETED and status.applied_hash == desired.hash
    if done and desired.spec.restart.policy is not RestartPolicy.ALWAYS:
        return PipelinePlan(findings=(_ready("Completed", "It has completed."),))
    if (kind := _kind(look)) is None:
        text = "There is no kind SparkApplication: install spark-operator, or set engine: Auto."
        said = (_not_ready("SparkOperatorMissing", text), _stalled("SparkOperatorMissing", text))
        return PipelinePlan(findings=said, again_s=SILENT_S)
    if not look.account:
        account = desired.spec.service_account_name
        text = (
            f"There is no ServiceAccount {account}: kubectl apply -n {desired.namespace} -f {WHERE}"
        )
        said = (_not_ready("AccountMissing", text), _stalled("AccountMissing", text))
        return PipelinePlan(findings=said, again_s=SILENT_S)
    if look.record is None:
        return _silent()
    if waits := [driver.name for driver in look.drivers if not _is_lost(look, driver.gone_by)]:
        text = f"Pod {waits[0]} of an earlier run has not ended."
        return PipelinePlan(
            findings=(_not_ready("Stopping", text), _busy("Stopping", text)), again_s=SOON_S
        )
    return _without_user(look) or _start(look, kind, look.record.epoch)


def _without_user(look: PipelineLook) -> PipelinePlan | None:
    """Make the user that a run is to be, or wait for it; None: the run can begin.

    An own one that is no longer wanted goes once no run needs it.
    """
    desired, seen = look.desired, look.user
    if look.former_user is not None:
        gone = RemoveUser(look.former_user.name, look.former_user.uid)
        text = f"ImagoUser {gone.name} is no longer needed."
        said = (_not_ready("UserNotReady", text), _busy("UserNotReady", text))
        return PipelinePlan(actions=(gone,), findings=said, again_s=SOON_S)
    if desired.spec.user is None:
        return None
    name = user.object_name(desired)
    if user.is_own(desired):
        if seen is not None and not seen.owned:
            text = f"ImagoUser {name} belongs to somebody else: name it in spec.user, or remove it."
            said = (_not_ready("UserNotOurs", text), _stalled("UserNotOurs", text))
            return PipelinePlan(findings=said, again_s=SILENT_S)
        wanted = user.own_user(desired)
        if seen is None or seen.hash != wanted["metadata"]["annotations"][names.APPLIED_HASH]:
            text = f"ImagoUser {name} is made."
            said = (_not_ready("UserNotReady", text), _busy("UserNotReady", text))
            return PipelinePlan(actions=(Apply(wanted),), findings=said, again_s=SOON_S)
    if desired.access is not None:
        return None
    why = (seen.said or "it is not ready yet") if seen else "there is none"
    text = f"ImagoUser {name}: {why}"
    said = (_not_ready("UserNotReady", text), _busy("UserNotReady", text))
    return PipelinePlan(findings=said, again_s=SOON_S)


def _kind(look: PipelineLook) -> str | None:
    """Return the kind of a run's object; None: what is asked for is not there."""
    found = _engine(look)
    by_schedule = look.desired.spec.schedule is not None
    return render.BY_SCHEDULE[found] if found and by_schedule else found


def _engine(look: PipelineLook) -> str | None:
    match look.desired.spec.engine:
        case Engine.SPARK_SUBMIT:
            return render.JOB
        case Engine.SPARK_OPERATOR:
            return render.SPARK_APPLICATION if look.spark_operator else None
        case Engine.AUTO:
            return render.SPARK_APPLICATION if look.spark_operator else render.JOB


def _is_lost(look: PipelineLook, gone_by: datetime | None) -> bool:
    return gone_by is not None and look.now - gone_by > PATIENCE


def _start(look: PipelineLook, kind: str, stands: int) -> PipelinePlan:
    desired, status, now = look.desired, look.status, written(look.now)
    epoch = max(stands, status.epoch) + 1
    began = status.runs.hour_began
    same_hour = began is not None and look.now - parsed(began) < HOUR
    runs = replace(
        status.runs,
        attempts=status.runs.attempts + 1,
        last_started=now,
        hour_began=began if same_hour else now,
        in_hour=status.runs.in_hour + 1 if same_hour else 1,
    )
    record = replace(status, epoch=epoch, runs=runs, applied_hash=desired.hash, state=None)
    text = f"Run {epoch} is started."
    return PipelinePlan(
        record=record,
        actions=(
            Apply(render.config_map(desired)),
            *_claim(look),
            RaiseEpoch(desired.fence, epoch),
            StartRun(render.run(desired, kind, epoch), epoch),
        ),
        findings=(_not_ready("Starting", text), _busy("Starting", text)),
        again_s=SOON_S,
    )


def _claim(look: PipelineLook) -> tuple[Action, ...]:
    """Make the checkpoint's claim, or have it grow."""
    wanted = look.desired.spec.checkpoint.claim
    claim = render.claim(look.desired)
    if wanted is None or claim is None:
        return ()
    enough = look.claim_bytes is not None and look.claim_bytes >= wanted.size.bytes
    return () if enough else (Apply(claim),)


def _stop(run: RunObject) -> StopRun:
    return StopRun(run.kind, run.name, run.uid)


def _silent() -> PipelinePlan:
    text = "No broker answers, so earlier runs cannot be shut out."
    return PipelinePlan(findings=(_not_ready("ClusterNotReady", text),), again_s=SILENT_S)


def _ready(reason: str, message: str) -> ConditionFinding:
    return ConditionFinding(type="Ready", holds=True, reason=reason, message=message)


def _not_ready(reason: str, message: str) -> ConditionFinding:
    return ConditionFinding(type="Ready", holds=False, reason=reason, message=message)


def _busy(reason: str, message: str) -> ConditionFinding:
    return ConditionFinding(type="Reconciling", holds=True, reason=reason, message=message)


def _stalled(reason: str, message: str) -> ConditionFinding:
    return ConditionFinding(type="Stalled", holds=True, reason=reason, message=message)
