"""Whole stories of a cluster: what is planned is done, until nothing is left to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from imago_operator.model.actions import (
    Cordon,
    DeleteChild,
    DeleteClaim,
    DeletePod,
    Handover,
    MarkDrained,
    SetConfig,
    Stop,
)
from imago_operator.model.desired import desired_of
from imago_operator.model.state import TopicNeeds
from imago_operator.plan import PlanRow, plan
from imago_testing.operated.resources import OPERATOR, resource, wanted
from imago_testing.operated.things import START
from imago_testing.operated.world import ClusterWorld

NEWER = replace(OPERATOR, version="1.3.0")


def began(changes: dict[str, Any] | None = None) -> ClusterWorld:
    """Return a cluster that runs."""
    world = ClusterWorld(wanted(changes))
    settle(world)
    world.done.clear()
    return world


def settle(world: ClusterWorld) -> None:
    world.settle()
    assert plan(world.desired, world.observe(), world.now).row is PlanRow.SETTLED


def condition(world: ClusterWorld, kind: str) -> tuple[str, str] | None:
    found = [c for c in world.status.conditions if c.type == kind]
    return (found[0].status.value, found[0].reason) if found else None


def deleted(world: ClusterWorld) -> list[str]:
    return [action.name for action in world.done if isinstance(action, DeletePod)]


@pytest.mark.parametrize("replicas", [1, 2, 3, 5])
def test_a_cluster_begins(replicas: int) -> None:
    world = began({"spec.brokers.replicasPerShard": replicas})
    assert condition(world, "Ready") == ("True", "AllShardsServing")
    assert world.status.cluster_id == "c-1"
    assert world.status.brokers.in_sync_replicas == 2 * replicas
    assert world.status.version == "1.2.0"
    assert [shard.phase for shard in world.status.shards] == ["Serving", "Serving"]
    assert condition(world, "Reconciling") is None


def test_with_nothing_to_do_nothing_is_written() -> None:
    world = began()
    before = world.status
    world.look()
    assert world.status == before
    assert world.done == []


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_setting_that_needs_a_restart_restarts_every_pod_once(replicas: int) -> None:
    world = began({"spec.brokers.replicasPerShard": replicas})
    old = {pod.uid for pod in world.pods.values() if pod.shard is not None}

    world.desired = wanted(
        {
            "spec.brokers.replicasPerShard": replicas,
            "spec.brokers.config": {"store.scrub_interval_ms": 5},
        }
    )
    settle(world)

    assert sorted(deleted(world)) == sorted(
        f"demo-s{s}-{o}" for s in (0, 1) for o in range(replicas)
    )
    assert not old & {pod.uid for pod in world.pods.values()}
    handovers = [a for a in world.done if isinstance(a, Handover)]
    assert len(handovers) >= (2 if replicas > 1 else 0)
    assert world.status.rollout is None


def test_a_master_hands_over_before_it_goes() -> None:
    world = began()
    masters = {shard.master for shard in world.shards.values()}
    world.desired = wanted({"spec.image": "mine:2"})
    for seen, found in world.settle():
        for action in found.actions:
            if isinstance(action, DeletePod) and seen.registry and action.shard is not None:
                pod = next(p for p in seen.pods if p.name == action.name)
                assert pod.broker is not None
                assert seen.registry.shards[action.shard].master != pod.broker.uuid
    assert masters != {shard.master for shard in world.shards.values()}


def test_settings_that_may_change_are_changed_without_a_restart() -> None:
    world = began()
    world.desired = wanted({"spec.brokers.config": {"rocketmq.pull_hold_ms_max": 77}})
    settle(world)
    assert deleted(world) == []
    assert len([a for a in world.done if isinstance(a, SetConfig)]) == 6
    assert all(c["rocketmq.pull_hold_ms_max"] == 77 for c in world.config.values())


def test_a_new_operator_restarts_nothing_until_somebody_approves() -> None:
    world = began()
    pods = {pod.uid for pod in world.pods.values()}

    world.desired = wanted(operator=NEWER)
    settle(world)
    assert {pod.uid for pod in world.pods.values()} == pods
    assert condition(world, "UpdatePending") == ("True", "OperatorTemplateChanged")
    assert condition(world, "Ready") == ("True", "AllShardsServing")
    (pending,) = world.status.pending_approvals

    world.desired = wanted(annotations={"imago.dev/approve": pending.id}, operator=NEWER)
    settle(world)
    assert len(deleted(world)) == 6
    assert world.status.version == "1.3.0"
    assert condition(world, "UpdatePending") is None


def test_a_new_operator_neither_forces_nor_breaks_a_cluster_with_its_own_version() -> None:
    own = {"spec.version": "1.2.0"}
    world = began(own)
    pods = {pod.uid for pod in world.pods.values()}
    world.desired = wanted(own, operator=NEWER)
    settle(world)
    assert {pod.uid for pod in world.pods.values()} == pods
    assert condition(world, "Ready") == ("True", "AllShardsServing")

    # It is worked on as before: what is asked for is done, with brokers of the old version.
    world.desired = wanted({**own, "spec.brokers.shards": 3}, operator=NEWER)
    settle(world)
    assert sorted(world.shards) == [0, 1, 2]
    assert world.status.version == "1.2.0"

    world.desired = wanted({"spec.version": "1.3.0", "spec.brokers.shards": 3}, operator=NEWER)
    settle(world)
    assert world.status.version == "1.3.0"


def test_brokers_that_a_new_operator_does_not_run_go_on() -> None:
    own = {"spec.version": "1.2.0"}
    world = began(own)
    pods = {pod.uid for pod in world.pods.values()}
    found = desired_of(resource(own), replace(OPERATOR, version="1.4.0"))
    planned = plan(found, world.observe(), START)
    assert (planned.row, planned.actions) == (PlanRow.INVALID, ())
    assert {pod.uid for pod in world.pods.values()} == pods
    assert ("Stalled", "UnsupportedVersion") in {(f.type, f.reason) for f in planned.findings}


def test_a_new_operator_restarts_what_may_be_restarted() -> None:
    roll = {"spec.updatePolicy": {"onOperatorUpgrade": "Roll"}}
    world = began(roll)
    world.desired = wanted(roll, operator=NEWER)
    settle(world)
    assert len(deleted(world)) == 6


def test_an_order_to_restart_is_carried_out_once() -> None:
    world = began()
    world.desired = wanted(annotations={"imago.dev/restart": "today"})
    settle(world)
    assert len(deleted(world)) == 6
    world.done.clear()
    settle(world)
    assert world.done == []


def test_shards_are_added() -> None:
    world = began()
    world.desired = wanted({"spec.brokers.shards": 4})
    settle(world)
    assert sorted(world.shards) == [0, 1, 2, 3]
    assert deleted(world) == []


class TestScaleDown:
    LESS: ClassVar[dict[str, Any]] = {"spec.brokers.shards": 1}
    GONE: ClassVar[dict[str, Any]] = {
        "spec.brokers.shards": 1,
        "spec.brokers.storage": {
            "size": "10Gi",
            "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"},
        },
    }

    def test_a_shard_is_emptied_before_it_goes(self) -> None:
        world = began()
        world.desired = wanted(self.LESS)
        rows = {found.row for _, found in world.settle()}
        assert PlanRow.SCALE_DOWN in rows
        assert PlanRow.RESUME not in rows, "nothing is taken back"
        order = [type(action) for action in world.done]
        steps = [Cordon, MarkDrained, Stop]
        assert [kind for kind in order if kind in steps] == steps
        assert ("StatefulSet", "demo-s1") not in world.children
        assert ("PodDisruptionBudget", "demo-s1") not in world.children
        assert not any(kind == "ImagoRebalance" for kind, _ in world.children)
        assert len([c for c in world.claims.values() if c.shard == 1]) == 3
        assert [shard.id for shard in world.status.shards] == [0]
        assert world.status.scale_down is None
        assert deleted(world) == []

    def test_claims_go_last_and_only_if_that_is_desired(self) -> None:
        world = began()
        world.desired = wanted(self.GONE)
        settle(world)
        gone = [a for a in world.done if isinstance(a, DeleteClaim)]
        assert sorted(a.name for a in gone) == [f"data-demo-s1-{n}" for n in range(3)]
        removed = [i for i, a in enumerate(world.done) if isinstance(a, DeleteClaim)]
        stopped = [i for i, a in enumerate(world.done) if isinstance(a, Stop)]
        assert max(stopped) < min(removed)

    def test_the_named_shard_goes(self) -> None:
        world = began({"spec.brokers.shards": 3})
        world.desired = wanted({"spec.brokers.shards": 2, "spec.brokers.removeShards": [1]})
        settle(world)
        assert sorted(world.observe().sets()) == [0, 2]

    @pytest.mark.parametrize("looks", range(0, 14, 2))
    def test_it_is_taken_back_at_any_moment(self, looks: int) -> None:
        world = began()
        world.desired = wanted(self.GONE)
        for _ in range(looks):
            world.look()
            world.turn()
        world.desired = wanted()
        settle(world)
        assert sorted(world.observe().sets()) == [0, 1]
        assert not world.shards[1].cordoned
        assert not world.shards[1].drained
        assert world.status.scale_down is None

    @pytest.mark.parametrize("crash", range(12))
    def test_an_operator_that_dies_at_any_action_goes_on(self, crash: int) -> None:
        """The action was done, the status of that look was never written."""
        world = began()
        world.desired = wanted(self.GONE)
        acted = 0
        for _ in range(200):
            seen = world.observe()
            found = plan(world.desired, seen, world.now)
            if found.actions and acted == crash:
                world.do(found.actions[0])
                break
            acted += bool(found.actions)
            world.look()
            world.turn()
        settle(world)
        assert sorted(world.observe().sets()) == [0]

    def test_what_topics_need_stays(self) -> None:
        world = began()
        desired = wanted(self.LESS)
        for needs, reason in [
            (TopicNeeds(name="t", count=2), "NotEnoughShards"),
            (TopicNeeds(name="t", shard_ids=(1,)), "TopicPinned"),
        ]:
            found = plan(desired, replace(world.observe(), topics=(needs,)), world.now)
            assert found.row is PlanRow.BLOCKED
            assert found.actions == ()
            assert reason in {f.reason for f in found.findings}

    def test_a_shard_that_never_began_goes_at_once(self) -> None:
        world = began()
        world.desired = wanted({"spec.brokers.shards": 3})
        world.look()
        world.desired = wanted()
        settle(world)
        assert sorted(world.observe().sets()) == [0, 1]


class TestRepair:
    def test_a_bad_image_and_its_correction(self) -> None:
        world = began()
        world.broken_images.add("typo:1")
        world.desired = wanted({"spec.image": "typo:1"})
        for _ in range(60):
            world.look()
            world.turn()
        stuck = [pod for pod in world.pods.values() if pod.stuck]
        assert len(stuck) == 1, "one pod shows that the image is bad; the others go on"
        assert condition(world, "Available") == ("True", "EveryShardHasMaster")

        world.desired = wanted()
        settle(world)

    def test_a_late_wait_is_stalled_and_goes_on(self) -> None:
        world = began()
        world.broken_images.add("typo:1")
        world.desired = wanted({"spec.image": "typo:1"})
        for _ in range(700):
            world.look()
            world.turn()
        assert condition(world, "Stalled") == ("True", "DeadlineExceeded")
        assert condition(world, "Updating") is not None

    def test_a_killed_pod_comes_back_without_the_operator(self) -> None:
        world = began()
        world.kill("demo-s0-1")
        settle(world)
        assert deleted(world) == []

    def test_a_member_whose_node_is_gone_for_good_is_replaced(self) -> None:
        world = began()
        for name, claim in list(world.claims.items()):
            world.claims[name] = replace(claim, node=f"node-{claim.ordinal}")
        world.lose_node("node-1")
        settle_until_replaced(world)
        gone = [a.name for a in world.done if isinstance(a, DeleteClaim)]
        assert sorted(gone) == ["data-demo-s0-1", "data-demo-s1-1"]
        assert len(world.claims) == 6

    def test_a_node_that_comes_back_keeps_its_disk(self) -> None:
        world = began()
        for name, claim in list(world.claims.items()):
            world.claims[name] = replace(claim, node=f"node-{claim.ordinal}")
        node = world.nodes["node-1"]
        world.lose_node("node-1")
        for _ in range(100):
            world.look()
            world.turn()
        assert len(world.status.replaced_members) == 2
        world.nodes["node-1"] = node
        settle(world)
        assert not [a for a in world.done if isinstance(a, DeleteClaim)]
        assert len(world.status.replaced_members) == 0


def settle_until_replaced(world: ClusterWorld) -> None:
    for _ in range(400):
        world.look()
        world.turn()
    settle(world)


def reinstalled(world: ClusterWorld) -> None:
    """Everything but claims and registry goes, as with `kubectl delete imc` and a new one."""
    for name in list(world.pods):
        world.kill(name)
    world.children.clear()
    world.manifests.clear()
    world.status = type(world.status)()


class TestReinstall:
    def test_a_new_cluster_takes_up_the_claims(self) -> None:
        world = began({"spec.brokers.shards": 3})
        world.desired = wanted({"spec.brokers.shards": 2, "spec.brokers.removeShards": [1]})
        settle(world)
        disks = {name: disk.uuid for name, disk in world.disks.items()}

        reinstalled(world)
        world.desired = wanted()
        settle(world)

        assert sorted(world.observe().sets()) == [0, 2]
        assert {name: disk.uuid for name, disk in world.disks.items()} == disks
        assert world.status.cluster_id == "c-1"

    def test_a_smaller_one_reads_the_others_out_first(self) -> None:
        world = began()
        reinstalled(world)
        world.unread = 3
        world.desired = wanted({"spec.brokers.shards": 1})
        settle(world)
        assert sorted(world.observe().sets()) == [0]
        assert world.shards[1].drained


def test_volumes_grow_without_a_restart() -> None:
    world = began()
    world.desired = wanted({"spec.brokers.storage.size": "20Gi"})
    settle(world)
    assert {claim.requested for claim in world.claims.values()} == {20 << 30}
    anew = [a for a in world.done if isinstance(a, DeleteChild)]
    assert [a.orphan for a in anew] == [True, True]
    assert deleted(world) == []


def test_without_the_registry_nothing_is_taken_away() -> None:
    world = began()
    world.zookeeper = False
    world.desired = wanted({"spec.image": "mine:2"})
    for _ in range(20):
        world.look()
        world.turn()
    assert deleted(world) == []
    assert condition(world, "ZooKeeperConnected") == ("False", "ZooKeeperUnavailable")
    world.zookeeper = True
    settle(world)
    assert len(deleted(world)) == 6


def test_parallel_restarts_stay_in_one_rack() -> None:
    many = {"spec.brokers.shards": 6, "spec.updatePolicy": {"maxUnavailableShards": 3}}
    world = began(many)
    world.desired = wanted({**many, "spec.image": "mine:2"})
    widest = 0
    for seen, found in world.settle():
        going = [a for a in found.actions if isinstance(a, (DeletePod, Handover))]
        names = [a.name if isinstance(a, DeletePod) else a.pod for a in going]
        nodes = seen.nodes or {}
        racks = {nodes[p.node].rack for p in seen.pods if p.name in names and p.node}
        assert len(racks) <= 1
        widest = max(widest, len(names))
    assert widest == 3
