"""Brokers are a user of a managed ZooKeeper: from the first pod, or moved there step by step."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_operator.manifests.brokers import pod_template, template_notes
from imago_operator.manifests.config import registry_user_secret, toml
from imago_operator.manifests.environment import registry_access_of
from imago_operator.model import names
from imago_operator.model.desired import (
    OperatorInfo,
    RegistrySteps,
    desired_of,
    with_registry_steps,
)
from imago_operator.model.secret_data import decoded
from imago_operator.model.state import Observed, Pod
from imago_operator.plan.restarts.staging import registry_access, staged
from imago_operator.spec.cluster.zookeeper import RegistryAccess
from imago_testing.kubernetes.fake_api_server import Refused
from imago_testing.operated.accesses import managed, operated, uids, ways
from imago_testing.operated.cluster import OperatedCluster
from imago_testing.operated.resources import as_brokers_read, resource, wanted
from imago_testing.searching import seldom

if TYPE_CHECKING:
    from imago_operator.model.desired import Desired
    from imago_testing.kubernetes.fake_api_server import Call

NONE, PERMISSIVE, ENFORCING = RegistryAccess
BEFORE, NOW = OperatorInfo(version="0.1.0"), OperatorInfo(version="0.2.0")
"""Operators that know of no such user, and that give one to every cluster that says nothing."""
USER = names.registry_user("demo")


def follow(cluster: OperatedCluster, to: RegistryAccess) -> list[set[RegistryAccess]]:
    """Look until all brokers are so; return the ways on which they were until then."""
    seen: list[set[RegistryAccess]] = []

    async def inside() -> None:
        for _ in range(1200):
            await cluster.look()
            if not seen or seen[-1] != ways(cluster):
                seen.append(ways(cluster))
            assert not {NONE, ENFORCING} <= seen[-1], "some are shut out"
            if seen[-1] == {to}:
                return
        raise AssertionError(f"never: {seen}, {cluster.cluster['status'].get('progress')}")

    asyncio.run(inside())
    cluster.run()
    assert not cluster.errors
    assert cluster.condition("Ready") == ("True", "AllShardsServing")
    return seen


def pod(name: str, access: RegistryAccess) -> Pod:
    return Pod(name=name, uid=name, shard=0, ordinal=0, registry_access=access)


class TestWhatHolds:
    """What holds for now, given what there is."""

    @pytest.mark.parametrize(
        ("said", "there", "holds"),
        [
            (NONE, (), NONE),
            (NONE, (ENFORCING, PERMISSIVE), PERMISSIVE),
            (NONE, (PERMISSIVE, PERMISSIVE), NONE),
            (NONE, (PERMISSIVE, NONE), NONE),
            (PERMISSIVE, (NONE, NONE), PERMISSIVE),
            (ENFORCING, (NONE, NONE), PERMISSIVE),
            (ENFORCING, (NONE, PERMISSIVE), PERMISSIVE),
            (ENFORCING, (PERMISSIVE, PERMISSIVE), ENFORCING),
            (ENFORCING, (PERMISSIVE, ENFORCING), ENFORCING),
            # One that has no user is shut out already: opening would not help it.
            (ENFORCING, (NONE, ENFORCING), ENFORCING),
        ],
    )
    def test_by_what_is_said_and_what_is_there(
        self,
        said: RegistryAccess,
        there: tuple[RegistryAccess, ...],
        holds: RegistryAccess,
    ) -> None:
        pods = tuple(pod(f"demo-s0-{n}", access) for n, access in enumerate(there))
        observed = Observed(synced=True, pods=pods)
        assert registry_access(wanted(managed(said)), observed) is holds

    def test_an_external_one_has_a_user_of_its_own(self) -> None:
        external = {"spec.zookeeper": {"external": {"servers": ["zk:2181"]}}}
        assert registry_access(wanted(external), Observed(synced=True)) is NONE

    def test_the_same_cluster_is_the_same_value(self) -> None:
        desired = wanted(managed(ENFORCING))
        seen = Observed(synced=True, pods=(pod("demo-s0-0", NONE),))
        assert staged(desired, seen) is staged(desired, seen) is not desired
        assert staged(desired, Observed(synced=True)) is desired


def access(desired: Desired, said: RegistryAccess, *, ordered: bool = True) -> Desired:
    steps = replace(RegistrySteps.said(desired), access=said)
    return with_registry_steps(desired, steps, ordered=ordered, ordered_servers=False)


class TestPods:
    """What pods are told, and nobody else is."""

    def test_a_broker_reads_it_of_its_own_pod(self) -> None:
        desired = access(wanted(managed()), ENFORCING)
        template = pod_template(desired, 0)
        [container] = template["spec"]["containers"]
        found = as_brokers_read(desired).zookeeper
        assert (found.user, found.protect) == ("imago", True)
        assert found.password_file == "/etc/imago/zookeeper-user/password"
        [volume] = [v for v in template["spec"]["volumes"] if v["name"] == "zookeeper-user"]
        assert volume["secret"] == {"secretName": USER, "defaultMode": 0o440}
        [mount] = [m for m in container["volumeMounts"] if m["name"] == "zookeeper-user"]
        assert (mount["mountPath"], mount["readOnly"]) == ("/etc/imago/zookeeper-user", True)
        assert registry_access_of(template) is ENFORCING

    def test_the_file_that_all_share_does_not_change(self) -> None:
        """One that has no Secret yet starts again as before."""
        desired = wanted(managed())
        files = [toml(access(desired, each).settings) for each in RegistryAccess]
        assert len(set(files)) == 1
        assert "protect" not in files[0]

    def test_each_step_of_what_was_ordered_is_ordered(self) -> None:
        """Not what the operator's version brings: `Hold` does not hold it."""
        desired = wanted(managed(ENFORCING))
        steps = [wanted(managed()), access(desired, PERMISSIVE), desired]
        notes = [template_notes(each, 0) for each in steps]
        assert len({note[names.SPEC_HASH] for note in notes}) == 3

    def test_without_a_word_of_it_brokers_are_a_user(self) -> None:
        assert wanted().registry_access is ENFORCING
        assert template_notes(wanted(), 0) == template_notes(wanted(managed(ENFORCING)), 0)

    @pytest.mark.parametrize("version", ["0.1.0", "0.1.7"])
    def test_brokers_that_know_no_user_get_none(self, version: str) -> None:
        old = wanted({"spec.version": version}, operator=NOW)
        assert old.registry_access is NONE
        spec = pod_template(old, 0)["spec"]
        assert not [one for one in spec["volumes"] if one["name"].startswith("zookeeper")]
        told = {one["name"] for one in spec["containers"][0]["env"]}
        assert not [name for name in told if name.startswith("IMAGO__ZOOKEEPER")]

    def test_what_only_the_operator_brings_is_its_own_step(self) -> None:
        """`Hold` holds it: nothing that anybody said differs."""
        before, after = wanted(operator=BEFORE), wanted(operator=NOW)
        steps = [before, access(after, PERMISSIVE, ordered=False), after]
        notes = [template_notes(each, 0) for each in steps]
        assert len({note[names.SPEC_HASH] for note in notes}) == 1
        assert len({note[names.TEMPLATE_HASH] for note in notes}) == 3

    def test_the_secret_outlives_the_cluster_as_claims_do(self) -> None:
        made = registry_user_secret(wanted(managed()), USER, "random")
        assert decoded(made) == {"username": "imago", "password": "random"}
        assert "ownerReferences" not in made["metadata"]
        assert made["metadata"]["labels"][names.CLUSTER_LABEL] == "demo"


def test_a_new_cluster_is_closed_from_its_first_pod() -> None:
    cluster = OperatedCluster(resource({"spec.brokers.shards": 2}))
    cluster.run()
    assert ways(cluster) == {ENFORCING}
    assert cluster.world.registry_user
    assert cluster.condition("RegistryOpen") is None
    before = uids(cluster)
    cluster.run()
    assert uids(cluster) == before


def test_a_cluster_without_goes_on_without_until_somebody_orders_it() -> None:
    cluster = operated(NONE)
    cluster.run()
    assert ways(cluster) == {NONE}
    assert not cluster.world.registry_user
    assert cluster.condition("RegistryOpen") == ("True", "AsSpecified")
    before = uids(cluster)
    cluster.run()
    assert uids(cluster) == before
    cluster.edit(zookeeper={"managed": {"authentication": "Enforcing"}})
    seen = follow(cluster, ENFORCING)
    assert {PERMISSIVE} in seen, seen
    assert cluster.condition("RegistryOpen") is None


def test_the_way_back_opens_the_nodes_first() -> None:
    cluster = operated(ENFORCING)
    cluster.run()
    cluster.edit(zookeeper={"managed": {"authentication": "None"}})
    seen = follow(cluster, NONE)
    assert {PERMISSIVE} in seen, seen


@pytest.mark.parametrize("dies_after", seldom([10, 19, 1, 4, 7, 13, 16, 22, 25, 28], often=2))
def test_an_operator_that_dies_on_the_way_shuts_nobody_out(dies_after: int) -> None:
    cluster = operated(NONE)
    cluster.run()
    cluster.edit(zookeeper={"managed": {"authentication": "Enforcing"}})

    async def some() -> None:
        for _ in range(dies_after):
            await cluster.look()

    asyncio.run(some())
    cluster.start()
    follow(cluster, ENFORCING)


def test_nothing_is_restarted_while_the_secret_is_gone() -> None:
    cluster = operated(ENFORCING)
    cluster.run()
    cluster.kubernetes.drop("Secret", cluster.key.namespace, USER)
    cluster.world.registry_user = False
    before = uids(cluster)
    cluster.annotate(restart="now")

    async def some() -> None:
        for _ in range(60):
            await cluster.look()

    asyncio.run(some())
    assert uids(cluster) == before
    assert cluster.condition("Degraded") == ("True", "RegistryUserLost")
    assert cluster.kubernetes.find("Secret", cluster.key.namespace, USER) is None
    secret = registry_user_secret(wanted(managed()), USER, "the same")
    secret["metadata"]["namespace"] = cluster.key.namespace
    cluster.kubernetes.put(secret)
    cluster.world.registry_user = True
    cluster.run()
    assert set(uids(cluster).values()).isdisjoint(before.values())


def upgraded(**spec: Any) -> OperatedCluster:
    """Return a cluster that was made when there was no such user; now another operator runs."""
    changes = {"spec.brokers.shards": 2, **{f"spec.{name}": said for name, said in spec.items()}}
    cluster = OperatedCluster(resource(changes), operator=BEFORE)
    cluster.run()
    assert ways(cluster) == {NONE}
    replaced(cluster)
    return cluster


def replaced(cluster: OperatedCluster) -> None:
    cluster.operator = NOW
    cluster.world.desired = desired_of(cluster.cluster, NOW)
    cluster.start()


class TestOperatorUpgraded:
    """A cluster of earlier days gets its user as everything that a new operator brings."""

    def test_nothing_is_restarted_before_somebody_approves_and_once_is_enough(self) -> None:
        cluster = upgraded()
        before = uids(cluster)
        cluster.run()
        assert uids(cluster) == before
        assert cluster.condition("UpdatePending") == ("True", "OperatorTemplateChanged")
        assert cluster.condition("RegistryOpen") == ("True", "RestartsPending")
        assert cluster.condition("Ready") == ("True", "AllShardsServing")
        [approval] = cluster.cluster["status"]["pendingApprovals"]
        cluster.annotate(approve=approval["id"])
        seen = follow(cluster, ENFORCING)
        assert {PERMISSIVE} in seen, seen
        assert cluster.condition("RegistryOpen") is None
        assert cluster.condition("UpdatePending") is None

    def test_a_secret_that_no_pod_has_used_yet_is_made_again(self) -> None:
        cluster = upgraded()
        cluster.run()
        cluster.kubernetes.drop("Secret", cluster.key.namespace, USER)
        cluster.world.registry_user = False
        cluster.run()
        assert cluster.world.registry_user
        assert cluster.condition("Degraded") is None

    def test_a_restart_that_somebody_orders_takes_it_along(self) -> None:
        cluster = upgraded()
        cluster.run()
        cluster.annotate(restart="now")
        assert {PERMISSIVE} in follow(cluster, ENFORCING)

    @pytest.mark.full
    def test_with_roll_it_is_moved_at_once(self) -> None:
        cluster = upgraded(updatePolicy={"onOperatorUpgrade": "Roll"})
        assert {PERMISSIVE} in follow(cluster, ENFORCING)

    def test_pods_that_begin_again_by_themselves_change_nothing_for_others(self) -> None:
        cluster = upgraded()
        cluster.run()
        taken = min(uids(cluster))
        cluster.kubernetes.drop("Pod", cluster.key.namespace, taken)
        cluster.world._vanish(taken)
        before = {name: uid for name, uid in uids(cluster).items() if name != taken}
        cluster.run()
        assert ways(cluster) == {NONE, PERMISSIVE}
        assert {name: uid for name, uid in uids(cluster).items() if name != taken} == before
        assert cluster.condition("Ready") == ("True", "AllShardsServing")

    def test_brokers_of_an_earlier_version_wait_for_a_newer_one(self) -> None:
        cluster = upgraded(version="0.1.0")
        cluster.run()
        assert ways(cluster) == {NONE}
        assert cluster.condition("RegistryOpen") == ("True", "VersionTooOld")
        cluster.edit(version=None)
        assert {PERMISSIVE} in follow(cluster, ENFORCING)

    @pytest.mark.full
    def test_an_operator_that_may_not_read_the_secret_does_all_else(self) -> None:
        cluster = upgraded(updatePolicy={"onOperatorUpgrade": "Roll"})
        refused = True

        def confined(call: Call) -> None:
            if refused and (call.plural, call.name) == ("secrets", USER):
                raise Refused(403, "Forbidden", f"secrets {USER} is forbidden")

        cluster.kubernetes.before = confined
        cluster.run()
        assert ways(cluster) == {NONE}
        assert not cluster.errors
        assert cluster.condition("RegistryOpen") == ("True", "SecretRefused")
        assert cluster.condition("Ready") == ("True", "AllShardsServing")
        refused = False
        assert {PERMISSIVE} in follow(cluster, ENFORCING)

    @pytest.mark.parametrize("dies_after", seldom([19, 1, 7, 13, 25, 31, 37]))
    def test_an_operator_that_dies_on_the_way_needs_no_other_approval(
        self, dies_after: int
    ) -> None:
        cluster = upgraded()
        cluster.run()
        [approval] = cluster.cluster["status"]["pendingApprovals"]
        cluster.annotate(approve=approval["id"])

        async def some() -> None:
            for _ in range(dies_after):
                await cluster.look()

        asyncio.run(some())
        cluster.start()
        follow(cluster, ENFORCING)
