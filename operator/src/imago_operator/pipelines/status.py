"""The status of a pipeline."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from imago_operator.contents.conditions import conditions
from imago_operator.model import names
from imago_operator.model.state import written
from imago_operator.pipelines.pods import EXECUTOR
from imago_operator.pipelines.render import CRON_JOB, JOB, SPARK_API
from imago_operator.pipelines.state import RunStage
from imago_operator.spec.pipeline import EngineRef

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_operator.model.state import ConditionFinding
    from imago_operator.pipelines.state import PipelineLook, PipelinePlan, PipelineRecord, RunObject
    from imago_operator.spec.pipeline import PipelineStatus, Runs

ERROR_MAX: Final = 1024
_UNITS: Final = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def status_of(
    look: PipelineLook, planned: PipelinePlan, said: Iterable[ConditionFinding] = ()
) -> PipelineStatus:
    """Return the status after a look; `said`: findings beside those of the plan."""
    before = planned.record or look.status
    generation = look.desired.resource.generation
    current = look.current
    record = _told(look)
    found = conditions([*planned.findings, *said], before.conditions, generation, look.now)
    return replace(
        before,
        observed_generation=generation,
        conditions=found,
        engine_ref=_engine(current) or before.engine_ref,
        state=_state(look, planned),
        runs=_runs(look, before.runs),
        driver=_driver(look, current),
        commit=before.commit if record is None or record.batch is None else record.batch,
        rows=before.rows if record is None or record.rows is None else record.rows,
        lag=_lag(record, current),
        reported_at=before.reported_at
        if record is None or record.at is None
        else written(record.at.replace(second=0)),
        replicas=look.executors,
        selector=f"{names.PIPELINE_LABEL}={look.desired.name},{names.COMPONENT_LABEL}={EXECUTOR}",
    )


def _told(look: PipelineLook) -> PipelineRecord | None:
    """Return what a run of this resource has told; one that had its name before may have, too."""
    record, current = look.record, look.current
    ours = {look.status.epoch, *([] if current is None else [current.epoch])}
    return record if record is not None and record.epoch in ours else None


def _lag(record: PipelineRecord | None, current: RunObject | None) -> str | None:
    """Return how far the run that goes on is behind, as it told itself; None: none tells."""
    runs = current is not None and current.stage is RunStage.RUNNING
    if record is None or record.lag is None or current is None or not runs:
        return None
    return shown(record.lag) if record.epoch == current.epoch else None


def _driver(look: PipelineLook, current: RunObject | None) -> str | None:
    """Return the pod whose log is that of the run."""
    mine = [one.name for one in look.drivers if current and one.epoch == current.epoch]
    return max(mine, default=None)


def _engine(current: RunObject | None) -> EngineRef | None:
    if current is None:
        return None
    version = "batch/v1" if current.kind in (JOB, CRON_JOB) else SPARK_API
    return EngineRef(api_version=version, kind=current.kind, name=current.name)


def _state(look: PipelineLook, planned: PipelinePlan) -> str | None:
    if look.current is not None:
        return look.current.stage.value
    # What has completed stays so though its object is gone.
    return None if planned.record is not None else look.status.state


def _runs(look: PipelineLook, runs: Runs) -> Runs:
    """Note the end of the run that began last, once."""
    current = look.current
    if current is not None and current.began is not None:
        last = (current.error or runs.last_error or "")[:ERROR_MAX] or None
        return replace(runs, last_started=written(current.began), last_error=last)
    if current is None or not current.stage.ended:
        return runs
    known = runs.last_finished is not None and (runs.last_started or "") <= runs.last_finished
    finished = runs.last_finished if known else written(look.now)
    failed = current.stage is RunStage.FAILED
    error = (current.error or "cause unknown")[:ERROR_MAX] if failed else runs.last_error
    return replace(runs, last_finished=finished, last_error=error)


def shown(count: int) -> str:
    """Return a number in a few digits: 950, 1.2k, 35M."""
    for unit, letter in _UNITS:
        if count >= 1000 * unit:
            return f">999{letter}"
        if count >= unit:
            return f"{count / unit:.1f}".removesuffix(".0") + letter
    return str(count)
