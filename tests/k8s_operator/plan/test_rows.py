"""Each case by itself: what is seen, what is done, what is said, what is waited for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from imago_operator import names
from imago_operator.actions import (
    Apply,
    CreateToken,
    DeleteChild,
    DeletePod,
    Elect,
    GrowClaim,
    Handover,
    LabelPod,
    OwnClaim,
    SetConfig,
)
from imago_operator.desired import Desired, desired_of
from imago_operator.plan import Plan, Row, plan
from imago_operator.plan.look import Look
from imago_operator.plan.permission import approval_id
from imago_operator.spec.cluster_status import Progress
from imago_operator.state import Observed, Pod, RestartCheck, written
from imago_testing.operated import OPERATOR, resource, wanted
from imago_testing.operated_world import START, World


def running(changes: dict[str, Any] | None = None) -> Observed:
    """Return what is seen of a cluster with nothing to do."""
    world = World(wanted(changes))
    world.settle()
    return world.observe()


@pytest.fixture(name="seen", scope="module")
def _seen() -> Observed:
    return running()


def changed(seen: Observed, name: str, **values: Any) -> Observed:
    """Return the same look with one pod changed."""
    pods = tuple(replace(p, **values) if p.name == name else p for p in seen.pods)
    return replace(seen, pods=pods)


def answering(seen: Observed, name: str, **values: Any) -> Observed:
    pod = next(p for p in seen.pods if p.name == name)
    assert pod.broker is not None
    return changed(seen, name, broker=replace(pod.broker, **values))


def lacking(seen: Observed, *pods: str) -> Observed:
    """Return the same look with members that are not in sync."""
    assert seen.registry is not None
    uuids = {p.broker.uuid for p in seen.pods if p.name in pods and p.broker}
    shards = {
        n: replace(
            shard,
            members=tuple(
                replace(m, in_sync=m.in_sync and m.uuid not in uuids) for m in shard.members
            ),
        )
        for n, shard in seen.registry.shards.items()
    }
    return replace(seen, registry=replace(seen.registry, shards=shards))


def down(seen: Observed, *pods: str) -> Observed:
    """Return the same look with members that do not answer and are not in sync."""
    seen = lacking(seen, *pods)
    for name in pods:
        seen = changed(seen, name, ready=False, broker=None)
    return seen


def unready(seen: Observed, seconds: float, *pods: str) -> Observed:
    """Return the same look with pods that have not been ready for a while; none named: all."""
    for pod in seen.pods:
        if pod.shard is not None and (not pods or pod.name in pods):
            seen = changed(seen, pod.name, ready=False, turned=START - timedelta(seconds=seconds))
    return seen


def taken(found: Plan) -> list[str]:
    return sorted(
        a.name if isinstance(a, DeletePod) else a.pod
        for a in found.actions
        if isinstance(a, (DeletePod, Handover))
    )


def leaderless(seen: Observed, *, in_sync: bool) -> Observed:
    assert seen.registry is not None
    shard = seen.registry.shards[0]
    members = tuple(replace(m, in_sync=in_sync) for m in shard.members)
    shards = {**seen.registry.shards, 0: replace(shard, master=None, members=members)}
    return replace(seen, registry=replace(seen.registry, shards=shards))


def waited(seen: Observed, key: str, seconds: float) -> Observed:
    since = written(START - timedelta(seconds=seconds))
    progress = Progress(row="x", step=key, since=since)
    return replace(seen, status=replace(seen.status, progress=progress))


def reasons(found: Plan) -> set[str]:
    return {finding.reason for finding in found.findings}


def of(found: Plan, kind: type) -> list[Any]:
    return [action for action in found.actions if isinstance(action, kind)]


class TestStandingStill:
    def test_a_deleted_cluster_is_left_to_its_owner_references(self, seen: Observed) -> None:
        manifest = resource({"spec.image": "mine:2"})
        manifest["metadata"]["deletionTimestamp"] = written(START)
        found = plan(desired_of(manifest, OPERATOR), seen, START)
        assert (found.row, found.actions) == (Row.DELETING, ())

    def test_a_paused_cluster_is_left_alone(self, seen: Observed) -> None:
        wish = wanted({"spec.image": "mine:2"}, {names.PAUSE: "true"})
        found = plan(wish, seen, START)
        assert (found.row, found.actions) == (Row.PAUSED, ())

    def test_a_wrong_spec_stops_nothing(self, seen: Observed) -> None:
        wish = desired_of(resource({"spec.brokers.shards": 99}), OPERATOR)
        found = plan(wish, seen, START)
        assert (found.row, found.actions) == (Row.INVALID, ())
        assert any("spec.brokers.shards" in finding.message for finding in found.findings)

    @pytest.mark.parametrize(
        ("running_version", "version", "stays"),
        [("1.2.0", "1.1.0", True), ("1.0.9", "1.2.0", True), ("1.1.5", "1.2.0", False)],
    )
    def test_versions_go_up_one_minor_step(
        self, seen: Observed, running_version: str, version: str, stays: bool
    ) -> None:
        look = replace(seen, status=replace(seen.status, version=running_version))
        found = plan(wanted({"spec.version": version}), look, START)
        assert ("DowngradeRefused" in reasons(found)) == stays

    def test_before_kubernetes_is_read_nothing_is_done(self, seen: Observed) -> None:
        found = plan(wanted({"spec.brokers.shards": 3}), replace(seen, synced=False), START)
        assert (found.row, found.actions) == (Row.READING, ())


class TestObjects:
    def test_what_is_missing_is_made(self) -> None:
        found = plan(wanted(), Observed(synced=True), START)
        assert of(found, CreateToken)
        kinds = {action.manifest["kind"] for action in of(found, Apply)}
        assert {"StatefulSet", "Service", "ConfigMap", "NetworkPolicy"} <= kinds

    def test_what_differs_is_applied_again(self, seen: Observed) -> None:
        children = tuple(
            replace(c, annotations={}) if c.name == "demo-bootstrap" else c for c in seen.children
        )
        found = plan(wanted(), replace(seen, children=children), START)
        assert [a.manifest["metadata"]["name"] for a in of(found, Apply)] == ["demo-bootstrap"]

    def test_what_nobody_wants_goes(self, seen: Observed) -> None:
        found = plan(wanted({"spec.networkPolicy": {"enabled": False}}), seen, START)
        assert {a.kind for a in of(found, DeleteChild)} == {"NetworkPolicy"}

    def test_claims_go_with_the_cluster_if_that_is_wished(self, seen: Observed) -> None:
        policy = {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}
        wish = wanted({"spec.brokers.storage": {"size": "10Gi", **policy}})
        assert len(of(plan(wish, seen, START), OwnClaim)) == len(seen.claims)

    def test_settings_of_one_broker_are_put_right(self, seen: Observed) -> None:
        look = answering(seen, "demo-s0-1", config={"metaq.stat": True, "newer.key": 1})
        (action,) = of(plan(wanted(), look, START), SetConfig)
        assert (action.pod, action.values) == ("demo-s0-1", {"metaq.stat": False})


class TestRegistry:
    def test_before_anybody_answers_it_begins(self) -> None:
        world = World(wanted())
        world.look()
        found = plan(world.wish, world.observe(), world.now)
        assert found.row is Row.BOOTSTRAP
        assert found.wait is not None
        assert found.wait.deadline_s == 600

    def test_silence_later_is_no_beginning(self, seen: Observed) -> None:
        found = plan(wanted({"spec.image": "mine:2"}), replace(seen, registry=None), START)
        assert "NoBrokerAnswers" in reasons(found)
        assert not of(found, DeletePod)

    def test_brokers_of_another_cluster_are_not_believed(self, seen: Observed) -> None:
        assert seen.registry is not None
        look = replace(seen, registry=replace(seen.registry, cluster_id="c-9"))
        found = plan(wanted(), look, START)
        assert "OtherCluster" in reasons(found)
        assert found.wait is not None


class TestFailover:
    KEY = "master of shard-0"
    ALLOWED: ClassVar[dict[str, str]] = {names.ALLOW_DATA_LOSS: "0"}

    def test_brokers_elect_by_themselves(self, seen: Observed) -> None:
        found = plan(wanted(), leaderless(seen, in_sync=True), START)
        assert found.row is Row.FAILOVER
        assert {type(action) for action in found.actions} <= {LabelPod}
        assert "its members to elect one" in found.explain()

    @pytest.mark.parametrize(
        ("annotations", "seconds", "elects"),
        [
            ({}, 999, False),
            (ALLOWED, 10, False),
            (ALLOWED, 61, True),
            ({names.ALLOW_DATA_LOSS: "1"}, 61, False),
        ],
    )
    def test_a_loss_needs_a_person_and_patience(
        self, seen: Observed, annotations: dict[str, str], seconds: float, elects: bool
    ) -> None:
        look = waited(leaderless(seen, in_sync=False), self.KEY, seconds)
        look = answering(look, "demo-s0-2", log=(7, 100))
        found = plan(wanted(annotations=annotations), look, START)
        assert [action.pod for action in of(found, Elect)] == (["demo-s0-2"] if elects else [])

    def test_a_member_in_sync_is_never_passed_over(self, seen: Observed) -> None:
        look = waited(leaderless(seen, in_sync=True), self.KEY, 999)
        assert not of(plan(wanted(annotations=self.ALLOWED), look, START), Elect)

    def test_nothing_is_restarted_meanwhile(self) -> None:
        world = World(wanted())
        world.settle()
        world.wish = wanted({"spec.image": "mine:2"})
        world.look()
        found = plan(world.wish, leaderless(world.observe(), in_sync=True), world.now)
        assert not of(found, DeletePod)


class TestRestarts:
    """The templates are applied, and every pod is outdated."""

    WISH: ClassVar[dict[str, Any]] = {"spec.image": "mine:2"}

    def applied(self, changes: dict[str, Any] | None = None) -> tuple[Desired, Observed]:
        world = World(wanted())
        world.settle()
        wish = wanted({**self.WISH, **(changes or {})})
        world.wish = wish
        first = plan(wish, world.observe(), world.now)
        for action in of(first, Apply):
            world.do(action)
        return wish, world.observe()

    def test_a_follower_goes_first(self) -> None:
        wish, seen = self.applied()
        found = plan(wish, seen, START)
        (action,) = of(found, DeletePod)
        assert seen.registry is not None
        pod = next(p for p in seen.pods if p.name == action.name)
        assert pod.broker is not None
        assert pod.broker.uuid != seen.registry.shards[0].master
        assert "SpecChanged" in reasons(found)

    @pytest.mark.parametrize(
        ("what", "text"),
        [
            (
                {"restart": RestartCheck(safe=False, risks=("unreplicatedBytes",))},
                "unreplicatedBytes",
            ),
            ({"restart": None}, "an answer to its restart check"),
        ],
    )
    def test_the_broker_is_asked(self, what: dict[str, Any], text: str) -> None:
        wish, seen = self.applied({"spec.updatePolicy": {"maxUnavailableShards": 1}})
        for pod in seen.pods:
            if pod.broker:
                seen = answering(seen, pod.name, **what)
        found = plan(wish, seen, START)
        assert not of(found, DeletePod)
        assert found.wait is not None
        assert text in found.wait.message
        assert found.record["rollout"].blocked_by == found.wait.message

    def test_a_shard_that_lacks_a_member_waits(self) -> None:
        wish, seen = self.applied()
        ready = {p.name: p for p in seen.pods}["demo-s1-2"]
        fresh = Look(wish, seen, START).notes(1)
        seen = changed(seen, ready.name, ready=False, annotations=fresh)
        found = plan(wish, seen, START)
        assert not of(found, DeletePod)
        assert found.wait is not None
        assert "whole again" in found.wait.message or "to be ready" in found.wait.message

    def test_what_is_down_already_goes_first(self) -> None:
        wish, seen = self.applied()
        assert taken(plan(wish, down(seen, "demo-s1-2"), START)) == ["demo-s1-2"]

    def test_members_in_sync_are_spared_whatever_readiness_says(self) -> None:
        """ZooKeeper has just gone on: no pod is ready, and every member is in sync."""
        wish, seen = self.applied()
        found = plan(wish, unready(seen, 5), START)
        assert taken(found) == []
        assert found.wait is not None
        assert found.wait.message == "shard-0: demo-s0-0, demo-s0-1, demo-s0-2 to be ready"

    def test_pods_that_stay_unready_are_restarted_one_by_one(self) -> None:
        """Their disks are full: the new revision may be what cures that."""
        wish, seen = self.applied()
        assert seen.registry is not None
        (name,) = taken(plan(wish, unready(seen, 61), START))
        pod = next(p for p in seen.pods if p.name == name)
        assert pod.broker is not None
        assert pod.broker.uuid != seen.registry.shards[0].master
        refused = unready(seen, 61)
        for pod in seen.pods_of(0):
            refused = answering(refused, pod.name, restart=None)
        assert not [n for n in taken(plan(wish, refused, START)) if n.startswith("demo-s0")]

    def test_a_member_that_is_silent_may_be_in_sync(self) -> None:
        wish, seen = self.applied()
        assert taken(plan(wish, changed(seen, "demo-s0-1", broker=None), START)) == []
        unknown = changed(seen, "demo-s0-1", broker=None, ready=False)
        assert taken(plan(wish, unknown, START)) == []

    def test_a_member_that_has_begun_anew_is_known_before_it_is_in_sync(self) -> None:
        wish, seen = self.applied()
        assert taken(plan(wish, answering(seen, "demo-s0-1", caught_up=False), START)) == []

    def test_beside_one_that_goes_nothing_is_taken(self) -> None:
        wish, seen = self.applied()
        look = changed(down(seen, "demo-s0-2"), "demo-s0-1", deleting=True)
        assert taken(plan(wish, look, START)) == []

    def test_of_two_that_lack_none_is_taken_before_its_time_is_over(self) -> None:
        wish, seen = self.applied()
        two = ("demo-s0-1", "demo-s0-2")
        look = unready(down(seen, *two), 30, *two)
        assert taken(plan(wish, look, START)) == []
        look = unready(lacking(seen, *two), 599, *two)
        assert taken(plan(wish, look, START)) == []
        assert taken(plan(wish, unready(look, 601, *two), START)) == ["demo-s0-1"]

    def test_what_waits_for_good_to_be_made_counts_as_stuck(self) -> None:
        """A volume that no Secret is there for: nothing of it is in `STUCK`."""
        wish, seen = self.applied()
        ill: dict[str, Any] = {"ready": False, "waiting": "ContainerCreating", "broker": None}
        for pod in seen.pods:
            seen = changed(seen, pod.name, **ill, turned=START - timedelta(seconds=601))
        found = plan(wish, replace(seen, registry=None), START)
        assert found.row is Row.STUCK
        assert taken(found) == ["demo-s0-0", "demo-s1-0"]

    def test_outside_of_a_window_nothing_goes(self) -> None:
        window = {"mode": "Window", "windows": [{"schedule": "0 2 * * 6", "duration": "2h"}]}
        wish, seen = self.applied({"spec.updatePolicy": window})
        closed = plan(wish, replace(seen, window_open=False), START)
        assert "OutsideWindow" in reasons(closed)
        assert not of(closed, DeletePod)
        assert of(plan(wish, seen, START), DeletePod)

    def test_a_person_says_when(self) -> None:
        manual = {"spec.updatePolicy": {"mode": "Manual"}}
        wish, seen = self.applied(manual)
        found = plan(wish, seen, START)
        assert "ApprovalRequired" in reasons(found)
        (pending,) = found.record["pending_approvals"]
        assert pending.id == approval_id(Look(wish, seen, START))
        said = wanted({**self.WISH, **manual}, {names.APPROVE: pending.id})
        assert of(plan(said, seen, START), DeletePod)
        other = wanted({**self.WISH, **manual}, {names.APPROVE: "restart-else"})
        assert not of(plan(other, seen, START), DeletePod)

    def test_servers_of_zookeeper_go_one_by_one_and_first(self) -> None:
        memory = {"spec.zookeeper.managed.resources": {"requests": {"memory": "1Gi"}}}
        wish, seen = self.applied(memory)
        (action,) = of(plan(wish, seen, START), DeletePod)
        assert (action.name, action.shard) == ("demo-zookeeper-2", None)
        down = changed(
            seen, "demo-zookeeper-0", ready=False, annotations=Look(wish, seen, START).notes(None)
        )
        assert not of(plan(wish, down, START), DeletePod)

    def test_servers_of_zookeeper_that_elect_are_left_to_it(self) -> None:
        memory = {"spec.zookeeper.managed.resources": {"requests": {"memory": "1Gi"}}}
        wish, seen = self.applied(memory)
        one = changed(seen, "demo-zookeeper-1", ready=False, turned=START)
        assert taken(plan(wish, one, START)) == ["demo-zookeeper-1"]
        two = changed(one, "demo-zookeeper-0", ready=False, turned=START)
        assert taken(plan(wish, two, START)) == []
        late = changed(two, "demo-zookeeper-0", turned=START - timedelta(seconds=601))
        assert taken(plan(wish, late, START)) == ["demo-zookeeper-0"]
        going = changed(late, "demo-zookeeper-2", deleting=True)
        assert taken(plan(wish, going, START)) == []

    def test_a_master_alone_hands_nothing_over(self) -> None:
        world = World(wanted({"spec.brokers.replicasPerShard": 1}))
        world.settle()
        world.wish = wanted({"spec.brokers.replicasPerShard": 1, **self.WISH})
        world.look()
        found = plan(world.wish, world.observe(), world.now)
        assert of(found, DeletePod)
        assert not of(found, Handover)


class TestStorage:
    LARGER: ClassVar[dict[str, Any]] = {"spec.brokers.storage.size": "20Gi"}

    def test_every_claim_grows(self) -> None:
        world = World(wanted())
        world.settle()
        world.wish = wanted(self.LARGER)
        found = plan(world.wish, world.observe(), world.now)
        assert {action.size for action in of(found, GrowClaim)} == {"20Gi"}
        assert not [a for a in of(found, Apply) if a.manifest["kind"] == "StatefulSet"]

    @pytest.mark.parametrize("ill", ["nobody answers", "nobody leads", "crash loop", "no registry"])
    def test_claims_grow_whatever_else_there_is(self, seen: Observed, ill: str) -> None:
        """Brokers that end on a full disk need the room before anything else."""
        match ill:
            case "nobody answers":
                look = replace(seen, registry=None)
            case "nobody leads":
                look = leaderless(seen, in_sync=False)
            case "crash loop":
                look = changed(seen, "demo-s0-0", ready=False, broker=None)
                look = changed(look, "demo-s0-0", waiting="CrashLoopBackOff", annotations={})
            case _:
                assert seen.registry is not None
                look = replace(seen, registry=replace(seen.registry, connected=False))
        found = plan(wanted(self.LARGER), look, START)
        assert len(of(found, GrowClaim)) == len(seen.claims) == 6
        assert "Expanding" in reasons(found)

    def test_a_class_that_cannot_grow_is_said(self) -> None:
        seen = replace(running(), expandable={"": False})
        found = plan(wanted(self.LARGER), seen, START)
        assert "ExpansionUnsupported" in reasons(found)
        assert not of(found, GrowClaim)
        assert all(action.orphan for action in of(found, DeleteChild))

    def test_claim_templates_that_change_have_sets_made_anew(self) -> None:
        """Kubernetes refuses to change them in a StatefulSet; pods stay as they are."""
        world = World(wanted())
        world.settle()
        world.done.clear()
        labelled = {"persistentVolumeClaim": {"metadata": {"labels": {"team": "orders"}}}}
        world.wish = wanted({"spec.brokers.template": labelled})
        found = plan(world.wish, world.observe(), world.now)
        assert not [a for a in of(found, Apply) if a.manifest["kind"] == "StatefulSet"]
        gone = of(found, DeleteChild)
        assert {a.name for a in gone} == {"demo-s0", "demo-s1"}
        assert all(a.orphan for a in gone)
        world.settle()
        assert not [action for action in world.done if isinstance(action, DeletePod)]

    def test_a_class_that_cannot_grow_keeps_nothing_else_back(self) -> None:
        """Pods get their new template, once: the set that makes them must have it, too."""
        world = World(wanted(), expandable={"": False})
        world.settle()
        world.done.clear()
        world.wish = wanted(self.LARGER | {"spec.image": "mine:2"})
        world.settle()
        restarted = [action.name for action in world.done if isinstance(action, DeletePod)]
        assert sorted(restarted) == sorted(set(restarted))
        assert len(restarted) == 6
        assert {
            p.annotations[names.TEMPLATE_HASH] for p in world.pods.values() if p.shard == 0
        } == {Look(world.wish, world.observe(), world.now).notes(0)[names.TEMPLATE_HASH]}

    def test_a_volume_that_never_grows_keeps_nothing_else_back(self, seen: Observed) -> None:
        claims = tuple(replace(c, requested=20 << 30, capacity=10 << 30) for c in seen.claims)
        slow = replace(seen, claims=claims)
        found = plan(wanted(), slow, START)
        assert (found.row, found.actions) == (Row.STORAGE, ())
        assert found.wait is not None
        assert "Expanding" in reasons(found)
        noted = next(p for p in slow.pods if p.name == "demo-s1-1").annotations
        look = changed(slow, "demo-s1-1", annotations={**noted, names.RESTART: "please"})
        found = plan(wanted(), look, START)
        assert found.row is Row.ROLLOUT
        assert {"Expanding", "ManualRestart"} <= reasons(found)

    def test_what_somebody_made_larger_stays(self, seen: Observed) -> None:
        claims = tuple(replace(c, requested=99 << 30, capacity=99 << 30) for c in seen.claims)
        found = plan(wanted(), replace(seen, claims=claims), START)
        assert (found.row, found.actions) == (Row.SETTLED, ())
        assert "LargerThanSpec" in reasons(found)

    def test_a_file_system_that_waits_for_a_start_gets_one(self, seen: Observed) -> None:
        claims = tuple(
            replace(c, conditions=frozenset({"FileSystemResizePending"})) if c.ordinal == 1 else c
            for c in seen.claims
        )
        found = plan(wanted(), replace(seen, claims=claims), START)
        assert "VolumeResize" in reasons(found)
        actions = [*of(found, DeletePod), *of(found, Handover)]
        assert {getattr(a, "name", None) or a.pod for a in actions} == {"demo-s0-1"}


def test_a_restart_of_one_pod_by_annotation(seen: Observed) -> None:
    noted = next(p for p in seen.pods if p.name == "demo-s1-1").annotations
    look = changed(seen, "demo-s1-1", annotations={**noted, names.RESTART: "please"})
    found = plan(wanted(), look, START)
    assert "ManualRestart" in reasons(found)
    actions = [*of(found, DeletePod), *of(found, Handover)]
    assert {getattr(a, "name", None) or a.pod for a in actions} == {"demo-s1-1"}


def test_stuck_pods_go_only_if_that_may_cure_them(seen: Observed) -> None:
    ill: dict[str, Any] = {"ready": False, "waiting": "CrashLoopBackOff", "broker": None}
    same = changed(seen, "demo-s0-1", **ill)
    assert not of(plan(wanted(), same, START), DeletePod)
    old = changed(seen, "demo-s0-1", **ill, annotations={names.TEMPLATE_HASH: "old"})
    found = plan(wanted(), old, START)
    assert found.row is Row.STUCK
    assert [a.name for a in of(found, DeletePod)] == ["demo-s0-1"]


def test_explain_says_what_comes_next(seen: Observed) -> None:
    assert (
        plan(wanted(), seen, START).explain()
        == "20 Settled; next: look again when something changes"
    )
    assert plan(wanted(), leaderless(seen, in_sync=False), START).explain() == (
        "9 ShardWithoutMaster; waits for shard-0: a member that was in sync;"
        " next: or imago.dev/allow-data-loss: '0'"
    )


def test_pods_of_zookeeper_are_no_brokers(seen: Observed) -> None:
    servers: tuple[Pod, ...] = seen.pods_of(None)
    assert [pod.broker for pod in servers] == [None, None, None]
