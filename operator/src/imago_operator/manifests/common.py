"""What all objects of a cluster have: owner, labels, fingerprint, the security of their pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from imago_operator.model import names
from imago_operator.model.desired import Desired, fingerprint
from imago_operator.spec.kinds import API_VERSION
from imago_operator.spec.schema.fields import to_json

if TYPE_CHECKING:
    from imago_operator.spec.schema.common import ChildMetadata, Resources

Manifest = dict[str, Any]

USER: Final = 10001
POD_SECURITY: Final = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}

TERMINATION_LOG: Final = "/dev/termination-log"
LAST_WORDS: Final = {
    "terminationMessagePath": TERMINATION_LOG,
    # Of a process that has left no word, the end of its log.
    "terminationMessagePolicy": "FallbackToLogsOnError",
}
"""Why a container has ended is in its pod's status, where the operator reads it."""


def labels(desired: Desired, component: str, shard: int | None = None) -> dict[str, str]:
    """Return the labels of a child: those that select, and those for people."""
    shown = {
        "app.kubernetes.io/name": "imago",
        "app.kubernetes.io/instance": desired.name,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/part-of": "imago",
        "app.kubernetes.io/managed-by": names.MANAGER,
    }
    return shown | selector(desired, component, shard)


def selector(desired: Desired, component: str, shard: int | None = None) -> dict[str, str]:
    """Return the labels by which pods are found; they never change."""
    found = {names.CLUSTER_LABEL: desired.name, names.COMPONENT_LABEL: component}
    return found if shard is None else found | {names.SHARD_LABEL: str(shard)}


def owner(desired: Desired) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": "ImagoCluster",
        "name": desired.name,
        "uid": desired.resource.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def child(
    desired: Desired,
    api_version: str,
    kind: str,
    name: str,
    component: str,
    content: Mapping[str, Any],
    *,
    shard: int | None = None,
    extra: ChildMetadata | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """Return a child with all that children have; `extra` is what the user adds."""
    added = extra.labels if extra else {}
    noted = dict(extra.annotations) if extra else {}
    metadata: Manifest = {
        "name": name,
        "namespace": desired.namespace,
        "labels": {**added, **labels(desired, component, shard)},
        "ownerReferences": [owner(desired)],
    }
    if noted or annotations:
        metadata["annotations"] = noted | dict(annotations or {})
    return stamped({"apiVersion": api_version, "kind": kind, "metadata": metadata, **content})


def stamped(manifest: Manifest) -> Manifest:
    """Return the manifest with its own fingerprint on it."""
    metadata = dict(manifest["metadata"])
    noted = dict(metadata.get("annotations", {}))
    metadata["annotations"] = noted | {names.APPLIED_HASH: fingerprint(manifest)}
    return manifest | {"metadata": metadata}


def applied_hash(manifest: Manifest) -> str:
    return str(manifest["metadata"]["annotations"][names.APPLIED_HASH])


def resources(given: Resources) -> Manifest:
    found: Manifest = to_json(given)
    return {key: value for key, value in found.items() if value}


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Manifest:
    """Return `base` with the entries of `over`, level by level; lists are replaced."""
    found = dict(base)
    for key, value in over.items():
        before = found.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        found[key] = merged(before, value) if both else value  # type: ignore[arg-type]  # above
    return found


def http_get(path: str, port: str) -> Manifest:
    return {"httpGet": {"path": path, "port": port}}
