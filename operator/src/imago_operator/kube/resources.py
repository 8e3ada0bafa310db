"""Where the API server has objects of which kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from imago_operator.spec.kinds import API_VERSION, KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Resource:
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


def _table(*rows: Resource) -> dict[str, Resource]:
    return {row.kind: row for row in rows}


SPARK: Final = "sparkoperator.k8s.io/v1beta2"
RESOURCES: Final[Mapping[str, Resource]] = _table(
    *(Resource(kind.name, API_VERSION, kind.plural) for kind in KINDS),
    Resource("ConfigMap", "v1", "configmaps"),
    Resource("Event", "v1", "events"),
    Resource("Namespace", "v1", "namespaces", namespaced=False),
    Resource("Node", "v1", "nodes", namespaced=False),
    Resource("PersistentVolume", "v1", "persistentvolumes", namespaced=False),
    Resource("PersistentVolumeClaim", "v1", "persistentvolumeclaims"),
    Resource("Pod", "v1", "pods"),
    Resource("Secret", "v1", "secrets"),
    Resource("Service", "v1", "services"),
    Resource("ServiceAccount", "v1", "serviceaccounts"),
    Resource("StatefulSet", "apps/v1", "statefulsets"),
    Resource("Job", "batch/v1", "jobs"),
    Resource("CronJob", "batch/v1", "cronjobs"),
    Resource("Lease", "coordination.k8s.io/v1", "leases"),
    Resource("NetworkPolicy", "networking.k8s.io/v1", "networkpolicies"),
    Resource("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets"),
    Resource("Role", "rbac.authorization.k8s.io/v1", "roles"),
    Resource("RoleBinding", "rbac.authorization.k8s.io/v1", "rolebindings"),
    Resource("StorageClass", "storage.k8s.io/v1", "storageclasses", namespaced=False),
    Resource("SparkApplication", SPARK, "sparkapplications"),
    Resource("ScheduledSparkApplication", SPARK, "scheduledsparkapplications"),
    Resource(
        "CustomResourceDefinition",
        "apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        namespaced=False,
    ),
)


def resource_of(manifest: Mapping[str, Any]) -> Resource:
    """Return where a manifest's object is; its kind is one of the table."""
    found = RESOURCES[manifest["kind"]]
    if found.api_version != manifest["apiVersion"]:
        raise ValueError(f"{manifest['kind']} is {found.api_version}, not {manifest['apiVersion']}")
    return found
