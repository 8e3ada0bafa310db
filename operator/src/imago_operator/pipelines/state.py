"""What there is of a pipeline, and what is to be done about it: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from imago_operator.model.actions import Apply

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from imago_operator.model.state import ConditionFinding
    from imago_operator.pipelines.desired import DesiredPipeline
    from imago_operator.pipelines.user import SeenPipelineUser
    from imago_operator.spec.pipeline import PipelineStatus


class RunStage(StrEnum):
    """How far a run is, by any runner."""

    SUBMITTED = "SUBMITTED"
    RUNNING = "RUNNING"
    SCHEDULED = "SCHEDULED"
    """Its next time has not come."""
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"

    @property
    def ended(self) -> bool:
        return self in (RunStage.COMPLETED, RunStage.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunObject:
    """The object of one run."""

    kind: str
    name: str
    uid: str
    epoch: int
    hash: str
    stage: RunStage
    said: str = ""
    """What its engine calls the state it is in."""
    error: str | None = None
    suspend: bool = False
    """Whether it is suspended."""
    deleting: bool = False
    began: datetime | None = None
    """When the last run of a schedule was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPod:
    """A driver's pod that has not ended."""

    name: str
    epoch: int
    gone_by: datetime | None = None
    """When it is killed at the latest, once it is being deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRecord:
    """What brokers have on record of a pipeline."""

    epoch: int
    rows: int | None = None
    lag: int | None = None
    batch: int | None = None
    at: datetime | None = None
    """When its run told so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLook:
    """One look at a pipeline."""

    desired: DesiredPipeline
    status: PipelineStatus
    now: datetime
    runs: tuple[RunObject, ...] = ()
    drivers: tuple[DriverPod, ...] = ()
    executors: int = 0
    record: PipelineRecord | None = None
    """None: no broker could tell."""
    spark_operator: bool = False
    """Whether kubeflow's spark-operator is installed."""
    account: bool = True
    """Whether the driver's ServiceAccount is there."""
    claim_bytes: int | None = None
    """What the checkpoint's claim asks for; None: there is none."""
    refusal: ConditionFinding | None = None
    """Why the pipeline has no cluster that it may use."""
    user: SeenPipelineUser | None = None
    """The ImagoUser that it is to be; None: there is none, or none is wanted."""
    former_user: SeenPipelineUser | None = None
    """One of its own that it is not any more."""

    @property
    def current(self) -> RunObject | None:
        """The newest run that stays."""
        return max((r for r in self.runs if not r.deleting), key=lambda r: r.epoch, default=None)


@dataclass(frozen=True, slots=True)
class RaiseEpoch:
    """Have brokers refuse every earlier run."""

    pipeline: str
    epoch: int


@dataclass(frozen=True, slots=True)
class StartRun:
    """Make the object of a run whose epoch is in force."""

    manifest: Mapping[str, object]
    epoch: int


@dataclass(frozen=True, slots=True)
class StopRun:
    """Delete a run; its driver ends the batch it is at."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class RemoveUser:
    """Delete the user of its own that a pipeline no longer is."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Suspend:
    """Have a run stand still: its pods go, the object stays."""

    kind: str
    name: str
    uid: str


Action = Apply | RaiseEpoch | RemoveUser | StartRun | StopRun | Suspend


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePlan:
    """The actions of now, in order; the status; when to look again by itself."""

    actions: tuple[Action, ...] = ()
    record: PipelineStatus | None = None
    """Status to be written before anything is done: what later looks rely on."""
    findings: tuple[ConditionFinding, ...] = ()
    again_s: float | None = None
