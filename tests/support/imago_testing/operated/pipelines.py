"""Looks at pipelines for tests, and Kubernetes and brokers in small: what an operator meets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from imago_operator.model.actions import Apply
from imago_operator.model.desired import OperatorInfo
from imago_operator.pipelines.desired import DesiredPipeline, desired_pipeline
from imago_operator.pipelines.plan import plan
from imago_operator.pipelines.render import JOB
from imago_operator.pipelines.state import (
    Action,
    DriverPod,
    PipelineLook,
    PipelineRecord,
    RaiseEpoch,
    RemoveUser,
    RunObject,
    RunStage,
    StartRun,
    StopRun,
    Suspend,
)
from imago_operator.pipelines.status import status_of
from imago_operator.spec.kinds import PIPELINE
from imago_operator.spec.pipeline import PipelineStatus
from imago_testing.kubernetes.custom_resources import manifest

if TYPE_CHECKING:
    import random

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
GRACE = timedelta(seconds=120)


def desired(changes: dict[str, Any] | None = None, **annotations: str) -> DesiredPipeline:
    """Return the pipeline `lake` of namespace `data`, with fields changed."""
    made = manifest(PIPELINE.name, changes, "lake")
    made["metadata"] |= {"namespace": "data", "uid": "u-1", "generation": 3}
    made["metadata"]["annotations"] = annotations
    return desired_pipeline(made, OperatorInfo(version="0.1.0"))


def look(changes: dict[str, Any] | None = None, **facts: Any) -> PipelineLook:
    """Return a look at it: nothing runs, and nothing ever did, unless `facts` say so."""
    found = {"status": PipelineStatus(), "record": PipelineRecord(epoch=0), "now": NOW, **facts}
    return PipelineLook(desired=desired(changes), **found)


def ran(stage: RunStage = RunStage.RUNNING, epoch: int = 4, **more: Any) -> RunObject:
    """Return a run of its spec as it is without changes."""
    known = {"kind": JOB, "name": f"lake-run-{epoch}", "uid": f"j-{epoch}", "hash": desired().hash}
    return RunObject(**{**known, "epoch": epoch, "stage": stage, **more})


@dataclass
class PipelineWorld:
    """Objects of one pipeline, drivers that start and end late, brokers that may be silent."""

    random: random.Random
    changes: dict[str, Any] = field(default_factory=dict)
    status: PipelineStatus = field(default_factory=PipelineStatus)
    epoch: int = 0
    runs: list[RunObject] = field(default_factory=list)
    drivers: list[DriverPod] = field(default_factory=list)
    now: datetime = NOW
    brokers: bool = True
    made: set[str] = field(default_factory=set)
    """Names of all runs that there ever were."""

    def look(self) -> PipelineLook:
        return look(
            self.changes,
            status=self.status,
            record=PipelineRecord(epoch=self.epoch) if self.brokers else None,
            runs=tuple(self.runs),
            drivers=tuple(self.drivers),
            now=self.now,
            claim_bytes=1 << 30,
        )

    def operate(self, seen: PipelineLook, calls: int) -> None:
        """Carry out the plan of a look, which may be old; die after so many calls."""
        found = plan(seen)
        if found.record is not None:
            self.status = found.record
        for action in found.actions[:calls]:
            if not self._do(seen, action):
                return
        if calls > len(found.actions):
            self.status = status_of(seen, found)

    def _do(self, seen: PipelineLook, action: Action) -> bool:
        """Carry out one action; False: it was refused."""
        match action:
            case RaiseEpoch(_, epoch):
                if not self.brokers or epoch < self.epoch:
                    return False
                self.epoch = epoch
            case StartRun(_, epoch):
                self._start(seen, epoch)
            case StopRun(_, _, uid):
                self.runs = [run for run in self.runs if run.uid != uid]
            case Suspend(_, _, uid):
                self.runs = [replace(r, suspend=True) if r.uid == uid else r for r in self.runs]
            case Apply(_) | RemoveUser():
                pass  # files and claims are always there, and nobody checks rights
        return True

    def _start(self, seen: PipelineLook, epoch: int) -> None:
        name = seen.desired.run_name(epoch)
        if all(run.name != name for run in self.runs):
            self.made.add(name)
            run = ran(
                RunStage.SUBMITTED, epoch, hash=seen.desired.hash, uid=f"j-{len(self.made)}-{name}"
            )
            self.runs.append(run)

    def kubelet(self) -> None:
        """Start drivers, and end those whose run is gone; one that is over does not start."""
        for run in list(self.runs):
            if run.stage is RunStage.SUBMITTED and not run.suspend:
                self._begin(run)
            elif run.suspend and not run.stage.ended and not self._driven(run):
                self._become(run, RunStage.SUSPENDED)
        alive = {run.epoch for run in self.runs if not run.suspend and not run.stage.ended}
        for driver in list(self.drivers):
            if driver.epoch in alive:
                continue
            self.drivers.remove(driver)
            if driver.gone_by is None:
                self.drivers.append(replace(driver, gone_by=self.now + GRACE))
            elif self.random.random() < 0.5:
                self.drivers.append(driver)

    def _begin(self, run: RunObject) -> None:
        if run.epoch != self.epoch:
            self._become(run, RunStage.FAILED)  # the driver has asked, and ended
            return
        if not self._driven(run):
            self.drivers.append(DriverPod(name=f"p-{run.epoch}", epoch=run.epoch))
        self._become(run, RunStage.RUNNING)

    def _driven(self, run: RunObject) -> bool:
        return any(driver.epoch == run.epoch for driver in self.drivers)

    def _become(self, run: RunObject, stage: RunStage) -> None:
        self.runs[self.runs.index(run)] = replace(run, stage=stage)

    def fail(self) -> None:
        """End a run that runs, well or not."""
        for run in self.runs:
            if run.stage is RunStage.RUNNING:
                self._become(run, self.random.choice([RunStage.FAILED, RunStage.COMPLETED]))
                self.drivers = [one for one in self.drivers if one.epoch != run.epoch]
                return

    def disturb(self) -> None:
        """Have something happen that is not the operator's doing."""
        match self.random.randrange(6):
            case 0:
                self.fail()
            case 1:
                self.changes["spec.paused"] = not self.changes.get("spec.paused", False)
            case 2:
                self.changes["spec.replicas"] = self.random.randint(1, 3)
            case 3:
                self.brokers = not self.brokers
            case _:
                self.now += timedelta(seconds=self.random.choice([1, 30, 200]))
