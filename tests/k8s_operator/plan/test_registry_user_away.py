"""Pods that are away when the operator looks: their templates say who they are to ZooKeeper."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_operator.manifests.brokers import pod_template
from imago_operator.manifests.environment import registry_access_of
from imago_operator.model import names
from imago_operator.model.state import STATEFUL_SET, Observed, OwnedObject, Pod, Probe
from imago_operator.plan.restarts.staging import registry_access, staged
from imago_operator.spec.cluster.zookeeper import RegistryAccess
from imago_testing.kubernetes.fake_api_server import Refused
from imago_testing.operated.accesses import managed, operated, uids, ways
from imago_testing.operated.resources import wanted
from imago_testing.searching import seldom

if TYPE_CHECKING:
    from imago_operator.model.desired import Desired
    from imago_testing.kubernetes.fake_api_server import Call
    from imago_testing.operated.cluster import OperatedCluster

NONE, PERMISSIVE, ENFORCING = RegistryAccess
USER = names.registry_user("demo")


def pod(shard: int, access: RegistryAccess) -> Pod:
    """Return the only pod of a shard, whose broker answers."""
    name = names.pod("demo", shard, 0)
    broker = Probe(uuid=name, shard=shard, role="master", settled=True, version="1.2.0")
    return Pod(name=name, uid=name, shard=shard, ordinal=0, registry_access=access, broker=broker)


def single(access: RegistryAccess) -> Desired:
    """Return a cluster of one broker a shard."""
    return wanted(managed(access) | {"spec.brokers.replicasPerShard": 1})


def stateful_set(shard: int, access: RegistryAccess) -> OwnedObject:
    """Return the set of one pod, as it was applied when that access was said."""
    template = pod_template(wanted(managed(access)), shard)
    return OwnedObject(
        kind=STATEFUL_SET,
        name=names.stateful_set("demo", shard),
        uid=f"set-{shard}",
        shard=shard,
        replicas=1,
        live={"spec": {"template": template}},
    )


class TestWhatHolds:
    """What holds for now, given pods and templates."""

    @pytest.mark.parametrize("refused", [False, True])
    @pytest.mark.parametrize(
        ("said", "there", "templates", "holds"),
        [
            (NONE, (), (NONE,), NONE),
            (NONE, (), (ENFORCING,), PERMISSIVE),
            # Nobody has opened the nodes yet.
            (NONE, (), (PERMISSIVE,), PERMISSIVE),
            (NONE, (PERMISSIVE,), (PERMISSIVE,), NONE),
            (PERMISSIVE, (), (PERMISSIVE,), PERMISSIVE),
            (ENFORCING, (), (PERMISSIVE,), ENFORCING),
            (ENFORCING, (), (ENFORCING,), ENFORCING),
            # One of two templates was applied before the operator died.
            (NONE, (PERMISSIVE, PERMISSIVE), (NONE, ENFORCING), PERMISSIVE),
            (ENFORCING, (PERMISSIVE, PERMISSIVE), (ENFORCING, NONE), PERMISSIVE),
        ],
    )
    def test_one_that_is_away_comes_back_as_its_template_says(
        self,
        said: RegistryAccess,
        there: tuple[RegistryAccess, ...],
        templates: tuple[RegistryAccess, ...],
        holds: RegistryAccess,
        refused: bool,
    ) -> None:
        """It may have been so, too: what it closed stays closed while it is away."""
        pods = tuple(pod(n, access) for n, access in enumerate(there))
        sets = tuple(stateful_set(n, access) for n, access in enumerate(templates))
        seen = Observed(synced=True, pods=pods, children=sets, registry_user_refused=refused)
        assert registry_access(single(said), seen) is holds

    def test_one_that_does_not_answer_has_opened_nothing_yet(self) -> None:
        begun = replace(pod(0, PERMISSIVE), broker=None)
        seen = Observed(synced=True, pods=(begun,), children=(stateful_set(0, PERMISSIVE),))
        assert registry_access(single(NONE), seen) is PERMISSIVE

    def test_members_count_that_somebody_has_scaled_away(self) -> None:
        """They come back: as long as the template has the user they open the nodes."""
        desired = wanted(managed(NONE) | {"spec.brokers.replicasPerShard": 2})
        seen = Observed(
            synced=True, pods=(pod(0, PERMISSIVE),), children=(stateful_set(0, PERMISSIVE),)
        )
        assert registry_access(desired, seen) is PERMISSIVE
        assert registry_access(single(NONE), seen) is NONE

    def test_without_the_right_brokers_have_none_only_where_none_has_one(self) -> None:
        desired, old = wanted(managed(ENFORCING)), (stateful_set(0, NONE),)
        seen = Observed(synced=True, children=old)
        assert registry_access(desired, seen) is PERMISSIVE
        assert registry_access(desired, replace(seen, registry_user_refused=True)) is NONE

    def test_who_ordered_it_is_known_without_a_pod(self) -> None:
        """Else the next step of what a user has ordered waits for an approval."""
        ordered, old = wanted(managed(ENFORCING)), (stateful_set(0, NONE),)
        found = staged(ordered, Observed(synced=True, children=old))
        assert found.registry_access is PERMISSIVE
        assert found.spec_hash != ordered.spec_hash


class TestNoPodAtThisMoment:
    """A cluster of one broker whose pod is away when the operator looks."""

    def test_a_right_that_was_taken_away_takes_no_user_away(self) -> None:
        cluster = alone(ENFORCING)

        def confined(call: Call) -> None:
            if (call.plural, call.name) == ("secrets", USER):
                raise Refused(403, "Forbidden", f"secrets {USER} is forbidden")

        cluster.kubernetes.before = confined
        evicted(cluster)
        cluster.run()
        assert ways(cluster) == {ENFORCING}
        assert cluster.condition("RegistryOpen") is None
        assert cluster.condition("Ready") == ("True", "AllShardsServing")

    def test_a_secret_that_is_gone_is_lost_not_new(self) -> None:
        cluster = alone(ENFORCING)
        cluster.kubernetes.drop("Secret", cluster.key.namespace, USER)
        cluster.world.registry_user = False
        evicted(cluster)
        look(cluster, 30)
        assert cluster.kubernetes.find("Secret", cluster.key.namespace, USER) is None
        assert cluster.condition("Degraded") == ("True", "RegistryUserLost")

    def test_the_way_back_waits_for_who_opens_the_nodes(self) -> None:
        cluster = alone(ENFORCING)
        cluster.world.absence = 3
        cluster.edit(zookeeper={"managed": {"authentication": "None"}})
        cluster.run()
        assert ways(cluster) == {NONE}

    def test_all_get_the_user_before_one_closes_the_nodes(self) -> None:
        cluster = alone(NONE)
        evicted(cluster)
        cluster.edit(zookeeper={"managed": {"authentication": "Enforcing"}})
        look(cluster, 1)
        namespace, name = cluster.key.namespace, names.stateful_set("demo", 0)
        found = cluster.kubernetes.find("StatefulSet", namespace, name)
        assert found is not None
        assert registry_access_of(found["spec"]["template"]) is PERMISSIVE
        cluster.run()
        assert ways(cluster) == {ENFORCING}


def alone(access: RegistryAccess) -> OperatedCluster:
    cluster = operated(access, **{"brokers.shards": 1, "brokers.replicasPerShard": 1})
    cluster.run()
    assert ways(cluster) == {access}
    return cluster


def evicted(cluster: OperatedCluster) -> None:
    """Take the only broker's pod away; another is made after some looks."""
    cluster.world.absence = 3
    [name] = uids(cluster)
    cluster.kubernetes.drop("Pod", cluster.key.namespace, name)
    cluster.world.kill(name)


def look(cluster: OperatedCluster, times: int) -> None:
    async def inside() -> None:
        for _ in range(times):
            await cluster.look()

    asyncio.run(inside())


@pytest.mark.parametrize("looks", seldom([0, 4]))
def test_the_way_back_waits_for_a_secret_that_is_gone(looks: int) -> None:
    """Brokers open the nodes as the user that they are: one without its Secret cannot start."""
    cluster = operated(ENFORCING)
    cluster.run()
    cluster.edit(zookeeper={"managed": {"authentication": "None"}})
    look(cluster, looks)
    found = cluster.kubernetes.find("Secret", cluster.key.namespace, USER)
    assert found is not None
    cluster.kubernetes.drop("Secret", cluster.key.namespace, USER)
    cluster.world.registry_user = False
    before = uids(cluster)
    look(cluster, 60)
    assert uids(cluster) == before
    assert cluster.condition("Degraded") == ("True", "RegistryUserLost")
    assert cluster.kubernetes.find("Secret", cluster.key.namespace, USER) is None
    cluster.kubernetes.put(found)
    cluster.world.registry_user = True
    cluster.run()
    assert ways(cluster) == {NONE}
    assert cluster.condition("Ready") == ("True", "AllShardsServing")


def test_no_broker_is_to_be_a_user_whose_secret_could_not_be_made() -> None:
    """Its template would say that there was one: a Secret made later would be another's."""
    cluster = operated(ENFORCING)
    refusals = iter(range(3))

    def failing(call: Call) -> None:
        if (call.verb, call.name) == ("create", USER) and next(refusals, None) is not None:
            raise Refused(500, "InternalError", "injected")

    cluster.kubernetes.before = failing
    look(cluster, 1)
    assert not ways(cluster)
    cluster.run()
    assert next(refusals, None) is None
    assert cluster.world.registry_user
    assert ways(cluster) == {ENFORCING}
    assert cluster.condition("Ready") == ("True", "AllShardsServing")
