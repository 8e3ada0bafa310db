"""An empty cluster to begin with, whatever a former run left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_e2e import spark_operator
from imago_e2e.kube import KubeError, is_rig
from imago_e2e.operator import KINDS, NAMESPACE

if TYPE_CHECKING:
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator

PREFIX = "e2e-"
"""Of the namespaces of all stories."""


def clear(kube: Kube, operator: Operator) -> None:
    """Take away the operator and every namespace of stories.

    KubeError, and nothing is done, on somebody else's cluster where that operator has other work.
    """
    if not is_rig() and (others := _others(kube)):
        raise KubeError(f"the stories would take away the operator of {', '.join(others)}")
    found = [each["metadata"]["name"] for each in kube.get("namespaces")["items"]]
    ours = [name for name in found if name.startswith(PREFIX)]
    for name in ours:
        _release(kube, name)
    if spark_operator.NAMESPACE in ours:
        spark_operator.uninstall(kube)
    if ours:
        kube.run("delete", "namespace", *ours, "--timeout=120s", seconds_max=130)
    if NAMESPACE in found:
        operator.uninstall()
        kube.delete_namespace(NAMESPACE)
    _forget_definitions(kube)


def _definitions(kube: Kube) -> list[str]:
    known = [each["metadata"]["name"] for each in kube.get("crds")["items"]]
    return [name for name in known if name.endswith(".imago.dev")]


def _others(kube: Kube) -> list[str]:
    """Return the resources that are not of stories, `<namespace>/<name>`."""
    if not (ours := _definitions(kube)):
        return []
    found = [each["metadata"] for each in kube.get(",".join(ours), "-A")["items"]]
    strangers = (each for each in found if not each["namespace"].startswith(PREFIX))
    return [f"{each['namespace']}/{each['name']}" for each in strangers]


def _forget_definitions(kube: Kube) -> None:
    """Take the definitions away, unless somebody else has resources of ours."""
    ours = _definitions(kube)
    if ours and not kube.run("get", ",".join(ours), "-A", "-o", "name").strip():
        kube.run("delete", "crd", *ours, "--timeout=60s", seconds_max=70)


def _release(kube: Kube, namespace: str) -> None:
    """Take finalizers off, in case that nobody is there any more who does."""
    known = kube.run("api-resources", "--api-group=imago.dev", "-o", "name").split()
    for kind in KINDS:
        if f"{kind}.imago.dev" in known:
            for each in kube.run("get", kind, "-n", namespace, "-o", "name").split():
                patch = '{"metadata":{"finalizers":null}}'
                kube.run("patch", each, "-n", namespace, "--type=merge", "-p", patch)
