"""TLS to a managed ZooKeeper: from the first pod, or brought there step by step."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from imago_operator.manifests.brokers import pod_template
from imago_operator.manifests.zookeeper import zookeeper_template
from imago_operator.model import names
from imago_operator.model.desired import OperatorInfo, desired_of
from imago_operator.model.state import STATEFUL_SET, Observed, OwnedObject, Pod
from imago_operator.plan.restarts.staging import quorum_tls, registry_tls, staged
from imago_operator.spec.cluster.zookeeper import QuorumTls, RegistryTls
from imago_testing.kubernetes.fake_api_server import Refused
from imago_testing.operated.cluster import OperatedCluster
from imago_testing.operated.resources import resource, wanted
from imago_testing.operated.servers import has_quorum, meet
from imago_testing.operated.snapshots import with_new_operator
from imago_testing.searching import seldom

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imago_operator.model.desired import Desired
    from imago_testing.kubernetes.fake_api_server import Call

NONE, PERMISSIVE, ENFORCING = RegistryTls
PLAIN, ACCEPTING, SENDING, ALONE = QuorumTls
BEFORE, NOW = OperatorInfo(version="0.1.0"), OperatorInfo(version="0.2.0")
"""Operators that know of no such TLS, and that bring it to every cluster that says nothing."""
Way = tuple[RegistryTls, QuorumTls]
"""How a server of ZooKeeper meets clients, and the other servers."""
Steps = tuple[Way, bool]
CLUSTERS: dict[RegistryTls, Desired] = {}


def managed(tls: RegistryTls) -> dict[str, Any]:
    return {"spec.zookeeper": {"managed": {"tls": tls.value}}}


def cluster_of(tls: RegistryTls) -> Desired:
    return CLUSTERS.setdefault(tls, wanted(managed(tls)))


def server(number: int, way: Way) -> Pod:
    name = f"{names.zookeeper('demo')}-{number}"
    return Pod(
        name=name, uid=name, shard=None, ordinal=number, registry_tls=way[0], quorum_tls=way[1]
    )


def broker(number: int, over_tls: bool) -> Pod:
    name = names.pod("demo", 0, number)
    return Pod(name=name, uid=name, shard=0, ordinal=number, registry_over_tls=over_tls)


def template(name: str, shard: int | None, made: dict[str, Any]) -> OwnedObject:
    live = {"spec": {"template": made}}
    return OwnedObject(kind=STATEFUL_SET, name=name, uid=name, shard=shard, replicas=2, live=live)


@cache
def of_servers(way: Way) -> OwnedObject:
    desired = cluster_of(way[0])
    said = desired.spec.zookeeper.managed
    assert said is not None
    made = zookeeper_template(replace(desired, quorum_tls=way[1]), said)
    return template(names.zookeeper("demo"), None, made)


def end_of(said: RegistryTls) -> Way:
    return said, PLAIN if said is NONE else ALONE


BROKERS = {
    over: template(names.stateful_set("demo", 0), 0, pod_template(cluster_of(tls), 0))
    for over, tls in ((False, NONE), (True, ENFORCING))
}


class Standing(NamedTuple):
    """What there is: pods that are away are None, as are templates that nobody has applied."""

    wanted: RegistryTls
    servers: tuple[Way | None, ...]
    brokers: tuple[bool | None, ...]
    of_servers: Way | None
    of_brokers: bool | None
    planned: Steps | None = None
    """What the operator has seen to do, and not done yet."""

    def seen(self) -> Observed:
        pods = [server(n, way) for n, way in enumerate(self.servers) if way is not None]
        pods += [broker(n, over) for n, over in enumerate(self.brokers) if over is not None]
        children = [of_servers(self.of_servers)] if self.of_servers is not None else []
        children += [BROKERS[self.of_brokers]] if self.of_brokers is not None else []
        return Observed(synced=True, pods=tuple(pods), children=tuple(children))

    def steps(self) -> Steps:
        return _steps(self._replace(planned=None))

    def following(self) -> Iterator[Standing]:
        """Yield what may come next, one thing at a time."""
        yield from (self._replace(wanted=said) for said in RegistryTls)
        yield self._replace(planned=self.steps())
        if self.planned is not None:
            # In any order, and the operator may end between them.
            yield self._replace(of_servers=self.planned[0])
            yield self._replace(of_brokers=self.planned[1])
            yield self._replace(planned=None)
        for n, there in enumerate(self.servers):
            made = None if there is not None else self.of_servers
            yield self._replace(servers=_with(self.servers, n, made))
        for n, up in enumerate(self.brokers):
            begun = None if up is not None else self.of_brokers
            yield self._replace(brokers=_with(self.brokers, n, begun))

    def meet(self) -> bool:
        """Whether each broker has a port at each server, and each two servers meet."""
        there = [way for way in self.servers if way is not None]
        return all(meet(one, other) for (_, one), (_, other) in combinations(there, 2)) and not any(
            tls is (NONE if over else ENFORCING)
            for (tls, _), over in product(there, self.brokers)
            if over is not None
        )

    def shown(self) -> bool:
        """Whether each server that meets others with TLS has the certificate for it."""
        ways = (*self.servers, self.of_servers)
        return all(way[0] is not NONE or way[1] is PLAIN for way in ways if way is not None)


@cache
def _steps(now: Standing) -> Steps:
    desired, seen = cluster_of(now.wanted), now.seen()
    tls, over = registry_tls(desired, seen)
    return (tls, quorum_tls(desired, seen)), over


def _with(values: tuple[Any, ...], number: int, value: Any) -> tuple[Any, ...]:
    return (*values[:number], value, *values[number + 1 :])


def reached(starts: Sequence[Standing]) -> Iterator[Standing]:
    """Yield all that may come, however things happen to follow each other."""
    found, todo = set(starts), list(starts)
    while todo:
        now = todo.pop()
        yield now
        new = set(now.following()) - found
        found |= new
        todo += new


class TestWhatHolds:
    """What holds for now, given what there is."""

    def test_in_no_order_of_things_a_broker_lacks_a_port(self) -> None:
        """Pods that go and come, an operator that ends between two calls, and minds that change."""
        begun = [Standing(said, (None, None), (None, None), None, None) for said in RegistryTls]
        found = list(reached(begun))
        assert len(found) > 2000
        assert [each for each in found if not (each.meet() and each.shown())] == []

    def test_a_walk_would_show_a_step_too_early(self) -> None:
        """What closes the plain port before all brokers use the other: the model is not blind."""
        way, next_way = (NONE, PLAIN), (ENFORCING, ACCEPTING)
        early = Standing(ENFORCING, (way, way), (False, False), way, False, (next_way, True))
        assert not all(each.meet() for each in reached([early]))

    @pytest.mark.parametrize(("before", "after"), list(product(QuorumTls, QuorumTls)))
    def test_a_walk_would_show_a_quorum_that_is_lost(
        self, before: QuorumTls, after: QuorumTls
    ) -> None:
        """Servers that restart one by one lose it unless one step leads from one way to the other.

        Straight to TLS alone, for one: of three the second that restarts leaves no majority.
        """
        row = list(QuorumTls)
        way, next_way = (PERMISSIVE, before), (PERMISSIVE, after)
        early = Standing(PERMISSIVE, (way,) * 2, (), way, None, (next_way, True))
        kept = all(each.meet() for each in reached([early]))
        neighbours = abs(row.index(before) - row.index(after)) <= 1
        assert kept is neighbours
        one_by_one = [[after] * n + [before] * (2 - n) for n in range(3)]
        assert all(has_quorum(there, 3) for there in one_by_one) is neighbours

    @pytest.mark.parametrize(("before", "after"), list(product(RegistryTls, RegistryTls)))
    def test_every_way_has_an_end(self, before: RegistryTls, after: RegistryTls) -> None:
        over = before is not NONE
        begun = end_of(before)
        now = Standing(after, (begun,) * 2, (over,) * 2, begun, over)
        for _ in range(12):
            way, over = now.steps()
            now = now._replace(of_servers=way, of_brokers=over)
            assert now.meet()
            for n in range(2):
                now = now._replace(servers=_with(now.servers, n, way))
                assert now.meet()
            assert now.meet()
            now = now._replace(brokers=(over,) * 2)
            assert now.meet()
        assert (set(now.servers), set(now.brokers)) == ({end_of(after)}, {after is not NONE})

    def test_a_cluster_of_before_is_moved_in_three_rounds(self) -> None:
        """Whose brokers have TLS already, and its servers do not among themselves."""
        way: Way = (PERMISSIVE, PLAIN)
        now, rounds = Standing(PERMISSIVE, (way,) * 2, (True,) * 2, way, True), []
        while now.steps()[0] != now.of_servers:
            way, over = now.steps()
            assert over
            rounds.append(way[1])
            now = now._replace(of_servers=way, servers=(way,) * 2)
        assert rounds == [ACCEPTING, SENDING, ALONE]

    def test_a_new_cluster_is_at_its_end_at_once(self) -> None:
        for said in RegistryTls:
            assert registry_tls(cluster_of(said), Observed(synced=True)) == (said, said is not NONE)
            assert (said, cluster_of(said).quorum_tls) == end_of(said)
            assert staged(cluster_of(said), Observed(synced=True)) is cluster_of(said)

    def test_an_external_one_has_tls_of_its_own(self) -> None:
        external = wanted({"spec.zookeeper": {"external": {"servers": ["zk:2181"]}}})
        assert registry_tls(external, Observed(synced=True)) == (NONE, False)
        assert quorum_tls(external, Observed(synced=True)) is PLAIN

    def test_one_server_meets_no_other_and_goes_there_at_once(self) -> None:
        alone = wanted({"spec.zookeeper": {"managed": {"replicas": 1}}})
        assert alone.registry_tls is PERMISSIVE
        for servers, way in ((1, QuorumTls.ENFORCING), (2, QuorumTls.ACCEPTING)):
            pods = tuple(
                Pod(name=f"demo-zookeeper-{n}", uid=str(n), shard=None, ordinal=n)
                for n in range(servers)
            )
            assert quorum_tls(alone, Observed(synced=True, pods=pods)) is way


def operated(tls: RegistryTls) -> OperatedCluster:
    return OperatedCluster(resource(managed(tls)))


def ways(cluster: OperatedCluster) -> tuple[set[RegistryTls], set[bool]]:
    pods = cluster.world.pods.values()
    servers = {pod.registry_tls for pod in pods if pod.shard is None}
    quorum = {pod.quorum_tls for pod in pods if pod.shard is None}
    assert quorum == {end_of(tls)[1] for tls in servers}
    return servers, {pod.registry_over_tls for pod in pods if pod.shard is not None}


def uids(cluster: OperatedCluster) -> dict[str, str]:
    return {pod.name: pod.uid for pod in cluster.world.pods.values()}


def test_a_new_cluster_has_tls_from_its_first_pod() -> None:
    cluster = OperatedCluster(resource({}))
    cluster.run()
    assert ways(cluster) == ({PERMISSIVE}, {True})
    assert cluster.condition("CertificatesValid") == ("True", "Issued")
    before = uids(cluster)
    cluster.run()
    assert uids(cluster) == before


@pytest.mark.full
@pytest.mark.parametrize(("before", "after"), [(NONE, ENFORCING), (ENFORCING, NONE)])
def test_a_running_cluster_is_moved_step_by_step(before: RegistryTls, after: RegistryTls) -> None:
    cluster = operated(before)
    cluster.run()
    assert ways(cluster) == ({before}, {before is not NONE})
    first = uids(cluster)
    cluster.edit(zookeeper={"managed": {"tls": after.value}})
    cluster.run()
    assert ways(cluster) == ({after}, {after is not NONE})
    assert cluster.condition("Ready") == ("True", "AllShardsServing")
    assert not cluster.errors
    assert set(uids(cluster).values()).isdisjoint(first.values())


DEATHS = (226, 1, 46, 91, 136, 181, 271, 316, 361, 406, 451, 496)
"""After how many looks an operator dies; first in the midst of it."""


@cache
def on_the_way() -> dict[int, OperatedCluster]:
    """Return a cluster that gets TLS, as it is after each of these looks."""
    cluster = operated(NONE)
    cluster.run()
    cluster.edit(zookeeper={"managed": {"tls": "Enforcing"}})
    found = {}

    async def look() -> None:
        for looks in range(1, max(DEATHS) + 1):
            await cluster.look()
            if looks in DEATHS:
                found[looks] = with_new_operator(cluster)

    asyncio.run(look())
    return found


@pytest.mark.parametrize("dies_after", seldom(DEATHS))
def test_an_operator_that_dies_on_the_way_cuts_nobody_off(dies_after: int) -> None:
    cluster = with_new_operator(on_the_way()[dies_after])
    cluster.run()
    assert ways(cluster) == ({ENFORCING}, {True})


@pytest.mark.full
def test_a_new_operator_brings_it_with_one_approval() -> None:
    cluster = OperatedCluster(resource({}), operator=BEFORE)
    cluster.run()
    assert ways(cluster) == ({NONE}, {False})
    cluster.operator = NOW
    cluster.world.desired = desired_of(cluster.cluster, NOW)
    cluster.start()
    before = uids(cluster)
    cluster.run()
    assert uids(cluster) == before
    assert cluster.condition("UpdatePending") == ("True", "OperatorTemplateChanged")
    [approval] = cluster.cluster["status"]["pendingApprovals"]
    cluster.annotate(approve=approval["id"])
    cluster.run()
    assert ways(cluster) == ({PERMISSIVE}, {True})
    assert cluster.condition("UpdatePending") is None


def refusing(cluster: OperatedCluster, *secrets: str) -> None:
    def confined(call: Call) -> None:
        if call.plural == "secrets" and call.name in secrets:
            raise Refused(403, "Forbidden", f"secrets {call.name} is forbidden")

    cluster.kubernetes.before = confined


@pytest.mark.parametrize("tls", [None, {}])
def test_an_operator_confined_to_other_secrets_does_all_else(tls: dict[str, Any] | None) -> None:
    cluster = OperatedCluster(resource({"spec.tls": tls} if tls is not None else {}))
    refusing(cluster, names.zookeeper_certificate("demo"))
    cluster.run()
    assert ways(cluster) == ({NONE}, {False})
    assert cluster.condition("CertificatesValid") == ("False", "SecretRefused")
    assert cluster.condition("Ready") == ("True", "AllShardsServing")


def test_a_right_that_was_taken_away_takes_no_tls_away() -> None:
    cluster = OperatedCluster(resource({}))
    cluster.run()
    before = uids(cluster)
    refusing(cluster, names.authority("demo"), names.zookeeper_certificate("demo"))
    cluster.run()
    assert uids(cluster) == before
    assert cluster.condition("CertificatesValid") == ("False", "SecretRefused")


def test_no_server_goes_before_its_certificate_is_there() -> None:
    cluster = operated(NONE)
    cluster.run()
    before = uids(cluster)
    said = {"ca": {"mode": "UserProvided", "secretName": "forgotten"}}
    cluster.edit(tls=said, zookeeper={"managed": {"tls": "Permissive"}})

    async def later() -> None:
        for _ in range(40):
            await cluster.look()

    asyncio.run(later())
    assert uids(cluster) == before
    assert "demo-zookeeper-tls" in str(cluster.cluster["status"]["progress"])


def test_who_says_that_there_is_no_plain_port_names_none() -> None:
    cluster = operated(ENFORCING)
    cluster.run()
    assert not cluster.cluster["status"].get("zookeeper")
