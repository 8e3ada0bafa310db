"""Each case by itself: what is seen, what is done, what is said, what is waited for."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from imago_operator.model import names
from imago_operator.model.actions import (
    Apply,
    CreateToken,
    DeleteChild,
    DeletePod,
    Elect,
    LabelPod,
    OwnClaim,
    SetConfig,
)
from imago_operator.model.desired import desired_of
from imago_operator.model.state import Observed, Pod, written
from imago_operator.plan import PlanRow, plan
from imago_testing.operated.looks import (
    answering,
    leaderless,
    of,
    reasons,
    running,
    waited,
)
from imago_testing.operated.resources import OPERATOR, resource, wanted
from imago_testing.operated.things import START
from imago_testing.operated.world import ClusterWorld


@pytest.fixture(name="seen", scope="module")
def _seen() -> Observed:
    return running()


class TestStandingStill:
    def test_a_deleted_cluster_is_left_to_its_owner_references(self, seen: Observed) -> None:
        manifest = resource({"spec.image": "mine:2"})
        manifest["metadata"]["deletionTimestamp"] = written(START)
        found = plan(desired_of(manifest, OPERATOR), seen, START)
        assert (found.row, found.actions) == (PlanRow.DELETING, ())

    def test_a_paused_cluster_is_left_alone(self, seen: Observed) -> None:
        desired = wanted({"spec.image": "mine:2"}, {names.PAUSE: "true"})
        found = plan(desired, seen, START)
        assert (found.row, found.actions) == (PlanRow.PAUSED, ())

    def test_a_wrong_spec_stops_nothing(self, seen: Observed) -> None:
        desired = desired_of(resource({"spec.brokers.shards": 99}), OPERATOR)
        found = plan(desired, seen, START)
        assert (found.row, found.actions) == (PlanRow.INVALID, ())
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
        assert (found.row, found.actions) == (PlanRow.READING, ())


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

    def test_claims_go_with_the_cluster_if_that_is_desired(self, seen: Observed) -> None:
        policy = {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}
        desired = wanted({"spec.brokers.storage": {"size": "10Gi", **policy}})
        assert len(of(plan(desired, seen, START), OwnClaim)) == len(seen.claims)

    def test_settings_of_one_broker_are_put_right(self, seen: Observed) -> None:
        look = answering(seen, "demo-s0-1", config={"metaq.stat": True, "newer.key": 1})
        (action,) = of(plan(wanted(), look, START), SetConfig)
        assert (action.pod, action.values) == ("demo-s0-1", {"metaq.stat": False})


class TestRegistry:
    def test_before_anybody_answers_it_begins(self) -> None:
        world = ClusterWorld(wanted())
        world.look()
        found = plan(world.desired, world.observe(), world.now)
        assert found.row is PlanRow.BOOTSTRAP
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
        assert found.row is PlanRow.FAILOVER
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
        world = ClusterWorld(wanted())
        world.settle()
        world.desired = wanted({"spec.image": "mine:2"})
        world.look()
        found = plan(world.desired, leaderless(world.observe(), in_sync=True), world.now)
        assert not of(found, DeletePod)


def test_explain_says_what_comes_next(seen: Observed) -> None:
    assert (
        plan(wanted(), seen, START).explain()
        == "25 Settled; next: look again when something changes"
    )
    assert plan(wanted(), leaderless(seen, in_sync=False), START).explain() == (
        "10 ShardWithoutMaster; waits for shard-0: a member that was in sync;"
        " next: or imago.dev/allow-data-loss: '0'"
    )


def test_pods_of_zookeeper_are_no_brokers(seen: Observed) -> None:
    servers: tuple[Pod, ...] = seen.pods_of(None)
    assert [pod.broker for pod in servers] == [None, None, None]
