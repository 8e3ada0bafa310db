"""What an operator makes of an edit that it refuses."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from imago_operator.model.accepted import in_force
from imago_operator.model.desired import Desired
from imago_operator.spec.kinds import API_VERSION, CLUSTER

if TYPE_CHECKING:
    from imago_operator.model.desired import UnreadableSpec
    from imago_operator.spec.cluster.cluster_status import ClusterStatus


def wrongly_edited(
    desired: Desired | UnreadableSpec, status: ClusterStatus
) -> Desired | UnreadableSpec:
    """Return what the operator makes of an edit that it refuses: all that it has is the status."""
    assert isinstance(desired, Desired)
    return _in_force(desired, status.accepted_spec, status.version, status.cluster_id)


@lru_cache(maxsize=64)
def _in_force(
    desired: Desired, kept: str | None, version: str | None, cluster_id: str | None
) -> Desired | UnreadableSpec:
    who = desired.resource
    metadata = {"name": who.name, "namespace": who.namespace, "uid": who.uid}
    status = {"acceptedSpec": kept, "version": version, "clusterId": cluster_id}
    spec = {**who.spec, "zookeeperr": {}}
    wrong = {
        "apiVersion": API_VERSION,
        "kind": CLUSTER.name,
        "metadata": {**metadata, "generation": 4, "annotations": dict(who.annotations)},
        "spec": spec,
        "status": {name: said for name, said in status.items() if said is not None},
    }
    return in_force(wrong, desired.operator)
