"""The account that drivers run under: what Spark does in its namespace to have executors.

The operator does not make it: who hands out rights must have them, and the operator has few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from imago_operator.manifests.common import Manifest

NAME: Final = "imago-spark"
RBAC: Final = "rbac.authorization.k8s.io"
RULES: Final[list[dict[str, Any]]] = [
    {
        "apiGroups": [""],
        "resources": ["pods", "configmaps", "services", "persistentvolumeclaims"],
        "verbs": [
            "get",
            "list",
            "watch",
            "create",
            "update",
            "patch",
            "delete",
            "deletecollection",
        ],
    }
]


def account(name: str = NAME, namespace: str | None = None) -> list[Manifest]:
    """Return ServiceAccount, Role and RoleBinding of drivers."""
    metadata: Manifest = {"name": name, "labels": {"app.kubernetes.io/part-of": "imago"}}
    if namespace is not None:
        metadata["namespace"] = namespace
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": RULES},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name}],
        },
    ]
