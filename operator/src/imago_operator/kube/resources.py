"""Where the API server has objects of which kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from imago_operator.spec.kinds import API_VERSION, KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A kind of objects."""

    kind: str
    api_version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str, name: str = "", sub: str = "") -> str:
        """Return the path of a collection, of an object, or of a part of one."""
        root = "/apis/" if "/" in self.api_version else "/api/"
        parts = [self.api_version]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, sub) if part]
        return root + "/".join(parts)


def _table(*rows: ResourceKind) -> dict[str, ResourceKind]:
    return {row.kind: row for row in rows}


CERT_MANAGER: Final = "cert-manager.io/v1"
SPARK: Final = "sparkoperator.k8s.io/v1beta2"
RESOURCES: Final[Mapping[str, ResourceKind]] = _table(
    *(ResourceKind(kind.name, API_VERSION, kind.plural) for kind in KINDS),
    ResourceKind("Certificate", CERT_MANAGER, "certificates"),
    ResourceKind("ConfigMap", "v1", "configmaps"),
    ResourceKind("Event", "v1", "events"),
    ResourceKind("Namespace", "v1", "namespaces", namespaced=False),
    ResourceKind("Node", "v1", "nodes", namespaced=False),
    ResourceKind("PersistentVolume", "v1", "persistentvolumes", namespaced=False),
    ResourceKind("PersistentVolumeClaim", "v1", "persistentvolumeclaims"),
    ResourceKind("Pod", "v1", "pods"),
    ResourceKind("Secret", "v1", "secrets"),
    ResourceKind("Service", "v1", "services"),
    ResourceKind("ServiceAccount", "v1", "serviceaccounts"),
    ResourceKind("ControllerRevision", "apps/v1", "controllerrevisions"),
    ResourceKind("Deployment", "apps/v1", "deployments"),
    ResourceKind("StatefulSet", "apps/v1", "statefulsets"),
    ResourceKind("Job", "batch/v1", "jobs"),
    ResourceKind("CronJob", "batch/v1", "cronjobs"),
    ResourceKind("Lease", "coordination.k8s.io/v1", "leases"),
    ResourceKind("NetworkPolicy", "networking.k8s.io/v1", "networkpolicies"),
    ResourceKind("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets"),
    ResourceKind("Role", "rbac.authorization.k8s.io/v1", "roles"),
    ResourceKind("RoleBinding", "rbac.authorization.k8s.io/v1", "rolebindings"),
    ResourceKind("StorageClass", "storage.k8s.io/v1", "storageclasses", namespaced=False),
    ResourceKind("SparkApplication", SPARK, "sparkapplications"),
    ResourceKind("ScheduledSparkApplication", SPARK, "scheduledsparkapplications"),
    ResourceKind(
        "CustomResourceDefinition",
        "apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        namespaced=False,
    ),
)


def resource_of(manifest: Mapping[str, Any]) -> ResourceKind:
    """Return where a manifest's object is; its kind is one of the table."""
    found = RESOURCES[manifest["kind"]]
    if found.api_version != manifest["apiVersion"]:
        raise ValueError(f"{manifest['kind']} is {found.api_version}, not {manifest['apiVersion']}")
    return found
