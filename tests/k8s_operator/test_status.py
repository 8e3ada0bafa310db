"""What is said about a cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, get_args

import pytest

from imago_operator.model import actions
from imago_operator.plan import plan
from imago_operator.reporting.happenings import events_of, told
from imago_operator.reporting.status import bucket, status_of
from imago_operator.spec.cluster.cluster_status import ClusterStatus
from imago_operator.spec.kinds import CLUSTER
from imago_operator.spec.schema.build import build
from imago_operator.spec.schema.fields import to_json
from imago_operator.spec.schema.schema import problems
from imago_testing.operated.looks import answering
from imago_testing.operated.resources import wanted
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    from imago_operator.model.state import Observed


@pytest.fixture(name="world")
def _world() -> ClusterWorld:
    world = ClusterWorld(wanted())
    world.settle()
    return world


def test_a_status_fits_its_schema_and_is_read_back(world: ClusterWorld) -> None:
    written = to_json(world.status)
    assert list(problems(CLUSTER.status_schema, written, "status")) == []
    assert build(ClusterStatus, written) == world.status


def test_what_clients_need_is_shown(world: ClusterWorld) -> None:
    assert world.status.zookeeper == "demo-zookeeper.mq.svc:2181"
    assert world.status.bootstrap == "demo-bootstrap.mq.svc:9876"
    assert world.status.selector == "imago.dev/cluster=demo,imago.dev/role=master"
    (first, *_) = world.status.shards
    assert first.master is not None
    assert {member.state for member in first.members} == {"InSync"}


@pytest.mark.parametrize(
    ("lag", "shown"), [(0, "0"), (1, "<1Mi"), (2 << 20, "<64Mi"), (65 << 20, ">64Mi")]
)
def test_lags_are_rough(lag: int, shown: str) -> None:
    assert bucket(lag) == shown


def test_a_condition_keeps_the_moment_of_its_last_change(world: ClusterWorld) -> None:
    before = {c.type: c.last_transition_time for c in world.status.conditions}
    world.now += timedelta(hours=1)
    world.look()
    assert {c.type: c.last_transition_time for c in world.status.conditions} == before
    world.zookeeper = False
    world.look()
    after = {c.type: c for c in world.status.conditions}
    assert after["Ready"].last_transition_time != before["Ready"]
    assert after["Ready"].reason == "ZooKeeperUnavailable"
    assert after["StorageReady"].last_transition_time == before["StorageReady"]


def test_conditions_that_are_bad_news_go_when_they_are_over(world: ClusterWorld) -> None:
    world.desired = wanted({"spec.image": "mine:2"})
    world.look()
    world.look()
    assert {"Updating", "Reconciling"} <= {c.type for c in world.status.conditions}
    world.settle()
    assert not {"Updating", "Reconciling", "Stalled"} & {c.type for c in world.status.conditions}


def test_events_are_about_changes_alone(world: ClusterWorld) -> None:
    seen = world.observe()
    found = plan(world.desired, seen, world.now)
    assert events_of(seen.status, status_of(world.desired, seen, found, world.now), found) == ()

    world.zookeeper = False
    seen = world.observe()
    found = plan(world.desired, seen, world.now)
    events = events_of(seen.status, status_of(world.desired, seen, found, world.now), found)
    refused = {("Warning", "ZooKeeperUnavailable"), ("Warning", "PutsRefused")}
    assert {(e.type, e.reason) for e in events} == refused


def test_events_say_what_a_condition_means_that_has_nothing_to_add(world: ClusterWorld) -> None:
    seen = world.observe()
    found = plan(world.desired, seen, world.now)
    after = status_of(world.desired, seen, found, world.now)
    events = events_of(replace(seen.status, conditions=()), after, found)
    told = {event.reason: event.message for event in events}
    assert told["EveryShardHasMaster"] == "Every shard accepts and delivers messages."
    assert told["Bound"] == "Claims are bound and have the requested size."
    assert told["AllShardsServing"] == "2 shards in service."


def test_what_is_taken_away_is_an_event(world: ClusterWorld) -> None:
    world.desired = wanted({"spec.image": "mine:2"})
    world.look()
    seen = world.observe()
    found = plan(world.desired, seen, world.now)
    events = events_of(seen.status, status_of(world.desired, seen, found, world.now), found)
    assert "DeletePod" in {event.reason for event in events}


def test_an_unread_cluster_keeps_what_was_known(world: ClusterWorld) -> None:
    seen = replace(world.observe(), synced=False)
    found = plan(world.desired, seen, world.now)
    after = status_of(world.desired, seen, found, world.now)
    assert after.shards == world.status.shards
    assert {c.reason for c in after.conditions if c.type == "Ready"} == {"NotYetReconciled"}


def test_what_is_taken_away_is_told_in_words() -> None:
    taken = (
        actions.DeletePod("demo-s0-1", "u", 0, "ConfigNeedsRestart"),
        actions.Handover("demo-s0-0", "u", 0, 3),
        actions.DeleteChild("StatefulSet", "demo-s1", "u"),
        actions.DeleteChild("StatefulSet", "demo-s1", "u", orphan=True),
        actions.DeleteClaim("data-demo-s1-0", "u", 1),
        actions.OwnClaim("data-demo-s1-0", "u", owned=True),
        actions.Stop({}, 1),
        actions.Hibernate({}, 1),
        actions.Hibernate({}),
        actions.Elect("demo-s0-0", "u", 0),
        actions.FenceMember("demo-s0-0", "u", 0),
        actions.Cordon(1),
        actions.RaiseLevel(2),
        actions.MarkDrained(1),
    )
    assert set(map(type, taken)) == {
        kind for kind in get_args(actions.Action) if kind not in actions.ADDITIVE
    }
    said = [told(action) for action in taken]
    assert said[0] == "Pod demo-s0-1 is deleted: ConfigNeedsRestart."
    assert not any("(" in text for text in said)


def _with_member(world: ClusterWorld, **change: object) -> tuple[Observed, str]:
    """Return a look at a cluster of which one member is not as it should be, and its pod."""
    seen = world.observe()
    assert seen.registry is not None
    shard = seen.registry.shards[0]
    uuid = next(member.uuid for member in shard.members if member.uuid != shard.master)
    members = tuple(replace(m, **change) if m.uuid == uuid else m for m in shard.members)  # type: ignore[arg-type]
    shards = {**seen.registry.shards, 0: replace(shard, members=members)}
    pod = next(p.name for p in seen.pods if p.broker and p.broker.uuid == uuid)
    return replace(seen, registry=replace(seen.registry, shards=shards)), pod


@pytest.mark.parametrize(
    ("change", "reason", "said"),
    [
        ({"problem": "the leader sent what it cannot read"}, "MemberStuck", "what it cannot read"),
        ({"damaged": True}, "MemberDamaged", "a part of its log is out of service"),
    ],
)
def test_members_that_are_stuck_or_damaged_are_named(
    world: ClusterWorld, change: dict[str, object], reason: str, said: str
) -> None:
    assert "MembersImpaired" not in {c.type for c in world.status.conditions}
    seen, pod = _with_member(world, **change)
    found = plan(world.desired, seen, world.now)
    assert found.actions == ()
    after = status_of(world.desired, seen, found, world.now)
    (condition,) = [c for c in after.conditions if c.type == "MembersImpaired"]
    assert (condition.status, condition.reason) == ("True", reason)
    assert condition.message.startswith(pod)
    assert said in condition.message
    (event,) = events_of(seen.status, after, found)
    assert (event.type, event.reason) == ("Warning", reason)


def test_a_master_that_does_not_reach_its_bucket_is_named(world: ClusterWorld) -> None:
    seen = answering(world.observe(), "demo-s0-0", bucket_away=True)
    after = status_of(world.desired, seen, plan(world.desired, seen, world.now), world.now)
    assert _condition(after, "MembersImpaired") == (
        "True",
        "BucketAway",
        "demo-s0-0: old messages are in a bucket that it does not reach.",
    )
    assert _condition(after, "Ready")[0] == "True"


def _condition(found: ClusterStatus, type_: str) -> tuple[str, str, str]:
    said = next(c for c in found.conditions if c.type == type_)
    return said.status.value, said.reason, said.message


def test_without_an_answer_nobody_knows_whether_shards_are_served(world: ClusterWorld) -> None:
    seen = world.observe()
    silent = tuple(replace(pod, broker=None) for pod in seen.pods)
    seen = replace(seen, registry=None, pods=silent)
    found = plan(world.desired, seen, world.now)
    status, reason, message = _condition(
        status_of(world.desired, seen, found, world.now), "Available"
    )
    assert (status, reason) == ("Unknown", "NoBrokerAnswers")
    assert "no master" not in message


def test_pods_that_cannot_start_are_named_while_others_are_restarted(world: ClusterWorld) -> None:
    world.desired = wanted({"spec.image": "mine:2"})
    world.broken_images.add("mine:2")
    for _ in range(12):
        world.look()
        world.turn()
    seen = world.observe()
    (bad,) = [pod.name for pod in seen.pods if pod.waiting == "ImagePullBackOff"]
    after = status_of(world.desired, seen, plan(world.desired, seen, world.now), world.now)
    assert _condition(after, "Updating")[0] == "True"
    assert _condition(after, "Degraded") == (
        "True",
        "ImageMissing",
        f"Image mine:2 cannot be pulled for {bad}.",
    )
    said = "0/3 nodes are available: 3 Insufficient cpu."
    pods = tuple(
        replace(p, waiting="Unschedulable", missing_image="", unscheduled=said)
        if p.name == bad
        else p
        for p in seen.pods
    )
    seen = replace(seen, pods=pods)
    after = status_of(world.desired, seen, plan(world.desired, seen, world.now), world.now)
    assert _condition(after, "Updating")[0] == "True"
    assert _condition(after, "Degraded")[1:] == (
        "PodsUnschedulable",
        f"No node takes {bad}: {said}",
    )


@pytest.mark.parametrize(
    "changes", [{"spec.image": "mine:2"}, {"spec.brokers.replicasPerShard": 3}]
)
def test_of_a_restart_those_count_that_were_restarted_for_it(
    world: ClusterWorld, changes: dict[str, str]
) -> None:
    """Servers of ZooKeeper, which have the template they are to have, are not among them."""
    world.desired = wanted(changes | {"spec.logging.level": "debug"})
    counts = []
    for _ in range(200):
        world.look()
        world.turn()
        if (rollout := world.status.rollout) is not None:
            counts.append((rollout.updated, rollout.remaining, rollout.started_at))
    assert counts
    assert counts[0][:2] == (0, 6)
    assert {updated + remaining for updated, remaining, _ in counts} == {6}
    assert [updated for updated, *_ in counts] == sorted(updated for updated, *_ in counts)
    assert len({began for *_, began in counts}) == 1
