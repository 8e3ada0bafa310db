"""A cluster as the plugin's commands on call find it: two shards, three brokers that answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from imago_testing.operated.resources import resource

if TYPE_CHECKING:
    from imago_testing.kubernetes.plugin import Kube

CLUSTERS: Final = "imagoclusters.imago.dev"
SECRET: Final = "tr0ub4dor-and-3"
"""What must not be found in a report."""


def cluster_of_three(kube: Kube) -> None:
    """Put the cluster there."""
    kube.objects[CLUSTERS] = [resource()]
    kube.objects["persistentvolumeclaims"] = []
    kube.objects["pods"] = [pod(0, 0, "master"), pod(0, 1), pod(1, 0)]
    for name, role in (("demo-s0-0", "master"), ("demo-s0-1", "slave"), ("demo-s1-0", "master")):
        kube.brokers[name] = {"GET /admin/v1/status": status(role)}
        limits(kube, name)


def pod(shard: int, ordinal: int, role: str = "slave") -> dict[str, Any]:
    labels = {"cluster": "demo", "component": "broker", "shard": str(shard), "role": role}
    metadata = {
        "name": f"demo-s{shard}-{ordinal}",
        "labels": {f"imago.dev/{key}": value for key, value in labels.items()},
    }
    env = [{"name": "IMAGO__BROKER__SHARD", "value": "0"}, {"name": "MINE", "value": SECRET}]
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": "broker", "env": env}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def status(role: str, *reasons: str, share: float = 0.5, waits: str = "") -> list[Any]:
    disk = {"usedBytes": int(share * 2**34), "totalBytes": 2**34, "usedShare": share}
    return [
        200,
        {
            "role": role,
            "waitsFor": waits,
            "puts": {"accepted": not reasons, "reasons": list(reasons)},
            "gets": {"accepted": True, "reasons": []},
            "disk": {**disk, "level": "full" if share > 0.9 else "normal", "writable": share < 0.9},
        },
    ]


def limits(kube: Kube, pod: str, *found: tuple[str, dict[str, Any]]) -> None:
    """Have a broker tell whose limits there are."""
    items = [{"subject": subject, "quotas": {}, "usage": usage} for subject, usage in found]
    answer = [200, {"items": items, "next": None}]
    kube.brokers[pod]["GET /admin/v1/quotas?limit=1000&next="] = answer


def claim(
    pod: str, asks: str, has: str, conditions: list[dict[str, str]] | None = None
) -> dict[str, Any]:
    labels = {"imago.dev/cluster": "demo", "imago.dev/component": "broker"}
    return {
        "metadata": {"name": f"data-{pod}", "labels": labels},
        "spec": {"resources": {"requests": {"storage": asks}}},
        "status": {
            "phase": "Bound",
            "capacity": {"storage": has},
            "conditions": conditions or [],
        },
    }
