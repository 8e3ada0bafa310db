"""Manifests of what belongs to a pipeline, read into plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from imago_operator.model import names
from imago_operator.pipelines.desired import number
from imago_operator.pipelines.pods import DRIVER, EXECUTOR
from imago_operator.pipelines.render import CRON_JOB, JOB, SCHEDULED
from imago_operator.pipelines.state import DriverPod, RunObject, RunStage

Manifest = Mapping[str, Any]

ENDED: Final = frozenset({"Succeeded", "Failed"})
_SPARK_STAGES: Final = {
    "RUNNING": RunStage.RUNNING,
    "SUCCEEDING": RunStage.RUNNING,
    "FAILING": RunStage.RUNNING,
    "COMPLETED": RunStage.COMPLETED,
    "FAILED": RunStage.FAILED,
    "SUBMISSION_FAILED": RunStage.FAILED,
    "SUSPENDING": RunStage.SUSPENDED,
    "SUSPENDED": RunStage.SUSPENDED,
}
"""Of a SparkApplication; all others mean that it is on its way."""


OF_RUN: Final = ("batch.kubernetes.io/job-name", "job-name", "sparkoperator.k8s.io/app-name")
"""Labels of a pod that say of which Job or SparkApplication it is."""


def runs_of(objects: Iterable[Manifest], pods: Iterable[Manifest]) -> tuple[RunObject, ...]:
    """Return the runs; what a schedule has made belongs to it, and is none of its own."""
    objects, pods = list(objects), list(pods)
    made: dict[str, list[Manifest]] = {}
    for one in objects:
        for owner in one["metadata"].get("ownerReferences") or ():
            if owner["kind"] in (CRON_JOB, SCHEDULED):
                made.setdefault(owner["uid"], []).append(one)
    children = {one["metadata"]["uid"] for some in made.values() for one in some}
    return tuple(
        _schedule_of(one, made.get(one["metadata"]["uid"], []), pods)
        if one["kind"] in (CRON_JOB, SCHEDULED)
        else run_of(one, pods)
        for one in objects
        if one["metadata"].get("uid") not in children
    )


def _schedule_of(manifest: Manifest, children: list[Manifest], pods: list[Manifest]) -> RunObject:
    """Return the runs of a schedule as one: the newest says how it goes."""
    found = replace(run_of(manifest, ()), stage=RunStage.SCHEDULED)
    if not children:
        return replace(found, stage=RunStage.SUSPENDED) if found.suspend else found
    newest = max(children, key=lambda one: str(one["metadata"].get("creationTimestamp", "")))
    name, labelled = newest["metadata"]["name"], "labels"
    mine = [
        pod
        for pod in pods
        if any((pod["metadata"].get(labelled) or {}).get(key) == name for key in OF_RUN)
        and _component(pod) == DRIVER
    ]
    stage, said, error = _reader(newest)(newest, mine)
    found = replace(found, said=said, error=error)
    found = replace(found, began=_moment(newest["metadata"].get("creationTimestamp")))
    if not stage.ended:
        return replace(found, stage=stage)
    return replace(found, stage=RunStage.SUSPENDED) if found.suspend else found


def _reader(
    manifest: Manifest,
) -> Callable[[Manifest, list[Manifest]], tuple[RunStage, str, str | None]]:
    return _job if manifest["kind"] in (JOB, CRON_JOB) else _spark_application


def run_of(manifest: Manifest, pods: Iterable[Manifest]) -> RunObject:
    """Return a run; `pods`: those of the pipeline."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    noted = metadata.get("annotations") or {}
    epoch = _whole(noted.get(names.EPOCH))
    mine = [pod for pod in pods if epoch_of(pod) == epoch and _component(pod) == DRIVER]
    stage, said, error = _reader(manifest)(manifest, mine)
    return RunObject(
        kind=manifest["kind"],
        name=metadata["name"],
        uid=metadata["uid"],
        epoch=epoch,
        hash=noted.get(names.APPLIED_HASH, ""),
        stage=stage,
        said=said,
        error=error,
        suspend=bool(spec.get("suspend")),
        deleting="deletionTimestamp" in metadata,
    )


def _job(manifest: Manifest, pods: list[Manifest]) -> tuple[RunStage, str, str | None]:
    found = manifest.get("status") or {}
    true = {c["type"]: c for c in found.get("conditions") or () if c.get("status") == "True"}
    if "Failed" in true:
        why = next((e for pod in pods if (e := _error(pod))), None)
        return RunStage.FAILED, "FAILED", why or true["Failed"].get("message")
    if "Complete" in true:
        return RunStage.COMPLETED, "COMPLETED", None
    if (manifest.get("spec") or {}).get("suspend"):
        return RunStage.SUSPENDED, "SUSPENDED", None
    phases = [_waits(pod) or _phase(pod) for pod in pods]
    if "Running" in phases:
        return RunStage.RUNNING, "RUNNING", None
    return RunStage.SUBMITTED, phases[0] if phases else "", None


def _spark_application(
    manifest: Manifest, pods: list[Manifest]
) -> tuple[RunStage, str, str | None]:
    state = (manifest.get("status") or {}).get("applicationState") or {}
    said = state.get("state") or ""
    stage = _SPARK_STAGES.get(said, RunStage.SUBMITTED)
    why = next((e for pod in pods if (e := _error(pod))), None)
    error = (why or state.get("errorMessage") or None) if stage is RunStage.FAILED else None
    return stage, said, error


def _error(pod: Manifest) -> str | None:
    """Return the last words of a container that failed, with its exit code."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    for status in statuses:
        ended = (status.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            words = str(ended.get("message") or ended.get("reason") or "").strip()
            return f"exit code {ended['exitCode']}: {words}"
    return (pod.get("status") or {}).get("message")


def _waits(pod: Manifest) -> str | None:
    """Return why a container waits, if it waits for more than its turn."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting = (status.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return str(waiting["reason"])
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason', '')}: {condition.get('message', '')}"[:300]
    return None


def drivers_of(pods: Iterable[Manifest]) -> tuple[DriverPod, ...]:
    """Return the drivers' pods that have not ended."""
    return tuple(
        DriverPod(
            name=pod["metadata"]["name"],
            epoch=epoch_of(pod),
            gone_by=_moment(pod["metadata"].get("deletionTimestamp")),
        )
        for pod in pods
        if _component(pod) == DRIVER and _phase(pod) not in ENDED
    )


def executors_of(pods: Iterable[Manifest]) -> int:
    """Return how many executors run."""
    return sum(1 for pod in pods if _component(pod) == EXECUTOR and _phase(pod) == "Running")


def claim_bytes(claim: Manifest | None) -> int | None:
    """Return what a claim asks for."""
    if claim is None:
        return None
    return int(number(str(claim["spec"]["resources"]["requests"]["storage"])))


def epoch_of(pod: Manifest) -> int:
    return _whole((pod["metadata"].get("labels") or {}).get(names.EPOCH))


def _component(pod: Manifest) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.COMPONENT_LABEL, ""))


def _phase(pod: Manifest) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0
