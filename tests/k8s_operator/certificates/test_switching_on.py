"""TLS is switched on and made strict in a running cluster: no member is ever cut off."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from imago_operator.manifests.brokers import pod_template
from imago_operator.model import names
from imago_operator.model.state import STATEFUL_SET, Observed, OwnedObject
from imago_operator.plan.restarts.staging import staged
from imago_operator.spec.cluster.tls import Strictness
from imago_testing.operated.cluster import OperatedCluster
from imago_testing.operated.resources import resource, wanted

if TYPE_CHECKING:
    from imago_operator.model.desired import Desired

STRICT = {"clients": "Enforcing", "members": "Enforcing"}


def operated(**spec: Any) -> OperatedCluster:
    changes = {"spec.brokers.shards": 2, **{f"spec.{name}": said for name, said in spec.items()}}
    return OperatedCluster(resource(changes))


def uids(cluster: OperatedCluster) -> dict[str, str]:
    return {pod.name: pod.uid for pod in cluster.world.pods.values() if pod.shard is not None}


def ways(cluster: OperatedCluster) -> set[str]:
    """Return how the members there are copy the log."""
    return {cluster.world.replication[uid] for uid in uids(cluster).values()}


def out_of_sync(cluster: OperatedCluster) -> int:
    members = (p for p in cluster.world.pods.values() if p.shard is not None)
    return sum(not cluster.world.in_sync(pod) for pod in members)


def follow(cluster: OperatedCluster, looks_max: int = 300) -> list[set[str]]:
    """Look until every member is strict; return how members copied the log on the way."""
    seen: list[set[str]] = []

    async def inside() -> None:
        for _ in range(looks_max):
            await cluster.look()
            assert out_of_sync(cluster) <= 1, "a member is cut off while another restarts"
            if not seen or seen[-1] != ways(cluster):
                seen.append(ways(cluster))
            if seen[-1] == {"enforcing"}:
                return
        raise AssertionError(f"never strict: {seen}, {cluster.cluster['status'].get('progress')}")

    asyncio.run(inside())
    return seen


def test_both_orders_at_once_cut_no_member_off() -> None:
    """The page says one command after the other: nobody waits for pods between them."""
    cluster = operated()
    cluster.run()
    cluster.edit(tls={"clients": "Permissive", "members": "Permissive"})
    cluster.edit(tls=STRICT)
    steps = follow(cluster)
    assert not any({"disabled", "enforcing"} <= step for step in steps), steps
    cluster.run()
    assert out_of_sync(cluster) == 0
    assert cluster.condition("Ready") == ("True", "AllShardsServing")
    assert not cluster.errors


def test_members_that_are_away_come_back_as_their_template_says() -> None:
    """With nobody there it is of those that the StatefulSet makes before it is applied anew."""
    strict = wanted({"spec.tls": STRICT})

    def asked(before: Desired) -> Strictness:
        made = OwnedObject(
            kind=STATEFUL_SET,
            name=names.stateful_set("demo", 0),
            uid="set",
            shard=0,
            replicas=2,
            live={"spec": {"template": pod_template(before, 0)}},
        )
        found = staged(strict, Observed(synced=True, children=(made,))).spec.tls
        assert found is not None
        return found.members

    assert asked(wanted()) is Strictness.PERMISSIVE
    assert asked(wanted({"spec.tls": {}})) is Strictness.ENFORCING


def test_a_new_cluster_is_strict_from_its_first_pod() -> None:
    cluster = operated(tls=STRICT)
    cluster.run()
    assert ways(cluster) == {"enforcing"}
    before = uids(cluster)
    cluster.run()
    assert uids(cluster) == before


def test_a_cluster_that_is_permissive_already_is_restarted_once() -> None:
    cluster = operated(tls={})
    cluster.run()
    cluster.edit(tls=STRICT)
    assert follow(cluster) == [{"permissive"}, {"permissive", "enforcing"}, {"enforcing"}]


@pytest.mark.parametrize("tls", [{}, STRICT])
def test_no_member_goes_before_its_certificate_is_there(tls: dict[str, Any]) -> None:
    """An issuer that does not exist: who restarts waits for files that nobody writes."""
    cluster = operated()
    cluster.run()
    before = uids(cluster)
    cluster.edit(tls={**tls, "ca": {"mode": "UserProvided", "secretName": "forgotten"}})

    async def later() -> None:
        for _ in range(60):
            await cluster.look()

    asyncio.run(later())
    assert uids(cluster) == before
    assert cluster.condition("CertificatesValid") == ("False", "AuthorityMissing")
    said = cluster.cluster["status"]["progress"]
    assert f"{names.certificate('demo', 0)}" in str(said), said


def test_nothing_is_said_of_certificates_that_nobody_looks_after() -> None:
    cluster = operated(tls={}, zookeeper={"managed": {"tls": "None"}})
    cluster.run()
    assert cluster.condition("CertificatesValid") == ("True", "Issued")
    cluster.edit(tls=None)
    cluster.run()
    assert ways(cluster) == {"disabled"}
    assert cluster.condition("CertificatesValid") is None
    assert cluster.condition("Ready") == ("True", "AllShardsServing")
