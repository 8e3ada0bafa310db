"""A person deletes a namespace with a cluster and its topics while no operator runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_e2e import clusters
from imago_e2e.kube import until
from imago_e2e.operator import until_ready

if TYPE_CHECKING:
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator

NAMESPACE = "e2e-gone"
TOPICS = 100
GONE_SECONDS_MAX = 60.0


def test_nothing_holds_a_namespace_back(kube: Kube, operator: Operator, account: list[str]) -> None:
    given = clusters.manifest(
        kube.namespace(NAMESPACE),
        brokers={"replicasPerShard": 1},
        zookeeper={"managed": {"replicas": 1, "storage": {"size": "1Gi"}}},
    )
    clusters.make(kube, given)
    names = [f"topic-{number}" for number in range(TOPICS)]
    kube.apply(*(_topic(name) for name in names))
    seconds = until_ready(kube, "imt", NAMESPACE, names[-1], seconds_max=120)
    account.append(f"the last of {TOPICS} topics was ready after {seconds:.1f} s")
    operator.scale(0)
    try:
        kube.run("delete", "namespace", NAMESPACE, "--wait=false")
        gone = until(
            lambda: kube.find("namespace", NAMESPACE) is None,
            f"{NAMESPACE} is gone",
            seconds_max=GONE_SECONDS_MAX,
        )
        account.append(f"gone after {gone:.1f} s")
        kube.namespaces.remove(NAMESPACE)
    finally:
        operator.scale(1)


def _topic(name: str) -> dict[str, object]:
    return {
        "apiVersion": "imago.dev/v1alpha1",
        "kind": "ImagoTopic",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"clusterRef": {"name": "demo"}, "partitions": 1},
    }
