"""A person takes everything away: nothing stays but claims with their key, and the definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_e2e.kube import until
from imago_e2e.operator import NAMESPACE

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator

MADE = "all,configmaps,secrets,serviceaccounts,pdb,networkpolicies,leases,imago"
GONE_SECONDS_MAX = 120.0


@pytest.mark.smoke
def test_nothing_stays_behind_but_claims(
    kube: Kube, operator: Operator, whole_until_now: Brokers
) -> None:
    brokers = whole_until_now
    kube.run("delete", "imago", "--all", "-n", brokers.namespace, "--timeout=60s")
    key = [f"secret/{brokers.name}-zookeeper-user"]
    until(lambda: _left(kube, brokers.namespace) == key, "children are gone", seconds_max=120)
    operator.uninstall()
    until(lambda: not _left(kube, NAMESPACE), "the operator is gone", seconds_max=GONE_SECONDS_MAX)
    wide = kube.get("clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/instance=imago")
    assert wide["items"] == []
    claims = kube.get("pvc", "-n", brokers.namespace, "-l", f"imago.dev/cluster={brokers.name}")
    assert len(claims["items"]) == 6
    for namespace in list(kube.namespaces):
        kube.delete_namespace(namespace)


def _left(kube: Kube, namespace: str) -> list[str]:
    """Return what there is besides what Kubernetes itself puts into each namespace."""
    said = kube.run("get", MADE, "-n", namespace, "-o", "name", "--ignore-not-found").split()
    given = {"configmap/kube-root-ca.crt", "serviceaccount/default"}
    return [name for name in said if name not in given]
