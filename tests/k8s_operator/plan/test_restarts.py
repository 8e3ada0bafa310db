"""Which outdated pods are restarted when, and which are spared."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from imago_operator.certificates.state import (
    QUORUM,
    ZOOKEEPER,
    SeenCertificate,
    SeenCertificates,
)
from imago_operator.model import names
from imago_operator.model.actions import (
    Apply,
    DeletePod,
    Handover,
)
from imago_operator.model.state import Observed, RestartCheck
from imago_operator.plan import PlanRow, plan
from imago_operator.plan.look import ClusterLook
from imago_operator.plan.restarts import trying
from imago_operator.plan.restarts.permission import approval_id
from imago_testing.operated.looks import (
    answering,
    changed,
    down,
    lacking,
    of,
    reasons,
    running,
    taken,
    unready,
)
from imago_testing.operated.resources import wanted
from imago_testing.operated.things import START
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    from datetime import datetime

    from imago_operator.model.desired import Desired


def certified(seen: Observed, since: datetime, own: str) -> Observed:
    """Return what is seen where ZooKeeper's certificate was written then."""
    certificate = SeenCertificate(
        data={QUORUM: own},
        signer="ours",
        trusted="ours",
        names="theirs",
        since=since,
        not_after=since + timedelta(days=90),
    )
    made = SeenCertificates(read=frozenset({ZOOKEEPER}), members={ZOOKEEPER: certificate})
    return replace(seen, certificates=made)


@pytest.fixture(name="seen", scope="module")
def _seen() -> Observed:
    return running()


class TestRestarts:
    """The templates are applied, and every pod is outdated."""

    DESIRED: ClassVar[dict[str, Any]] = {"spec.image": "mine:2"}

    @pytest.fixture(autouse=True)
    def _all_have_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """On which shard a template is tried first, `test_bad_settings` says."""
        monkeypatch.setattr(trying, "held_back", lambda *_: False)

    def applied(self, changes: dict[str, Any] | None = None) -> tuple[Desired, Observed]:
        world = ClusterWorld(wanted())
        world.settle()
        desired = wanted({**self.DESIRED, **(changes or {})})
        world.desired = desired
        first = plan(desired, world.observe(), world.now)
        for action in of(first, Apply):
            world.do(action)
        return desired, world.observe()

    def test_a_follower_goes_first(self) -> None:
        desired, seen = self.applied()
        found = plan(desired, seen, START)
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
            ({"restart": None}, "to answer its restart check"),
        ],
    )
    def test_the_broker_is_asked(self, what: dict[str, Any], text: str) -> None:
        desired, seen = self.applied({"spec.updatePolicy": {"maxUnavailableShards": 1}})
        for pod in seen.pods:
            if pod.broker:
                seen = answering(seen, pod.name, **what)
        found = plan(desired, seen, START)
        assert not of(found, DeletePod)
        assert found.wait is not None
        assert text in found.wait.message
        assert found.record["rollout"].blocked_by == found.wait.message

    def test_a_shard_that_lacks_a_member_waits(self) -> None:
        desired, seen = self.applied()
        ready = {p.name: p for p in seen.pods}["demo-s1-2"]
        fresh = ClusterLook(desired, seen, START).notes(1)
        seen = changed(seen, ready.name, ready=False, annotations=fresh)
        found = plan(desired, seen, START)
        assert not of(found, DeletePod)
        assert found.wait is not None
        assert "whole again" in found.wait.message or "to be ready" in found.wait.message

    def test_what_is_down_already_goes_first(self) -> None:
        desired, seen = self.applied()
        assert taken(plan(desired, down(seen, "demo-s1-2"), START)) == ["demo-s1-2"]

    def test_members_in_sync_are_spared_whatever_readiness_says(self) -> None:
        """ZooKeeper has just gone on: no pod is ready, and every member is in sync."""
        desired, seen = self.applied()
        found = plan(desired, unready(seen, 5), START)
        assert taken(found) == []
        assert found.wait is not None
        assert found.wait.message == "shard-0: demo-s0-0, demo-s0-1, demo-s0-2 to be ready"

    def test_pods_that_stay_unready_are_restarted_one_by_one(self) -> None:
        """Their disks are full: the new revision may be what cures that."""
        desired, seen = self.applied()
        assert seen.registry is not None
        (name,) = taken(plan(desired, unready(seen, 61), START))
        pod = next(p for p in seen.pods if p.name == name)
        assert pod.broker is not None
        assert pod.broker.uuid != seen.registry.shards[0].master
        refused = unready(seen, 61)
        for pod in seen.pods_of(0):
            refused = answering(refused, pod.name, restart=None)
        assert not [n for n in taken(plan(desired, refused, START)) if n.startswith("demo-s0")]

    def test_a_member_that_is_silent_may_be_in_sync(self) -> None:
        desired, seen = self.applied()
        assert taken(plan(desired, changed(seen, "demo-s0-1", broker=None), START)) == []
        unknown = changed(seen, "demo-s0-1", broker=None, ready=False)
        assert taken(plan(desired, unknown, START)) == []

    def test_a_member_that_has_begun_anew_is_known_before_it_is_in_sync(self) -> None:
        desired, seen = self.applied()
        assert taken(plan(desired, answering(seen, "demo-s0-1", caught_up=False), START)) == []

    def test_beside_one_that_goes_nothing_is_taken(self) -> None:
        desired, seen = self.applied()
        look = changed(down(seen, "demo-s0-2"), "demo-s0-1", deleting=True)
        assert taken(plan(desired, look, START)) == []

    def test_of_two_that_lack_none_is_taken_before_its_time_is_over(self) -> None:
        desired, seen = self.applied()
        two = ("demo-s0-1", "demo-s0-2")
        look = unready(down(seen, *two), 30, *two)
        assert taken(plan(desired, look, START)) == []
        look = unready(lacking(seen, *two), 599, *two)
        assert taken(plan(desired, look, START)) == []
        assert taken(plan(desired, unready(look, 601, *two), START)) == ["demo-s0-1"]

    def test_members_that_lack_anyway_go_in_one_shard_after_the_other(self) -> None:
        """ZooKeeper has just gone on: a member of each shard is about to be in sync again."""
        desired, seen = self.applied()
        look = lacking(seen, "demo-s0-2", "demo-s1-2")
        assert taken(plan(desired, look, START)) == ["demo-s0-2"]
        goes = changed(look, "demo-s0-2", deleting=True)
        gone = replace(look, pods=tuple(p for p in look.pods if p.name != "demo-s0-2"))
        fresh = ClusterLook(desired, seen, START).notes(0)
        begins = changed(look, "demo-s0-2", annotations=fresh)
        for first in (goes, gone, begins, unready(begins, 599, "demo-s0-2")):
            assert taken(plan(desired, first, START)) == []
        assert taken(plan(desired, unready(begins, 601, "demo-s0-2"), START)) == ["demo-s1-2"]
        back = changed(lacking(seen, "demo-s1-2"), "demo-s0-2", annotations=fresh)
        assert taken(plan(desired, back, START)) == ["demo-s1-2"]

    def test_what_waits_for_good_to_be_made_counts_as_stuck(self) -> None:
        """A volume that no Secret is there for: nothing of it is in `STUCK`."""
        desired, seen = self.applied()
        ill: dict[str, Any] = {"ready": False, "waiting": "ContainerCreating", "broker": None}
        for pod in seen.pods:
            seen = changed(seen, pod.name, **ill, turned=START - timedelta(seconds=601))
        found = plan(desired, replace(seen, registry=None), START)
        assert found.row is PlanRow.STUCK
        assert taken(found) == ["demo-s0-0", "demo-s1-0"]

    def test_outside_of_a_window_nothing_goes(self) -> None:
        window = {"mode": "Window", "windows": [{"schedule": "0 2 * * 6", "duration": "2h"}]}
        desired, seen = self.applied({"spec.updatePolicy": window})
        closed = plan(desired, replace(seen, window_open=False), START)
        assert "OutsideWindow" in reasons(closed)
        assert not of(closed, DeletePod)
        assert of(plan(desired, seen, START), DeletePod)

    def test_a_person_says_when(self) -> None:
        manual = {"spec.updatePolicy": {"mode": "Manual"}}
        desired, seen = self.applied(manual)
        found = plan(desired, seen, START)
        assert "ApprovalRequired" in reasons(found)
        (pending,) = found.record["pending_approvals"]
        assert pending.id == approval_id(ClusterLook(desired, seen, START))
        said = wanted({**self.DESIRED, **manual}, {names.APPROVE: pending.id})
        assert of(plan(said, seen, START), DeletePod)
        other = wanted({**self.DESIRED, **manual}, {names.APPROVE: "restart-else"})
        assert not of(plan(other, seen, START), DeletePod)

    def test_servers_of_zookeeper_go_one_by_one_and_first(self) -> None:
        memory = {"spec.zookeeper.managed.resources": {"requests": {"memory": "1Gi"}}}
        desired, seen = self.applied(memory)
        later = START + timedelta(minutes=1)  # they have just begun
        (action,) = of(plan(desired, seen, later), DeletePod)
        assert (action.name, action.shard) == ("demo-zookeeper-2", None)
        down = changed(
            seen,
            "demo-zookeeper-0",
            ready=False,
            annotations=ClusterLook(desired, seen, START).notes(None),
        )
        assert not of(plan(desired, down, later), DeletePod)

    def test_servers_of_zookeeper_that_elect_are_left_to_it(self) -> None:
        memory = {"spec.zookeeper.managed.resources": {"requests": {"memory": "1Gi"}}}
        desired, seen = self.applied(memory)
        one = changed(seen, "demo-zookeeper-1", ready=False, turned=START)
        assert taken(plan(desired, one, START)) == ["demo-zookeeper-1"]
        two = changed(one, "demo-zookeeper-0", ready=False, turned=START)
        assert taken(plan(desired, two, START)) == []
        late = changed(two, "demo-zookeeper-0", turned=START - timedelta(seconds=601))
        assert taken(plan(desired, late, START)) == ["demo-zookeeper-0"]
        going = changed(late, "demo-zookeeper-2", deleting=True)
        assert taken(plan(desired, going, START)) == []

    def test_a_server_of_zookeeper_that_is_back_is_found_before_the_next_goes(self) -> None:
        memory = {"spec.zookeeper.managed.resources": {"requests": {"memory": "1Gi"}}}
        desired, seen = self.applied(memory)
        for number in range(3):
            seen = changed(seen, f"demo-zookeeper-{number}", turned=START - timedelta(hours=1))
        back = changed(seen, "demo-zookeeper-1", turned=START - timedelta(seconds=34))
        found = plan(desired, back, START)
        assert taken(found) == []
        assert found.wait is not None
        assert found.wait.message == "demo-zookeeper-1 to be found by the others"
        assert taken(plan(desired, back, START + timedelta(seconds=1))) == ["demo-zookeeper-2"]
        for seconds, next_one in ((2, []), (90, ["demo-zookeeper-2"])):  # a clock ahead of ours
            ahead = changed(seen, "demo-zookeeper-1", turned=START + timedelta(seconds=seconds))
            assert taken(plan(desired, ahead, START)) == next_one

    def test_no_server_of_zookeeper_goes_before_all_know_their_certificate(self) -> None:
        """One that begins has the latest, which others do not trust yet; those begun since do."""
        memory = {"spec.zookeeper.managed.resources": {"requests": {"memory": "1Gi"}}}
        desired, seen = self.applied(memory)
        for number in range(3):
            seen = changed(seen, f"demo-zookeeper-{number}", turned=START - timedelta(hours=1))

        def waits(ago: float, seen: Observed = seen, own: str = "made") -> str:
            given = certified(seen, START - timedelta(seconds=ago), own)
            found = plan(desired, given, START)
            assert taken(found) == ([] if found.wait else ["demo-zookeeper-2"])
            return found.wait.message if found.wait else ""

        assert waits(3601) == ""
        assert waits(329) == "ZooKeeper's servers to know their certificate"
        assert waits(330) == ""
        for number in range(3):
            ago = START - timedelta(seconds=100)
            seen = changed(seen, f"demo-zookeeper-{number}", turned=ago)
        assert waits(101, seen) == ""
        assert waits(99, seen) != ""
        assert waits(3601, own="") == "quorum.crt in Secret demo-zookeeper-tls"

    def test_nor_is_it_late_meanwhile(self) -> None:
        memory = {"spec.zookeeper.managed.resources": {"requests": {"memory": "1Gi"}}}
        desired, seen = self.applied({"spec.updatePolicy.readyTimeout": "10s", **memory})
        back = changed(seen, "demo-zookeeper-1", turned=START - timedelta(seconds=1))
        waiting = plan(desired, back, START).wait
        assert waiting is not None
        assert waiting.deadline_s is not None
        assert waiting.deadline_s > 35

    def test_a_master_alone_hands_nothing_over(self) -> None:
        world = ClusterWorld(wanted({"spec.brokers.replicasPerShard": 1}))
        world.settle()
        world.desired = wanted({"spec.brokers.replicasPerShard": 1, **self.DESIRED})
        world.look()
        found = plan(world.desired, world.observe(), world.now)
        assert of(found, DeletePod)
        assert not of(found, Handover)


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
    assert found.row is PlanRow.STUCK
    assert [a.name for a in of(found, DeletePod)] == ["demo-s0-1"]


def test_what_fails_is_said_in_its_own_words(seen: Observed) -> None:
    ill: dict[str, Any] = {"ready": False, "waiting": "CrashLoopBackOff", "broker": None}
    words = "broker ended with code 2: store.disk_full_ratio: 7.0, must be at most 1"
    look = changed(changed(seen, "demo-s0-1", **ill, failure=words), "demo-s0-2", failure=words)
    (said,) = [f for f in plan(wanted(), look, START).findings if f.reason == "PodsFailing"]
    assert (said.type, said.message) == ("Degraded", f"demo-s0-1 (and demo-s0-2): {words}.")


@pytest.mark.parametrize("unready", [0, 5])
def test_updating_lasts_until_the_last_pod_is_back(unready: int) -> None:
    world = ClusterWorld(wanted())
    world.settle()
    world.desired = wanted({"spec.image": "mine:2"})
    world.unready, world.absence = unready, 2
    before = {pod.uid for pod in world.pods.values() if pod.shard is not None}
    updating = False
    for _ in range(400):
        world.look()
        told = "Updating" in {c.type for c in world.status.conditions}
        brokers = [pod for pod in world.pods.values() if pod.shard is not None]
        whole = len(brokers) == 6 and all(pod.ready for pod in brokers)
        if updating and not told:
            assert whole, "a pod is not back yet"
            break
        updating = updating or told
        world.turn()
    assert not before & {pod.uid for pod in world.pods.values()}
    assert world.status.rollout is None
