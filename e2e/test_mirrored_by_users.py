"""A mirror between two clusters that check rights and encrypt: it is who its Secrets say, no more.

It has the rights that docs/mirror.md lists. What it lacks is said with the cluster that refuses it,
and copying begins once it is given; nothing of it is started again for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from imago_e2e import clusters
from imago_e2e.kube import until
from imago_e2e.operator import condition, defects, until_ready

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator

HOME, AWAY = "e2e-closed-home", "e2e-closed-away"
TOPIC, NOTES, GROUP = "orders", "imago-mirror-dr", "imago-mirror-dr"
COUNT: Final = 20
SECONDS_MAX: Final = 120.0
_OURS: Final = {"apiVersion": "imago.dev/v1alpha1"}


@pytest.fixture(scope="module")
def closed(kube: Kube, operator: Operator) -> Iterator[tuple[Brokers, Brokers]]:
    assert operator.installed()
    given = [
        clusters.manifest(
            kube.namespace(name),
            brokers={"replicasPerShard": 1},
            zookeeper={"managed": {"replicas": 1, "storage": {"size": "1Gi"}}},
            authorization={"type": "Simple"},
            tls={"clients": "Permissive", "members": "Enforcing"},
            allowedNamespaces={"from": "All"},
        )
        for name in (HOME, AWAY)
    ]
    kube.apply(*given)
    yield clusters.make(kube, given[0]), clusters.make(kube, given[1])
    for name in (HOME, AWAY):
        kube.delete_namespace(name)


def test_a_mirror_has_the_rights_of_its_users_at_both_sides(
    closed: tuple[Brokers, Brokers], kube: Kube, account: list[str]
) -> None:
    home, away = closed
    home.make_topic(TOPIC)
    _send(home, "before")
    cluster = _allow("Cluster", "", "describe")
    source = [_allow("Topic", TOPIC, "describe", "subscribe"), cluster]
    _be(kube, home, "mirror-source", [*source, _allow("Group", GROUP, "subscribe", "create")])
    everything = ("describe", "create", "alter", "publish", "subscribe")
    target = [_allow("Topic", NOTES, *everything), _allow("Group", GROUP, "subscribe"), cluster]
    _be(kube, away, "mirror-target", target)
    kube.apply(_mirror())
    took = until(lambda: _reason(kube) == "TargetRefused", "it is refused", seconds_max=SECONDS_MAX)
    account.append(f"{took:.0f} s: {condition(kube, 'imm', AWAY, 'dr', 'Ready')['message']}")
    pods = kube.pods(AWAY, "imago.dev/mirror=dr")

    _be(kube, away, "mirror-target", [*target, _allow("Topic", TOPIC, *everything)])
    took = until(lambda: _reason(kube) == "Copying", "it copies", seconds_max=SECONDS_MAX)
    _send(home, "after")
    until(lambda: away.stored(TOPIC) == 2 * COUNT, "all is copied", seconds_max=SECONDS_MAX)
    account.append(f"copying {took:.0f} s after it was allowed to")
    same = [pod["metadata"]["uid"] for pod in kube.pods(AWAY, "imago.dev/mirror=dr")]
    assert same == [pod["metadata"]["uid"] for pod in pods]
    assert defects(kube, AWAY) == []


def _send(at: Brokers, what: str) -> None:
    for number in range(COUNT):
        body = {"body": f"{what} {number}"}
        at.ask(at.master(), f"/admin/v1/messages?topic={TOPIC}", "POST", body)


def _allow(kind: str, name: str, *operations: str) -> dict[str, Any]:
    resource = {"type": kind, "name": name} if kind != "Cluster" else {"type": kind}
    return {"resource": resource, "operations": list(operations)}


def _be(kube: Kube, at: Brokers, name: str, acls: list[dict[str, Any]]) -> None:
    """Make a user of a cluster, whose Secret is beside the mirror; or give him other rights."""
    spec = {
        "clusterRef": {"name": at.name, "namespace": at.namespace},
        "userName": "mirror",
        "authorization": {"acls": acls},
    }
    metadata = {"name": name, "namespace": AWAY}
    kube.apply({**_OURS, "kind": "ImagoUser", "metadata": metadata, "spec": spec})
    until_ready(kube, "imu", AWAY, name, seconds_max=60)


def _mirror() -> dict[str, Any]:
    source = {"clusterRef": {"name": "demo", "namespace": HOME}, "secretName": "mirror-source"}
    target = {"clusterRef": {"name": "demo"}, "secretName": "mirror-target"}
    spec = {"source": source, "target": target, "topics": [TOPIC]}
    metadata = {"name": "dr", "namespace": AWAY}
    return {**_OURS, "kind": "ImagoMirror", "metadata": metadata, "spec": spec}


def _reason(kube: Kube) -> str:
    return str(condition(kube, "imm", AWAY, "dr", "Ready")["reason"])
