"""Clusters without an operator: the objects that it would apply, applied by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_operator.desired import Desired, OperatorInfo, desired_of
from imago_operator.manifests.render import render

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_e2e.kube import Kube

TOKEN = "of-no-use-outside-of-the-suite"


def apply(kube: Kube, manifest: Mapping[str, Any], version: str) -> None:
    """Apply what belongs to an ImagoCluster."""
    given = dict(manifest) | {"metadata": {**manifest["metadata"], "uid": "none"}}
    desired = desired_of(given, OperatorInfo(version=version))
    assert isinstance(desired, Desired), desired
    objects = [dict(each) for each in render(desired, range(desired.spec.brokers.shards))]
    for each in objects:
        kept = each["metadata"].items()
        each["metadata"] = {key: value for key, value in kept if key != "ownerReferences"}
    where = {"name": f"{desired.name}-admin-token", "namespace": desired.namespace}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": where}
    kube.apply(secret | {"stringData": {"token": TOKEN}}, *objects)
