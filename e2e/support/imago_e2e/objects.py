"""MinIO in a pod, where stories keep backups and old messages."""

from __future__ import annotations

import base64
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from imago_e2e import machine
from imago_e2e.kube import is_ready, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_e2e.kube import Kube

NAMESPACE: Final = "e2e-objects"
POD: Final = "minio"
IMAGE: Final = "docker.io/imago/e2e-minio:1"
BUCKET: Final = "stories"
SECRET: Final = "bucket"
ENDPOINT: Final = f"http://{POD}.{NAMESPACE}.svc:9000"
_USER, _WORD = "stories", "only-of-the-stories"


def start(kube: Kube) -> None:
    """Start it, with an empty bucket."""
    kube.namespace(NAMESPACE)
    metadata = {"name": POD, "namespace": NAMESPACE, "labels": {"app": POD}}
    ports = [{"port": 9000}]
    service = {"metadata": metadata, "spec": {"selector": {"app": POD}, "ports": ports}}
    pod = {"metadata": metadata, "spec": _pod()}
    kube.apply(
        {"apiVersion": "v1", "kind": "Service", **service},
        {"apiVersion": "v1", "kind": "Pod", **pod},
    )
    what = "MinIO is ready"
    until(lambda: is_ready(kube.get("pod", POD, "-n", NAMESPACE)), what, seconds_max=120)


def _pod() -> dict[str, Any]:
    container = {
        "name": POD,
        "image": IMAGE,
        "env": [
            {"name": "MINIO_ROOT_USER", "value": _USER},
            {"name": "MINIO_ROOT_PASSWORD", "value": _WORD},
            {"name": "MINIO_UPDATE", "value": "off"},
        ],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "readinessProbe": {
            "httpGet": {"path": "/minio/health/ready", "port": 9000},
            "periodSeconds": 1,
            "failureThreshold": 600,
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "containers": [container],
        "securityContext": {"fsGroup": 10001},
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "data", "emptyDir": {}}],
    }


def place(kube: Kube, namespace: str, prefix: str) -> dict[str, str]:
    """Return what a cluster's spec says of the bucket; the Secret is made where it is."""
    data = {"access_key_id": _USER, "secret_access_key": _WORD}
    coded = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
    metadata = {"name": SECRET, "namespace": namespace}
    kube.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": coded})
    return {
        "url": f"s3://{BUCKET}/{prefix}",
        "endpoint": ENDPOINT,
        "region": "us-east-1",
        "credentialsSecretName": SECRET,
    }


def send(kube: Kube, number: signal.Signals) -> None:
    """Send a signal to its process."""
    machine.send(kube.get("pod", POD, "-n", NAMESPACE), "minio server", number)


@contextmanager
def silent(kube: Kube) -> Iterator[None]:
    """Let it answer nobody for as long as the block lasts."""
    send(kube, signal.SIGSTOP)
    try:
        yield
    finally:
        send(kube, signal.SIGCONT)


def stored(kube: Kube, prefix: str) -> int:
    """How many objects there are."""
    words = ("find", f"/data/{BUCKET}/{prefix}", "-name", "xl.meta")
    return len(kube.execute(NAMESPACE, POD, *words).split())
