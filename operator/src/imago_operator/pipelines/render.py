"""The Kubernetes objects of a pipeline.

A run is a SparkApplication (kubeflow's spark-operator makes its pods) or a Job whose pod is the
driver and makes its executors itself. Beside it: the files that it reads, and the claim of its
checkpoint, which belongs to no run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from imago_operator import names
from imago_operator.pipelines import config, pods
from imago_operator.spec.kinds import API_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.manifests.common import Manifest
    from imago_operator.pipelines.desired import Wish

JOB: Final = "Job"
SPARK_APPLICATION: Final = "SparkApplication"
SPARK_API: Final = "sparkoperator.k8s.io/v1beta2"
DRIVER_CONTAINER: Final = "spark-kubernetes-driver"
EXECUTOR_CONTAINER: Final = "spark-kubernetes-executor"
POLICY_STEP: Final = "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"
"""Makes a NetworkPolicy, which accounts of drivers have no right to."""


def config_map(wish: Wish) -> Manifest:
    """Return the ConfigMap with the files that a run reads."""
    data = {
        config.FILE: config.pipeline_file(wish),
        config.PROPERTIES: config.properties_file(config.submit_properties(wish)),
        config.EXECUTOR_POD: _json(pods.executor_pod(wish)),
    }
    made = _owned(wish, "v1", "ConfigMap", wish.config_name)
    return made | {"data": data}


def claim(wish: Wish) -> Manifest | None:
    """Return the claim of the checkpoint; it goes with the pipeline only if that is wished."""
    wanted = wish.spec.checkpoint.claim
    if wanted is None:
        return None
    spec: Manifest = {
        "accessModes": [wanted.access_mode],
        "resources": {"requests": {"storage": wanted.size.text}},
    }
    if wanted.storage_class_name is not None:
        spec["storageClassName"] = wanted.storage_class_name
    made = _owned(wish, "v1", "PersistentVolumeClaim", wish.claim_name)
    if wanted.retain:
        del made["metadata"]["ownerReferences"]
    return made | {"spec": spec}


def run(wish: Wish, kind: str, epoch: int) -> Manifest:
    """Return the object of one run."""
    return spark_application(wish, epoch) if kind == SPARK_APPLICATION else job(wish, epoch)


def job(wish: Wish, epoch: int) -> Manifest:
    """Return the Job of a run: one pod, never a second one. The next run is another Job."""
    template = pods.driver_pod(wish, "driver", epoch)
    template["spec"] = {
        "restartPolicy": "Never",
        "serviceAccountName": wish.spec.service_account_name,
        "enableServiceLinks": False,
        **template["spec"],
    }
    first, *others = template["spec"]["containers"]
    template["spec"]["containers"] = [pods.overlaid(_driver(wish, epoch), first), *others]
    made = _owned(wish, "batch/v1", JOB, wish.run_name(epoch), _notes(wish, epoch))
    spec = {
        "backoffLimit": 0,
        "completions": 1,
        "parallelism": 1,
        "podReplacementPolicy": "Failed",
        "suspend": False,
        "template": template,
    }
    return made | {"spec": spec}


def _driver(wish: Wish, epoch: int) -> Manifest:
    file, arguments = pods.application(wish, epoch)
    env = [
        *pods.environment(wish, epoch),
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    conf = {
        "spark.driver.host": "$(POD_IP)",
        "spark.driver.bindAddress": "$(POD_IP)",
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
        "spark.kubernetes.executor.podNamePrefix": wish.run_name(epoch),
    }
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    files = wish.spec.code.py_files if wish.spec.code else ()
    options += ["--py-files", ",".join(files)] if files else []
    ports = {"driver": config.DRIVER_PORT, "blocks": config.BLOCK_PORT, "ui": config.UI_PORT}
    return {
        "image": wish.image,
        "args": [
            "driver",
            "--properties-file",
            f"{config.FOLDER}/{config.PROPERTIES}",
            *options,
            file,
            *arguments,
        ],
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "resources": {"requests": dict(wish.driver.requests), "limits": dict(wish.driver.limits)},
    } | {"env": env}


def spark_application(wish: Wish, epoch: int) -> Manifest:
    """Return the SparkApplication of a run. The next run is another one.

    Its own operator never starts it again: no run may be without an epoch of its own.
    """
    file, arguments = pods.application(wish, epoch)
    conf = config.properties(wish) | {
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
        "sparkVersion": wish.spec.spark.version,
        "image": wish.image,
        "mainApplicationFile": file,
        "arguments": arguments,
        "sparkConf": conf,
        "restartPolicy": {"type": "Never"},
        "suspend": False,
        "driver": _driver_part(wish, epoch),
        "executor": _executor_part(wish),
    }
    if wish.spec.code is not None and wish.spec.code.py_files:
        spec["deps"] = {"pyFiles": list(wish.spec.code.py_files)}
    made = _owned(wish, SPARK_API, SPARK_APPLICATION, wish.run_name(epoch), _notes(wish, epoch))
    return made | {"spec": spec}


_SAID_ELSEWHERE: Final = (
    "spark.executor.instances",
    "spark.executor.cores",
    "spark.executor.memory",
    "spark.driver.memory",
    "spark.kubernetes.executor.request.cores",
    "spark.kubernetes.executor.limit.cores",
)


def _driver_part(wish: Wish, epoch: int) -> Manifest:
    template = pods.driver_pod(wish, DRIVER_CONTAINER, epoch)
    found: Manifest = {
        "cores": wish.driver.cores,
        "coreRequest": wish.driver.requests["cpu"],
        "memory": f"{wish.driver.heap_mib}m",
        "memoryOverhead": f"{wish.driver.rest_mib}m",
        "serviceAccount": wish.spec.service_account_name,
        "labels": template["metadata"]["labels"],
        "template": template,
    }
    return found | ({"coreLimit": limit} if (limit := wish.driver.limits.get("cpu")) else {})


def _executor_part(wish: Wish) -> Manifest:
    template = pods.executor_pod(wish, EXECUTOR_CONTAINER)
    found: Manifest = {
        "instances": wish.spec.replicas,
        "cores": wish.executor.cores,
        "coreRequest": wish.executor.requests["cpu"],
        "memory": f"{wish.executor.heap_mib}m",
        "memoryOverhead": f"{wish.executor.rest_mib}m",
        "deleteOnTermination": True,
        "labels": template["metadata"]["labels"],
        "template": template,
    }
    return found | ({"coreLimit": limit} if (limit := wish.executor.limits.get("cpu")) else {})


def _notes(wish: Wish, epoch: int) -> dict[str, str]:
    return {names.APPLIED_HASH: wish.hash, names.EPOCH: str(epoch)}


def _owned(
    wish: Wish,
    api_version: str,
    kind: str,
    name: str,
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    owner = {
        "apiVersion": API_VERSION,
        "kind": "ImagoPipeline",
        "name": wish.name,
        "uid": wish.resource.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata: Manifest = {
        "name": name,
        "namespace": wish.namespace,
        "labels": pods.labels(wish),
        "ownerReferences": [owner],
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _json(value: Manifest) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"
