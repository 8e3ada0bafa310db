"""What is watched, and which object of ours to reconcile when something of it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from imago_operator.model import names
from imago_operator.reconcile import ObjectKey
from imago_operator.spec.kinds import API_VERSION, GROUP, KINDS, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MANAGED: Final = f"app.kubernetes.io/managed-by={names.MANAGER}"


class Watched(NamedTuple):
    """A kind of objects that is watched."""

    kind: str
    group: str
    version: str
    plural: str
    labels: str = ""
    """Label selector; empty: all of them."""
    optional: bool = False
    """Whether it may be left out where there is no such kind, or no right to it."""


OWN: Final = tuple(Watched(kind.name, GROUP, VERSION, kind.plural) for kind in KINDS)
CHILDREN: Final = (
    Watched("Pod", "", "v1", "pods", names.CLUSTER_LABEL),
    Watched("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims", names.CLUSTER_LABEL),
    Watched("StatefulSet", "apps", "v1", "statefulsets", names.CLUSTER_LABEL),
    *(
        Watched(kind, group, "v1", plural, names.CLUSTER_LABEL, optional=True)
        for kind, group, plural in (
            ("ConfigMap", "", "configmaps"),
            ("Service", "", "services"),
            ("ServiceAccount", "", "serviceaccounts"),
            ("PodDisruptionBudget", "policy", "poddisruptionbudgets"),
            ("NetworkPolicy", "networking.k8s.io", "networkpolicies"),
        )
    ),
    Watched("Job", "batch", "v1", "jobs", MANAGED, optional=True),
    Watched("CronJob", "batch", "v1", "cronjobs", MANAGED, optional=True),
    *(
        Watched(kind, "sparkoperator.k8s.io", "v1beta2", f"{kind.lower()}s", MANAGED, optional=True)
        for kind in ("SparkApplication", "ScheduledSparkApplication")
    ),
)
"""What changes by itself, or by people who put their hands on it."""


def key_of(kind: str, manifest: Mapping[str, Any]) -> ObjectKey:
    """Return the key of an object of one of our kinds."""
    metadata = manifest["metadata"]
    return ObjectKey(kind, metadata["namespace"], metadata["name"])


def owners_of(manifest: Mapping[str, Any]) -> Iterable[ObjectKey]:
    """Yield the objects of ours that an object belongs to: by its owners, and by its label."""
    metadata = manifest["metadata"]
    namespace = metadata.get("namespace", "")
    found = {
        ObjectKey(owner["kind"], namespace, owner["name"])
        for owner in metadata.get("ownerReferences") or ()
        if owner["apiVersion"] == API_VERSION
    }
    if cluster := (metadata.get("labels") or {}).get(names.CLUSTER_LABEL):
        found.add(ObjectKey("ImagoCluster", namespace, cluster))
    return sorted(found)
