"""What is done about a pipeline in each case."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from imago_operator.model.desired import OperatorInfo
from imago_operator.model.state import ConditionFinding, written
from imago_operator.pipelines.desired import desired_pipeline
from imago_operator.pipelines.plan import SOON_S, plan
from imago_operator.pipelines.render import CRON_JOB, JOB, SCHEDULED, SPARK_APPLICATION
from imago_operator.pipelines.state import (
    DriverPod,
    PipelineLook,
    PipelinePlan,
    PipelineRecord,
    RaiseEpoch,
    RunStage,
    StartRun,
)
from imago_operator.pipelines.status import shown, status_of
from imago_operator.reasons import find
from imago_operator.spec.kinds import PIPELINE
from imago_operator.spec.pipeline import PipelineStatus, Runs
from imago_operator.spec.schema.common import ConditionStatus
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.operated.pipelines import NOW, desired, look, ran


def said(found: PipelinePlan) -> dict[str, tuple[bool | None, str]]:
    return {one.type: (one.holds, one.reason) for one in found.findings}


def kinds(found: PipelinePlan) -> list[str]:
    return [type(action).__name__ for action in found.actions]


def started(found: PipelinePlan) -> dict[str, Any]:
    start = found.actions[-1]
    assert isinstance(start, StartRun)
    return dict(start.manifest)


def test_first_run_is_allowed_before_it_is_made() -> None:
    found = plan(look(record=PipelineRecord(epoch=6), status=PipelineStatus(epoch=2)))
    assert kinds(found) == ["Apply", "Apply", "RaiseEpoch", "StartRun"]
    assert found.actions[2] == RaiseEpoch("data.lake", 7)
    assert started(found)["kind"] == JOB
    assert started(found)["metadata"]["name"] == "lake-run-7"
    assert found.record is not None
    assert (found.record.epoch, found.record.runs.attempts) == (7, 1)
    assert found.record.runs.last_started == written(NOW)
    # What was spent and not used is not used again.
    assert plan(look(status=PipelineStatus(epoch=9))).actions[2] == RaiseEpoch("data.lake", 10)


def test_spark_operator_runs_it_where_there_is_one() -> None:
    assert started(plan(look(spark_operator=True)))["kind"] == SPARK_APPLICATION
    asked = {"spec.engine": "SparkSubmit"}
    assert started(plan(look(asked, spark_operator=True)))["kind"] == JOB


HOURLY = {
    "spec.ingest": None,
    "spec.application": {"name": "report"},
    "spec.schedule": {"cron": "5 * * * *"},
}


def test_what_runs_by_schedule_is_one_object_of_whoever_runs_it() -> None:
    assert started(plan(look(HOURLY)))["kind"] == CRON_JOB
    assert started(plan(look(HOURLY, spark_operator=True)))["kind"] == SCHEDULED
    known: dict[str, Any] = {"kind": CRON_JOB, "hash": desired(HOURLY).hash}
    waits = plan(look(HOURLY, runs=(ran(RunStage.SCHEDULED, **known),)))
    assert (kinds(waits), said(waits)) == ([], {"Ready": (True, "Scheduled")})
    failed = plan(look(HOURLY, runs=(ran(RunStage.SCHEDULED, error="exit code 3: x", **known),)))
    assert said(failed) == {"Ready": (True, "Scheduled"), "Degraded": (True, "RunFailed")}
    other = plan(look(HOURLY, runs=(ran(RunStage.SCHEDULED, kind=CRON_JOB, hash="x"),)))
    assert kinds(other) == ["StopRun"], "another spec, another schedule"
    still = HOURLY | {"spec.paused": True}
    paused = plan(look(still, runs=(ran(RunStage.SCHEDULED, **known),)))
    assert kinds(paused) == ["Suspend"]


def test_claim_is_made_and_grows_and_is_left_alone() -> None:
    gib = 1 << 30
    for have, applied in ((None, 2), (gib // 2, 2), (gib, 1), (2 * gib, 1)):
        assert kinds(plan(look(claim_bytes=have))).count("Apply") == applied
    assert kinds(plan(look({"spec.checkpoint": {"path": "s3a://b/c"}}))).count("Apply") == 1


ONCE = {"spec.restart.policy": "OnFailure"}
CASES: list[tuple[dict[str, Any], dict[str, Any], list[str], dict[str, tuple[bool, str]]]] = [
    ({}, {"runs": (ran(),)}, [], {"Ready": (True, "Running")}),
    (
        {},
        {"runs": (ran(RunStage.SUBMITTED, said="Unschedulable"),)},
        [],
        {"Ready": (False, "Starting"), "Reconciling": (True, "Starting")},
    ),
    ({}, {"record": None}, [], {"Ready": (False, "ClusterNotReady")}),
    ({}, {"runs": (ran(hash="x"),), "record": None}, [], {"Ready": (False, "ClusterNotReady")}),
    (
        {},
        {"runs": (ran(hash="x"),)},
        ["StopRun"],
        {"Ready": (False, "SpecChanged"), "Reconciling": (True, "SpecChanged")},
    ),
    (
        {"spec.engine": "SparkOperator"},
        {},
        [],
        {"Ready": (False, "SparkOperatorMissing"), "Stalled": (True, "SparkOperatorMissing")},
    ),
    (
        {},
        {"account": False},
        [],
        {"Ready": (False, "AccountMissing"), "Stalled": (True, "AccountMissing")},
    ),
    (
        {},
        {"drivers": (DriverPod(name="p", epoch=3),)},
        [],
        {"Ready": (False, "Stopping"), "Reconciling": (True, "Stopping")},
    ),
    (
        {"spec.paused": True},
        {"runs": (ran(),), "drivers": (DriverPod(name="p", epoch=4),)},
        ["Suspend"],
        {"Ready": (False, "Paused"), "Paused": (False, "Paused")},
    ),
    (
        {"spec.paused": True},
        {"runs": (ran(RunStage.SUSPENDED, suspend=True),)},
        [],
        {"Ready": (False, "Paused"), "Paused": (True, "Paused")},
    ),
    ({"spec.paused": True}, {}, [], {"Ready": (False, "Paused"), "Paused": (True, "Paused")}),
    (
        {},
        {"runs": (ran(RunStage.SUSPENDED, suspend=True),)},
        ["StopRun"],
        {"Ready": (False, "Resuming"), "Reconciling": (True, "Resuming")},
    ),
    (ONCE, {"runs": (ran(RunStage.COMPLETED),)}, [], {"Ready": (True, "Completed")}),
    (
        {"spec.restart.policy": "Never"},
        {"runs": (ran(RunStage.FAILED, error="exit code 1: out of luck"),)},
        [],
        {"Ready": (False, "RunFailed"), "Stalled": (True, "RunFailed")},
    ),
    (
        {},
        {"runs": (ran(RunStage.FAILED),)},
        [],
        {
            "Ready": (False, "RunFailed"),
            "Degraded": (True, "RunFailed"),
            "Reconciling": (True, "Restarting"),
        },
    ),
    ({}, {"runs": (ran(RunStage.COMPLETED),)}, [], {"Ready": (False, "Restarting")}),
    (
        {},
        {
            "refusal": ConditionFinding(
                type="Ready", holds=False, reason="ClusterNotFound", message=""
            )
        },
        [],
        {"Ready": (False, "ClusterNotFound")},
    ),
    ({}, {"runs": (ran(epoch=3), ran())}, ["StopRun"], {"Ready": (True, "Running")}),
]


@pytest.mark.parametrize(("changes", "facts", "actions", "says"), CASES)
def test_cases(
    changes: dict[str, Any],
    facts: dict[str, Any],
    actions: list[str],
    says: dict[str, tuple[bool, str]],
) -> None:
    found = plan(look(changes, **facts))
    assert kinds(found) == actions
    assert said(found) == says
    assert found.record is None
    for type_, (_, reason) in says.items():
        assert find(PIPELINE.name, type_, reason) is not None, (type_, reason)


def test_run_that_failed_rests_before_the_next_one_and_not_too_often() -> None:
    seen = PipelineStatus(
        runs=Runs(
            last_started=written(NOW - timedelta(minutes=5)),
            last_finished=written(NOW - timedelta(seconds=10)),
            hour_began=written(NOW - timedelta(minutes=30)),
            in_hour=9,
        )
    )
    failed = look(runs=(ran(RunStage.FAILED),), status=seen)
    assert plan(failed).again_s == 20
    later = replace(failed, now=NOW + timedelta(seconds=20))
    assert kinds(plan(later)) == ["StopRun"]
    often = replace(later, status=replace(seen, runs=replace(seen.runs, in_hour=10)))
    assert said(plan(often))["Stalled"] == (True, "RestartLimit")
    assert plan(often).again_s == 30 * 60 - 20
    after = replace(often, now=NOW + timedelta(minutes=30))
    assert kinds(plan(after)) == ["StopRun"]
    begun = plan(replace(after, runs=(), now=NOW + timedelta(minutes=31)))
    assert begun.record is not None
    assert begun.record.runs.in_hour == 1


def test_driver_on_a_node_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    lost = DriverPod(name="p", epoch=3, gone_by=NOW - timedelta(seconds=61))
    assert kinds(plan(look(drivers=(lost,))))[-1] == "StartRun"
    late = replace(lost, gone_by=NOW - timedelta(seconds=59))
    assert kinds(plan(look(drivers=(late,)))) == []


def test_paused_run_is_looked_at_until_its_driver_has_ended() -> None:
    """Drivers are not watched, and the object of a run may have nothing more to say."""
    paused, still = {"spec.paused": True}, ran(RunStage.SUSPENDED, suspend=True)
    stopping = look(paused, runs=(still,), drivers=(DriverPod(name="p", epoch=4),))
    assert plan(stopping).again_s == SOON_S
    assert said(plan(stopping))["Paused"] == (False, "Paused")
    assert plan(look(paused, runs=(still,))).again_s is None


def test_what_is_completed_stays_so_without_its_object() -> None:
    status = PipelineStatus(state="COMPLETED", applied_hash=desired(ONCE).hash)
    assert said(plan(look(ONCE, status=status))) == {"Ready": (True, "Completed")}
    other = replace(status, applied_hash="another spec")
    assert kinds(plan(look(ONCE, status=other)))[-1] == "StartRun"


def test_nothing_is_done_to_what_is_left_alone() -> None:
    alone = desired(None, **{"imago.dev/pause-reconciliation": "true"})
    found = plan(
        PipelineLook(
            desired=alone, status=PipelineStatus(), now=NOW, record=PipelineRecord(epoch=0)
        )
    )
    assert (found.actions, said(found)) == ((), {"Ready": (False, "Annotation")})


def test_only_what_a_run_depends_on_changes_its_hash() -> None:
    same = desired().hash
    assert desired({"spec.paused": True}).hash == same
    assert desired({"spec.restart.backoff": "5s"}).hash == same
    assert desired({"spec.checkpoint.claim.size": "2Gi"}).hash == same
    made = manifest(PIPELINE.name, None, "lake")
    made["metadata"] |= {"namespace": "data", "uid": "u-1"}
    assert desired_pipeline(made, OperatorInfo(version="0.2.0")).hash == same
    for changes in (
        {"spec.replicas": 2},
        {"spec.source.topics": ["orders", "more"]},
        {"spec.config": {"trigger": "available-now"}},
        {"spec.spark": {"conf": {"spark.ui.enabled": "false"}}},
    ):
        assert desired(changes).hash != same
    assert desired(None, **{"imago.dev/restart": "now"}).hash != same


def test_status_says_how_far_it_is() -> None:
    seen = look(runs=(ran(),), record=PipelineRecord(epoch=4, rows=123_456, lag=2500), executors=2)
    status = status_of(seen, plan(seen))
    assert (status.rows, status.lag, status.replicas) == (123_456, "2.5k", 2)
    assert (status.state, status.observed_generation) == ("RUNNING", 3)
    assert status.engine_ref is not None
    assert (status.engine_ref.kind, status.engine_ref.name) == (JOB, "lake-run-4")
    assert [(c.type, c.status) for c in status.conditions] == [("Ready", ConditionStatus.TRUE)]
    silent = replace(seen, status=status, record=None, now=NOW + timedelta(minutes=1))
    unknown = replace(status, lag=None)
    assert status_of(silent, plan(silent)) == unknown
    silent = replace(silent, status=unknown, now=NOW + timedelta(minutes=2))
    assert status_of(silent, plan(silent)) == unknown, "no news, no write"


@pytest.mark.parametrize("stage", [s for s in RunStage if s is not RunStage.RUNNING])
def test_a_lag_is_not_shown_once_no_run_reports_it(stage: RunStage) -> None:
    told = PipelineRecord(epoch=4, rows=9, lag=0, at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    runs = look(runs=(ran(),), record=told)
    before = status_of(runs, plan(runs))
    assert (before.lag, before.reported_at) == ("0", "2026-01-02T03:04:00Z")
    for after in (
        replace(runs, status=before, runs=()),
        replace(runs, status=before, runs=(replace(runs.runs[0], stage=stage),)),
        replace(runs, status=before, record=None),
        replace(runs, status=before, runs=(replace(runs.runs[0], epoch=5),)),
        replace(runs, status=replace(before, epoch=4), runs=(replace(runs.runs[0], epoch=5),)),
    ):
        shown = status_of(after, plan(after))
        assert shown.lag is None
        assert shown.reported_at == before.reported_at, "it is a date"


def test_what_a_pipeline_of_the_same_name_told_before_does_not_count() -> None:
    left = PipelineRecord(epoch=4, rows=123_456, lag=7)
    fresh = look(record=left)
    assert status_of(fresh, plan(fresh)).rows is None
    begun = look(record=left, runs=(ran(epoch=5),), status=PipelineStatus(epoch=5))
    assert status_of(begun, plan(begun)).lag is None, "brokers do not know of the epoch yet"
    told = replace(begun, record=PipelineRecord(epoch=5, rows=2, lag=0))
    assert (status_of(told, plan(told)).rows, status_of(told, plan(told)).lag) == (2, "0")


def test_end_of_a_run_is_noted_once() -> None:
    failed = look(runs=(ran(RunStage.FAILED, error="exit code 5: over"),))
    ended = status_of(failed, plan(failed))
    assert (ended.runs.last_error, ended.runs.last_finished) == ("exit code 5: over", written(NOW))
    again = replace(failed, status=ended, now=NOW + timedelta(seconds=7))
    assert status_of(again, plan(again)).runs.last_finished == written(NOW)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1k"), (1234, "1.2k"), (12_000_000, "12M"), (10**15, ">999T")],
)
def test_lag_is_short(count: int, text: str) -> None:
    assert shown(count) == text


def test_any_lag_fits_its_field() -> None:
    assert max(len(shown(10**power - 1)) for power in range(1, 20)) <= 8
