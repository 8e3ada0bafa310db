"""Clusters for tests of the operator: resources, and what is seen of them."""

from __future__ import annotations

from typing import Any

from imago_operator.desired import Desired, OperatorInfo, desired_of
from imago_testing.kubernetes.custom_resources import CLUSTER, manifest

OPERATOR = OperatorInfo(version="1.2.0")
UID = "11111111-2222-3333-4444-555555555555"


def resource(
    changes: dict[str, Any] | None = None, annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return an ImagoCluster as a server hands it out."""
    found = manifest(CLUSTER, changes)
    found["metadata"] |= {"namespace": "mq", "uid": UID, "generation": 3}
    found["metadata"]["annotations"] = dict(annotations or {})
    return found


def wanted(
    changes: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    operator: OperatorInfo = OPERATOR,
) -> Desired:
    """Return a cluster as it is to be."""
    found = desired_of(resource(changes, annotations), operator)
    assert isinstance(found, Desired), found
    return found
