"""What a mirror is made of: its file, its process, and who may ask it.

It keeps nothing: its pod may go at any time, and two at once do no harm.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from imago_operator.manifests.common import (
    CONTAINER_SECURITY,
    LAST_WORDS,
    POD_SECURITY,
    http_get,
    resources,
    stamped,
)
from imago_operator.manifests.services import NAME_SERVICE
from imago_operator.model import names
from imago_operator.model.desired import fingerprint
from imago_operator.spec.kinds import API_VERSION, MIRROR

if TYPE_CHECKING:
    from imago_operator.contents.belonging import Claimant
    from imago_operator.manifests.common import Manifest
    from imago_operator.model.desired import OperatorInfo
    from imago_operator.spec.mirror import MirrorPlace, MirrorSpec

PORT: Final = 8085
COMPONENT: Final = "mirror"
KINDS: Final = ("ConfigMap", "Deployment", "NetworkPolicy", "Service")
_FILE: Final = "mirror.toml"
_FOLDER: Final = "/etc/imago/mirror"
_STATES: Final = {"Copying": "copying", "Suspended": "suspended", "FailedOver": "failed-over"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSide:
    """One of the clusters, as the process reaches it."""

    place: MirrorPlace
    namespace: str
    """Of the resource."""
    keys: frozenset[str] = frozenset()
    """Entries of its Secret."""

    @property
    def bootstrap(self) -> str:
        if self.place.cluster_ref is None:
            return self.place.bootstrap or ""
        reference = self.place.cluster_ref
        host = f"{names.bootstrap(reference.name)}.{reference.namespace or self.namespace}.svc"
        return f"{host}:{NAME_SERVICE}"

    def section(self, side: str) -> dict[str, str]:
        """Return what the process's file says of it."""
        found, folder = {"bootstrap": self.bootstrap}, f"/etc/imago/{side}"
        if {"username", "password"} <= self.keys:
            found["user_file"] = f"{folder}/username"
            found["password_file"] = f"{folder}/password"
        if "ca.crt" in self.keys:
            found["tls_ca_file"] = f"{folder}/ca.crt"
            if {"tls.crt", "tls.key"} <= self.keys:
                found["tls_certificate_file"] = f"{folder}/tls.crt"
                found["tls_key_file"] = f"{folder}/tls.key"
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredMirror:
    """A mirror as it is to be."""

    me: Claimant
    spec: MirrorSpec
    source: MirrorSide
    target: MirrorSide
    operator: OperatorInfo

    @property
    def object_name(self) -> str:
        return f"{self.me.name}-mirror"


def labels_of(name: str) -> dict[str, str]:
    """Return the labels by which a mirror's objects are found."""
    return {names.MIRROR_LABEL: name, names.COMPONENT_LABEL: COMPONENT}


def configuration(desired: DesiredMirror) -> str:
    """Return the process's file. A text of JSON is one of TOML as well."""
    spec = desired.spec
    mirror = {
        "name": desired.me.name,
        "topics": list(spec.topics),
        "groups": list(spec.groups),
        "state": _STATES[spec.state.value],
        "listen": f"0.0.0.0:{PORT}",
    }
    sections: dict[str, dict[str, Any]] = {
        "mirror": mirror,
        "source": desired.source.section("source"),
        "target": desired.target.section("target"),
    }
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in found.items())
        for name, found in sections.items()
    )


def objects_of(desired: DesiredMirror) -> list[Manifest]:
    """Return everything that a mirror is made of, in the order in which it is applied."""
    text = configuration(desired)
    service = {
        "selector": labels_of(desired.me.name),
        "ports": [{"name": "http", "port": PORT, "targetPort": "http"}],
    }
    operator = {
        "namespaceSelector": {
            "matchLabels": {"kubernetes.io/metadata.name": desired.operator.namespace}
        },
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": names.MANAGER}},
    }
    policy = {
        "podSelector": {"matchLabels": labels_of(desired.me.name)},
        "policyTypes": ["Ingress"],
        "ingress": [
            {
                "from": [operator, {"podSelector": {}}],
                "ports": [{"protocol": "TCP", "port": PORT}],
            }
        ],
    }
    return [
        _object(desired, "v1", "ConfigMap", {"data": {_FILE: text}}),
        _object(desired, "networking.k8s.io/v1", "NetworkPolicy", {"spec": policy}),
        _object(desired, "v1", "Service", {"spec": service}),
        _object(desired, "apps/v1", "Deployment", {"spec": _deployment(desired, text)}),
    ]


def _deployment(desired: DesiredMirror, text: str) -> dict[str, Any]:
    return {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels_of(desired.me.name)},
        "template": {
            "metadata": {
                "labels": _labels(desired),
                # Another file is another process: it reads its file when it starts.
                "annotations": {names.CONFIG_HASH: fingerprint(text)},
            },
            "spec": _pod(desired),
        },
    }


def _pod(desired: DesiredMirror) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": COMPONENT,
        "image": f"{desired.operator.broker_image}:{desired.operator.version}",
        "args": ["mirror", "run", "--config", f"{_FOLDER}/{_FILE}"],
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": http_get("/readyz", "http"),
        "livenessProbe": {**http_get("/healthz", "http"), "failureThreshold": 6},
        "resources": resources(desired.spec.resources)
        or {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [{"name": "config", "mountPath": _FOLDER, "readOnly": True}],
        **LAST_WORDS,
    }
    volumes: list[dict[str, Any]] = [{"name": "config", "configMap": {"name": desired.object_name}}]
    for side, found in (("source", desired.source), ("target", desired.target)):
        if found.place.secret_name is not None:
            secret = {"secretName": found.place.secret_name, "defaultMode": 0o440}
            volumes.append({"name": side, "secret": secret})
            mount = {"name": side, "mountPath": f"/etc/imago/{side}", "readOnly": True}
            container["volumeMounts"].append(mount)
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": POD_SECURITY,
        "containers": [container],
        "volumes": volumes,
    }


def _labels(desired: DesiredMirror) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "imago",
        "app.kubernetes.io/instance": desired.me.name,
        "app.kubernetes.io/component": COMPONENT,
        "app.kubernetes.io/part-of": "imago",
        "app.kubernetes.io/managed-by": names.MANAGER,
        **labels_of(desired.me.name),
    }


def _object(
    desired: DesiredMirror, api_version: str, kind: str, content: dict[str, Any]
) -> Manifest:
    owner = {
        "apiVersion": API_VERSION,
        "kind": MIRROR.name,
        "name": desired.me.name,
        "uid": desired.me.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    metadata = {
        "name": desired.object_name,
        "namespace": desired.me.namespace,
        "labels": _labels(desired),
        "ownerReferences": [owner],
    }
    return stamped({"apiVersion": api_version, "kind": kind, "metadata": metadata, **content})
