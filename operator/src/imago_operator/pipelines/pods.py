"""Pods of drivers and executors, as far as they are the same for every runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from imago_operator.manifests.common import CONTAINER_SECURITY
from imago_operator.model import names
from imago_operator.pipelines.config import CHECKPOINT, FILE, FOLDER
from imago_operator.spec.kinds import API_VERSION

if TYPE_CHECKING:
    from imago_operator.manifests.common import Manifest
    from imago_operator.pipelines.desired import DesiredPipeline, PipelineAccess

USER: Final = 185
CREDENTIALS: Final = "/etc/imago/user"
GRACE_S: Final = 120
"""A run ends its batch when it is stopped."""
DRIVER: Final = "pipeline-driver"
EXECUTOR: Final = "pipeline-executor"
POD_SECURITY: Final = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}


def owner_reference(desired: DesiredPipeline) -> Manifest:
    """Return what has an object go with its pipeline."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ImagoPipeline",
        "name": desired.name,
        "uid": desired.resource.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def labels(desired: DesiredPipeline, component: str = "pipeline") -> dict[str, str]:
    """Return the labels of what belongs to a pipeline."""
    return {
        "app.kubernetes.io/name": "imago",
        "app.kubernetes.io/instance": desired.name,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/part-of": "imago",
        "app.kubernetes.io/managed-by": names.MANAGER,
        names.PIPELINE_LABEL: desired.name,
        names.COMPONENT_LABEL: component,
    }


def driver_pod(desired: DesiredPipeline, container: str, epoch: int) -> Manifest:
    """Return the template of a driver's pod; `container`: the name of its container."""
    spec: Manifest = {
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": POD_SECURITY,
        "containers": [
            {
                "name": container,
                "env": environment(desired, epoch),
                "securityContext": CONTAINER_SECURITY,
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [*_scratch_mounts(), *_mounts(desired, driver=True)],
            }
        ],
        "volumes": [*_scratch(), *_volumes(desired, driver=True)],
    }
    template = {
        "metadata": {
            "labels": {**labels(desired, DRIVER), names.EPOCH: str(epoch)},
        },
        "spec": spec,
    }
    return overlaid(template, desired.spec.spark.driver_template)


def executor_pod(desired: DesiredPipeline, container: str = "executor") -> Manifest:
    """Return the template of the executors' pods; they have no token."""
    template = {
        "metadata": {"labels": labels(desired, EXECUTOR)},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": POD_SECURITY,
            "containers": [
                {
                    "name": container,
                    "securityContext": CONTAINER_SECURITY,
                    "volumeMounts": [*_scratch_mounts(), *_mounts(desired, driver=False)],
                }
            ],
            "volumes": [*_scratch(), *_volumes(desired, driver=False)],
        },
    }
    return overlaid(template, desired.spec.spark.executor_template)


def environment(desired: DesiredPipeline, epoch: int) -> list[Manifest]:
    """Return what source and sink of any application find in the driver's environment."""
    return [
        {"name": "IMAGO_PIPELINE", "value": desired.fence},
        {"name": "IMAGO_EPOCH", "value": str(epoch)},
        {"name": "IMAGO_CONFIG", "value": f"{FOLDER}/{FILE}"},
        *_credentials(desired.access),
    ]


def _credentials(access: PipelineAccess | None) -> list[Manifest]:
    """Return who it is and where its secrets are: files that are replaced with what they hold."""
    if access is None:
        return []
    named = {"secretKeyRef": {"name": access.secret, "key": "username"}}
    found: list[Manifest] = [
        {"name": "IMAGO_USER", "valueFrom": named},
        {"name": "IMAGO_PASSWORD_FILE", "value": f"{CREDENTIALS}/password"},
    ]
    if access.shows:
        found = [
            {"name": "IMAGO_TLS_CERTIFICATE", "value": f"{CREDENTIALS}/tls.crt"},
            {"name": "IMAGO_TLS_KEY", "value": f"{CREDENTIALS}/tls.key"},
        ]
    if access.encrypted:
        found.append({"name": "IMAGO_TLS_CA", "value": f"{CREDENTIALS}/ca.crt"})
    return found


def application(desired: DesiredPipeline, epoch: int) -> tuple[str, list[str]]:
    """Return the file to run, and its arguments."""
    if desired.spec.code is not None:
        return desired.spec.code.main_file, list(desired.spec.code.args)
    arguments = ["--config", f"{FOLDER}/{FILE}", "--epoch", str(epoch)]
    if (known := desired.spec.application) is not None:
        return f"local:///opt/app/{known.name}.py", [*arguments, *known.args]
    return "local:///opt/app/ingest.py", arguments


def overlaid(base: Mapping[str, Any], over: Mapping[str, Any]) -> Manifest:
    """Return `base` with the entries of `over`; of lists, those with the same name are merged."""
    found = dict(base)
    for key, value in over.items():
        before = found.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            found[key] = overlaid(before, value)
        elif _named(before) and _named(value):
            found[key] = _merged_lists(before, value)
        else:
            found[key] = value
    return found


def _named(value: Any) -> bool:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return is_list and all(isinstance(one, Mapping) and "name" in one for one in value)


def _merged_lists(before: Any, over: Any) -> list[Any]:
    known = {one["name"]: one for one in before}
    for one in over:
        known[one["name"]] = overlaid(known.get(one["name"], {}), one)
    return list(known.values())


def _scratch() -> list[Manifest]:
    return [{"name": "work", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]


def _scratch_mounts() -> list[Manifest]:
    return [
        {"name": "work", "mountPath": "/opt/spark/work-dir"},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  the pod's own
    ]


def _keeps_state(desired: DesiredPipeline) -> bool:
    """Whether executors write to the checkpoint, too: what code of others does, nobody knows."""
    return desired.spec.code is not None


def _volumes(desired: DesiredPipeline, *, driver: bool) -> list[Manifest]:
    found: list[Manifest] = []
    if driver:
        found.append({"name": "pipeline", "configMap": {"name": desired.config_name}})
    if desired.spec.checkpoint.claim is not None and (driver or _keeps_state(desired)):
        claim = {"claimName": desired.claim_name}
        found.append({"name": "checkpoint", "persistentVolumeClaim": claim})
    if desired.access is not None:
        found.append({"name": "credentials", "secret": {"secretName": desired.access.secret}})
    for volume in desired.spec.volumes:
        claim = {"claimName": volume.claim_name}
        found.append({"name": f"user-{volume.name}", "persistentVolumeClaim": claim})
    return found


def _mounts(desired: DesiredPipeline, *, driver: bool) -> list[Manifest]:
    found: list[Manifest] = []
    if driver:
        found.append({"name": "pipeline", "mountPath": FOLDER, "readOnly": True})
    if desired.spec.checkpoint.claim is not None and (driver or _keeps_state(desired)):
        found.append({"name": "checkpoint", "mountPath": CHECKPOINT})
    if desired.access is not None:
        found.append({"name": "credentials", "mountPath": CREDENTIALS, "readOnly": True})
    for volume in desired.spec.volumes:
        found.append({"name": f"user-{volume.name}", "mountPath": volume.mount_path})  # noqa: PERF401
    return found
