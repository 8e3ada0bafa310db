"""ImagoPipelines on objects in memory: runs come, fail, stand still, and come again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from imago_operator.errors import BlockedError, RetryError
from imago_operator.pipelines.state import PipelineRecord
from imago_operator.reconcile import ObjectKey
from imago_operator.reconcilers.pipeline import PipelineReconciler
from imago_operator.spec.kinds import PIPELINE
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.kubernetes.fake_kube_port import FakeKubePort, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SPARK = "SparkApplication"
ENGINES = ("Job", SPARK)
SCHEDULES = ("CronJob", "ScheduledSparkApplication")


class DeadError(Exception):
    """The operator's process has ended."""


@dataclass
class Brokers:
    """What brokers know of pipelines."""

    epochs: dict[str, int] = field(default_factory=dict)
    silent: bool = False
    rows: int | None = None

    async def record(self, brokers: Sequence[str], name: str) -> PipelineRecord:  # noqa: ARG002  any
        if self.silent:
            raise RetryError("nobody answers", delay_s=1)
        epoch = self.epochs.get(name, 0)
        return PipelineRecord(epoch=epoch, rows=self.rows, lag=7, batch=12)

    async def raise_pipeline(
        self,
        brokers: Sequence[str],  # noqa: ARG002  any
        name: str,
        epoch: int,
        *,
        operator_epoch: int,
    ) -> None:
        assert operator_epoch == 7
        if epoch < self.epochs.get(name, 0):
            raise BlockedError("another is in force", until="read again")
        self.epochs[name] = epoch


@dataclass
class Mortal(FakeKubePort):
    """Ends the operator before one of its changes."""

    changes_left: int = 1 << 30

    def _spend(self) -> None:
        self.changes_left -= 1
        if self.changes_left < 0:
            raise DeadError

    async def create(self, made: Mapping[str, Any]) -> None:
        self._spend()
        await super().create(made)

    async def apply(self, made: Mapping[str, Any]) -> Mapping[str, Any]:
        self._spend()
        return await super().apply(made)

    async def apply_status(self, made: Mapping[str, Any]) -> None:
        self._spend()
        await super().apply_status(made)


@dataclass
class Rig:
    stage: Stage
    brokers: Brokers
    kube: Mortal
    reconciler: PipelineReconciler

    def runs(self) -> list[dict[str, Any]]:
        return [one for (kind, _, _), one in self.kube.objects.items() if kind in ENGINES]

    @property
    def run(self) -> dict[str, Any]:
        (found,) = self.runs()
        return found

    def be(self, **status: Any) -> None:
        """Have the run's engine say something."""
        self.run["status"] = status

    async def settle(self) -> None:
        await self.stage.settle(self.reconciler, "lake")

    def status(self) -> dict[str, Any]:
        return self.kube.status(PIPELINE.name, "lake")

    def ready(self) -> tuple[str, str] | None:
        return self.kube.condition(PIPELINE.name, "lake")


def rig_of(kube: Mortal, brokers: Brokers, *, spark_operator: bool = False) -> Rig:
    kube.forbidden = frozenset() if spark_operator else frozenset({SPARK})
    stage = Stage(pipelines=brokers, kube=kube)
    return Rig(stage, brokers, kube, PipelineReconciler(stage.context()))


@pytest.fixture
def rig() -> Rig:
    kube = Mortal()
    kube.put(manifest("ImagoCluster"))
    kube.put({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "imago-spark"}})
    kube.put(manifest(PIPELINE.name, {"spec.restart": {"backoff": "30s"}}, "lake"))
    return rig_of(kube, Brokers())


RUNNING = {"conditions": [], "active": 1}
DEAD = {"conditions": [{"type": "Failed", "status": "True", "message": "backoff limit"}]}


def driver(rig: Rig, phase: str = "Running", **status: Any) -> None:
    """Have the driver's pod of the run there."""
    template = rig.run["spec"]["template"]
    name = f"{rig.run['metadata']['name']}-pod"
    made = {"kind": "Pod", "apiVersion": "v1", "metadata": {**template["metadata"], "name": name}}
    rig.kube.put(made | {"status": {"phase": phase, **status}})


async def test_pipeline_runs_and_says_how_far_it_is(rig: Rig) -> None:
    await rig.settle()
    assert rig.run["metadata"]["name"] == "lake-run-1"
    assert rig.brokers.epochs == {"mq.lake": 1}
    assert rig.ready() == ("False", "Starting")
    assert ("ConfigMap", "mq", "lake-pipeline") in rig.kube.objects
    assert ("PersistentVolumeClaim", "mq", "lake-checkpoint") in rig.kube.objects
    rig.be(**RUNNING)
    driver(rig)
    rig.brokers.rows = 1200
    await rig.settle()
    assert rig.ready() == ("True", "Running")
    status = rig.status()
    assert (status["rows"], status["lag"], status["epoch"]) == (1200, "7", 1)
    assert (status["driver"], status["commit"]) == ("lake-run-1-pod", 12)
    assert status["engineRef"]["name"] == "lake-run-1"
    written = rig.kube.status_writes
    await rig.settle()
    assert rig.kube.status_writes == written, "nothing new, nothing written"


async def test_failed_run_is_followed_by_one_of_its_own_epoch(rig: Rig) -> None:
    await rig.settle()
    ended = {"exitCode": 1, "message": "no such topic"}
    driver(rig, "Failed", containerStatuses=[{"state": {"terminated": ended}}])
    rig.be(**DEAD)
    await rig.settle()
    assert rig.ready() == ("False", "RunFailed")
    assert rig.status()["runs"]["lastError"] == "exit code 1: no such topic"
    rig.stage.pass_time(31)
    await rig.settle()
    assert rig.run["metadata"]["name"] == "lake-run-2"
    assert rig.brokers.epochs == {"mq.lake": 2}
    assert rig.status()["runs"]["attempts"] == 2


async def test_next_run_waits_for_the_driver_before(rig: Rig) -> None:
    await rig.settle()
    driver(rig)
    rig.kube.edit(PIPELINE.name, "lake", {"replicas": 3})
    for _ in range(3):
        await rig.reconciler.reconcile(ObjectKey(PIPELINE.name, "mq", "lake"))
        rig.stage.pass_time(2)
    assert rig.runs() == []
    assert rig.ready() == ("False", "Stopping")
    assert rig.brokers.epochs == {"mq.lake": 1}
    rig.kube.remove("Pod", "lake-run-1-pod")
    await rig.settle()
    assert rig.run["metadata"]["name"] == "lake-run-2"


async def test_paused_pipeline_stands_still_and_goes_on_with_a_new_run(rig: Rig) -> None:
    await rig.settle()
    rig.kube.edit(PIPELINE.name, "lake", {"paused": True})
    await rig.settle()
    assert rig.run["spec"]["suspend"] is True
    assert rig.kube.condition(PIPELINE.name, "lake", "Paused") == ("True", "Paused")
    rig.kube.edit(PIPELINE.name, "lake", {"paused": False})
    await rig.settle()
    assert rig.run["metadata"]["name"] == "lake-run-2"
    assert rig.run["spec"]["suspend"] is False


async def test_without_brokers_nothing_is_started_and_nothing_stopped(rig: Rig) -> None:
    rig.brokers.silent = True
    await rig.settle()
    assert rig.ready() == ("False", "ClusterNotReady")
    assert rig.runs() == []
    rig.brokers.silent = False
    await rig.settle()
    rig.brokers.silent = True
    rig.kube.edit(PIPELINE.name, "lake", {"replicas": 3})
    await rig.settle()
    assert rig.run["metadata"]["name"] == "lake-run-1"


async def test_spark_operator_is_used_when_it_is_there(rig: Rig) -> None:
    other = rig_of(rig.kube, rig.brokers, spark_operator=True)
    await other.settle()
    assert other.run["kind"] == SPARK
    other.be(applicationState={"state": "RUNNING"})
    await other.settle()
    assert other.ready() == ("True", "Running")
    assert other.status()["engineRef"]["kind"] == SPARK
    other.be(applicationState={"state": "FAILED", "errorMessage": "driver pod failed"})
    await other.settle()
    assert other.status()["runs"]["lastError"] == "driver pod failed"
    other.stage.pass_time(31)
    await other.settle()
    assert other.run["metadata"]["name"] == "lake-run-2"


@dataclass
class ScheduledRun:
    """A run that a schedule has made, and the pod of its driver."""

    rig: Rig
    kind: str
    schedule: dict[str, Any]
    number: int

    @property
    def name(self) -> str:
        return f"lake-run-1-{self.number}"

    def begin(self) -> None:
        given = self.schedule["metadata"]
        owner = {"kind": self.schedule["kind"], "name": given["name"], "uid": given["uid"]}
        metadata: dict[str, Any] = {"name": self.name, "uid": f"c-{self.number}"}
        metadata |= {"labels": given["labels"], "ownerReferences": [owner]}
        metadata |= {"creationTimestamp": f"2026-11-21T1{self.number}:05:00Z"}
        status = {"applicationState": {"state": "RUNNING"}} if self.kind == SPARK else RUNNING
        api = "sparkoperator.k8s.io/v1beta2" if self.kind == SPARK else "batch/v1"
        made = {"kind": self.kind, "apiVersion": api, "metadata": metadata}
        self.rig.kube.put(made | {"status": status})
        self._pod("Running")

    def end(self, fails: bool) -> None:
        ended = {"exitCode": 3, "message": "differences"} if fails else {"exitCode": 0}
        self._pod("Failed" if fails else "Succeeded", [{"state": {"terminated": ended}}])
        found = next(one for key, one in self.rig.kube.objects.items() if key[2] == self.name)
        good = {"conditions": [{"type": "Complete", "status": "True"}]}
        found["status"] = DEAD if fails else good
        if self.kind == SPARK:
            word = "FAILED" if fails else "COMPLETED"
            found["status"] = {"applicationState": {"state": word}}

    def _pod(self, phase: str, containers: Sequence[Any] = ()) -> None:
        word = "sparkoperator.k8s.io/app-name" if self.kind == SPARK else "job-name"
        labels = {"imago.dev/component": "pipeline-driver", "imago.dev/epoch": "1"}
        labels |= {"imago.dev/pipeline": "lake", word: self.name}
        made = {"metadata": {"name": f"p-{self.number}", "labels": labels}}
        status = {"phase": phase, "containerStatuses": containers}
        self.rig.kube.put({"kind": "Pod", "apiVersion": "v1", **made, "status": status})


@pytest.mark.parametrize("engine", [0, 1])
async def test_runs_of_a_schedule_are_its_own_and_the_newest_says_how_it_goes(
    rig: Rig, engine: int
) -> None:
    report = {"application": {"name": "report"}, "ingest": None}
    rig.kube.edit(PIPELINE.name, "lake", report | {"schedule": {"cron": "5 * * * *"}})
    rig = rig_of(rig.kube, rig.brokers, spark_operator=bool(engine))
    await rig.settle()
    schedule = rig.kube.objects[SCHEDULES[engine], "mq", "lake-run-1"]
    assert rig.ready() == ("True", "Scheduled")
    for number, fails in enumerate((False, True)):
        run = ScheduledRun(rig, ENGINES[engine], schedule, number)
        run.begin()
        await rig.settle()
        assert rig.ready() == ("True", "Running") or not engine
        assert rig.status()["driver"] == f"p-{number}"
        run.end(fails)
        await rig.settle()
        assert rig.ready() == ("True", "Scheduled")
        assert "driver" not in rig.status()
    assert len(rig.runs()) == 2, "nobody removed them"
    assert rig.status()["runs"]["lastError"] == "exit code 3: differences"
    assert rig.status()["runs"]["lastStarted"].startswith("2026-11-21T11:05:00")
    assert rig.kube.condition(PIPELINE.name, "lake", "Degraded") == ("True", "RunFailed")


@pytest.mark.parametrize(
    ("changes", "removed", "reason"),
    [
        ({"engine": "SparkOperator"}, None, "SparkOperatorMissing"),
        ({}, ("ServiceAccount", "imago-spark"), "AccountMissing"),
        ({}, ("ImagoCluster", "demo"), "ClusterNotFound"),
        ({"clusterRef": {"name": "demo"}, "ingest": None}, None, "InvalidSpec"),
        ({"resources": {"driver": {"limits": {"memory": "1Mi"}}}}, None, "InvalidSpec"),
    ],
)
async def test_what_keeps_it_from_running_is_said(
    rig: Rig, changes: dict[str, Any], removed: tuple[str, str] | None, reason: str
) -> None:
    rig.kube.edit(PIPELINE.name, "lake", changes)
    if removed is not None:
        rig.kube.remove(*removed)
    await rig.settle()
    assert rig.ready() == ("False", reason)
    assert rig.runs() == []


@pytest.mark.parametrize("changes", range(8))
async def test_operator_that_dies_at_any_change_leaves_one_run_at_most(
    rig: Rig, changes: int
) -> None:
    rig.kube.changes_left = changes
    try:
        await rig.settle()
    except DeadError:
        assert len(rig.runs()) <= 1
    rig.kube.changes_left = 1 << 30
    after = rig_of(rig.kube, rig.brokers)
    await after.settle()
    epoch = int(after.run["metadata"]["annotations"]["imago.dev/epoch"])
    assert rig.brokers.epochs == {"mq.lake": epoch}
    assert after.status()["epoch"] == epoch


async def test_two_operators_at_once_leave_the_run_that_may_write(rig: Rig) -> None:
    other = rig_of(rig.kube, rig.brokers)
    await rig.reconciler.reconcile(ObjectKey(PIPELINE.name, "mq", "lake"))
    await other.reconciler.reconcile(ObjectKey(PIPELINE.name, "mq", "lake"))
    await other.settle()
    assert rig.brokers.epochs["mq.lake"] == int(
        rig.run["metadata"]["annotations"]["imago.dev/epoch"]
    )
