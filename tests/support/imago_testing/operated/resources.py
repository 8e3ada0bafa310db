"""Clusters for tests of the operator: resources, and what is seen of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_broker.config.loading import load
from imago_operator.manifests.brokers import pod_template
from imago_operator.manifests.config import toml
from imago_operator.model.desired import Desired, OperatorInfo, desired_of
from imago_testing.kubernetes.custom_resources import CLUSTER, manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.config import BrokerConfig

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


def told_of(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that a broker's pod, or a template of it, is told by itself."""
    containers = [one for one in pod["spec"]["containers"] if one["name"] == "broker"]
    pairs = {e["name"]: e.get("value") for one in containers for e in one.get("env", ())}
    ours = {name: said for name, said in pairs.items() if said and name.startswith("IMAGO__")}
    # What Kubernetes fills in is a pod's own.
    return {name: said for name, said in ours.items() if "$(" not in said}


def as_brokers_read(
    desired: Desired, pod: dict[str, Any] | None = None, **more: str
) -> BrokerConfig:
    """Return what a broker reads of the file that all share, in a pod of then; `more`: Secrets."""
    return load(toml(desired.settings), told_of(pod or pod_template(desired, 0)) | more)
