"""The Kubernetes objects of a pipeline.

A run is a SparkApplication (kubeflow's spark-operator makes its pods) or a Job whose pod is the
driver and makes its executors itself. Runs by schedule are one ScheduledSparkApplication or one
CronJob, which makes these. Beside it: the files that a run reads, and the claim of its checkpoint,
which belongs to no run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from imago_operator.model import names
from imago_operator.pipelines import config, pods

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.manifests.common import Manifest
    from imago_operator.pipelines.desired import DesiredPipeline

JOB: Final = "Job"
SPARK_APPLICATION: Final = "SparkApplication"
CRON_JOB: Final = "CronJob"
SCHEDULED: Final = "ScheduledSparkApplication"
BY_SCHEDULE: Final = {JOB: CRON_JOB, SPARK_APPLICATION: SCHEDULED}
KEPT: Final = 3
"""Runs of a schedule that can be looked at afterwards, good ones and failed ones."""
SPARK_API: Final = "sparkoperator.k8s.io/v1beta2"
DRIVER_CONTAINER: Final = "spark-kubernetes-driver"
EXECUTOR_CONTAINER: Final = "spark-kubernetes-executor"
POLICY_STEP: Final = "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"
"""Makes a NetworkPolicy, which accounts of drivers have no right to."""


def config_map(desired: DesiredPipeline) -> Manifest:
    """Return the ConfigMap with the files that a run reads."""
    data = {
        config.FILE: config.pipeline_file(desired),
        config.PROPERTIES: config.properties_file(config.submit_properties(desired)),
        config.EXECUTOR_POD: _json(pods.executor_pod(desired)),
    }
    made = _owned(desired, "v1", "ConfigMap", desired.config_name)
    return made | {"data": data}


def claim(desired: DesiredPipeline) -> Manifest | None:
    """Return the claim of the checkpoint; it is deleted with it if the spec says so."""
    wanted = desired.spec.checkpoint.claim
    if wanted is None:
        return None
    spec: Manifest = {
        "accessModes": [wanted.access_mode],
        "resources": {"requests": {"storage": wanted.size.text}},
    }
    if wanted.storage_class_name is not None:
        spec["storageClassName"] = wanted.storage_class_name
    made = _owned(desired, "v1", "PersistentVolumeClaim", desired.claim_name)
    if wanted.retain:
        del made["metadata"]["ownerReferences"]
    return made | {"spec": spec}


def run(desired: DesiredPipeline, kind: str, epoch: int) -> Manifest:
    """Return the object of one run, or of the runs of a schedule."""
    made = {
        JOB: job,
        SPARK_APPLICATION: spark_application,
        CRON_JOB: cron_job,
        SCHEDULED: scheduled,
    }
    return made[kind](desired, epoch)


def cron_job(desired: DesiredPipeline, epoch: int) -> Manifest:
    """Return what makes a Job at each time, never two at once; they share an epoch."""
    template = job(desired, epoch)["spec"]
    del template["suspend"]
    made = _owned(desired, "batch/v1", CRON_JOB, desired.run_name(epoch), _notes(desired, epoch))
    spec = _times(desired) | {
        "successfulJobsHistoryLimit": KEPT,
        "failedJobsHistoryLimit": KEPT,
        "jobTemplate": {"metadata": {"labels": pods.labels(desired)}, "spec": template},
    }
    return made | {"spec": spec}


def scheduled(desired: DesiredPipeline, epoch: int) -> Manifest:
    """Return what makes a SparkApplication at each time, likewise."""
    template = spark_application(desired, epoch)["spec"]
    del template["suspend"]
    made = _owned(desired, SPARK_API, SCHEDULED, desired.run_name(epoch), _notes(desired, epoch))
    limits = {"successfulRunHistoryLimit": KEPT, "failedRunHistoryLimit": KEPT}
    return made | {"spec": _times(desired) | limits | {"template": template}}


def _times(desired: DesiredPipeline) -> Manifest:
    wanted = desired.spec.schedule
    assert wanted is not None
    return {
        "schedule": wanted.cron,
        "timeZone": wanted.time_zone,
        "concurrencyPolicy": "Forbid",
        "suspend": False,
    }


def job(desired: DesiredPipeline, epoch: int) -> Manifest:
    """Return the Job of a run: one pod, never a second one. The next run is another Job."""
    template = pods.driver_pod(desired, "driver", epoch)
    template["spec"] = {
        "restartPolicy": "Never",
        "serviceAccountName": desired.spec.service_account_name,
        "enableServiceLinks": False,
        **template["spec"],
    }
    first, *others = template["spec"]["containers"]
    template["spec"]["containers"] = [pods.overlaid(_driver(desired, epoch), first), *others]
    made = _owned(desired, "batch/v1", JOB, desired.run_name(epoch), _notes(desired, epoch))
    spec = {
        "backoffLimit": 0,
        "completions": 1,
        "parallelism": 1,
        "podReplacementPolicy": "Failed",
        "suspend": False,
        "template": template,
    }
    return made | {"spec": spec}


def _driver(desired: DesiredPipeline, epoch: int) -> Manifest:
    file, arguments = pods.application(desired, epoch)
    env = [
        *pods.environment(desired, epoch),
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    conf = {
        "spark.driver.host": "$(POD_IP)",
        "spark.driver.bindAddress": "$(POD_IP)",
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
    }
    if desired.spec.schedule is None:  # Spark finds one by itself for each run of a schedule
        conf["spark.kubernetes.executor.podNamePrefix"] = desired.run_name(epoch)
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    files = desired.spec.code.py_files if desired.spec.code else ()
    options += ["--py-files", ",".join(files)] if files else []
    ports = {"driver": config.DRIVER_PORT, "blocks": config.BLOCK_PORT, "ui": config.UI_PORT}
    return {
        "image": desired.image,
        "args": [
            "driver",
            "--properties-file",
            f"{config.FOLDER}/{config.PROPERTIES}",
            *options,
            file,
            *arguments,
        ],
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "resources": {
            "requests": dict(desired.driver.requests),
            "limits": dict(desired.driver.limits),
        },
    } | {"env": env}


def spark_application(desired: DesiredPipeline, epoch: int) -> Manifest:
    """Return the SparkApplication of a run. The next run is another one.

    Its own operator never starts it again: no run may be without an epoch of its own.
    """
    file, arguments = pods.application(desired, epoch)
    conf = config.properties(desired) | {
        "spark.kubernetes.driver.pod.excludedFeatureSteps": POLICY_STEP,
    }
    for name in (
        "spark.kubernetes.container.image",
        "spark.kubernetes.namespace",
        "spark.app.name",
    ):
        del conf[name]
    for name in [name for name in conf if name.startswith(_SAID_ELSEWHERE)]:
        del conf[name]
    spec: Manifest = {
        "type": "Python",
        "pythonVersion": "3",
        "mode": "cluster",
        "sparkVersion": desired.spec.spark.version,
        "image": desired.image,
        "mainApplicationFile": file,
        "arguments": arguments,
        "sparkConf": conf,
        "restartPolicy": {"type": "Never"},
        "suspend": False,
        "driver": _driver_part(desired, epoch),
        "executor": _executor_part(desired),
    }
    if desired.spec.code is not None and desired.spec.code.py_files:
        spec["deps"] = {"pyFiles": list(desired.spec.code.py_files)}
    made = _owned(
        desired, SPARK_API, SPARK_APPLICATION, desired.run_name(epoch), _notes(desired, epoch)
    )
    return made | {"spec": spec}


_SAID_ELSEWHERE: Final = (
    "spark.executor.instances",
    "spark.executor.cores",
    "spark.executor.memory",
    "spark.driver.memory",
    "spark.kubernetes.executor.request.cores",
    "spark.kubernetes.executor.limit.cores",
)


def _driver_part(desired: DesiredPipeline, epoch: int) -> Manifest:
    template = pods.driver_pod(desired, DRIVER_CONTAINER, epoch)
    found: Manifest = {
        "cores": desired.driver.cores,
        "coreRequest": desired.driver.requests["cpu"],
        "memory": f"{desired.driver.heap_mib}m",
        "memoryOverhead": f"{desired.driver.rest_mib}m",
        "serviceAccount": desired.spec.service_account_name,
        "labels": template["metadata"]["labels"],
        "template": template,
    }
    return found | ({"coreLimit": limit} if (limit := desired.driver.limits.get("cpu")) else {})


def _executor_part(desired: DesiredPipeline) -> Manifest:
    template = pods.executor_pod(desired, EXECUTOR_CONTAINER)
    found: Manifest = {
        "instances": desired.spec.replicas,
        "cores": desired.executor.cores,
        "coreRequest": desired.executor.requests["cpu"],
        "memory": f"{desired.executor.heap_mib}m",
        "memoryOverhead": f"{desired.executor.rest_mib}m",
        "deleteOnTermination": True,
        "labels": template["metadata"]["labels"],
        "template": template,
    }
    return found | ({"coreLimit": limit} if (limit := desired.executor.limits.get("cpu")) else {})


def _notes(desired: DesiredPipeline, epoch: int) -> dict[str, str]:
    return {names.APPLIED_HASH: desired.hash, names.EPOCH: str(epoch)}


def _owned(
    desired: DesiredPipeline,
    api_version: str,
    kind: str,
    name: str,
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    metadata: Manifest = {
        "name": name,
        "namespace": desired.namespace,
        "labels": pods.labels(desired),
        "ownerReferences": [pods.owner_reference(desired)],
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _json(value: Manifest) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"
