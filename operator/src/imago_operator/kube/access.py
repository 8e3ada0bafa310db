"""What the operator may do, asked of the API server itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.kube.failures import GoneError

if TYPE_CHECKING:
    from imago_operator.kube.http import ApiServer

PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def may(api: ApiServer, verb: str, group: str, resource: str, namespace: str) -> bool:
    """Whether we may do something with a resource; an empty namespace means all of them."""
    asked = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {k: v for k, v in asked.items() if v}},
    }
    answer = await api.call("create", "POST", PATH, what="selfsubjectaccessreviews", body=body)
    return bool(answer.get("status", {}).get("allowed"))


async def exists(api: ApiServer, group: str, version: str, plural: str) -> bool:
    """Whether the API server has such a resource."""
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        answer = await api.call("get", "GET", path, what=plural)
    except GoneError:
        return False
    return any(resource["name"] == plural for resource in answer.get("resources", ()))
