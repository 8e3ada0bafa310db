"""What is done about an ImagoTopic, case by case."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from imago_operator.contents.belonging import FINALIZER, Claimant
from imago_operator.contents.conditions import ContentRefusal
from imago_operator.contents.topics import DeleteTopic, PutTopic, TopicLook, plan, status_of, wanted
from imago_operator.contents.values import SeenTopic, TopicQueues
from imago_operator.model import names
from imago_operator.model.desired import fingerprint
from imago_operator.spec.kinds import TOPIC
from imago_operator.spec.schema.fields import to_json
from imago_operator.spec.schema.schema import problems
from imago_operator.spec.topic import TopicStatus
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.kubernetes.fake_kube_port import START

ME = Claimant(namespace="mq", name="demo", uid="u-2", created="2026-01-01T00:00:02Z")
OLDER = replace(ME, name="older", uid="u-1", created="2026-01-01T00:00:01Z")
TWIN = replace(ME, name="twin", uid="u-1")
RELEASE_S = 900.0


def look(spec: dict[str, Any] | None = None, **changes: Any) -> TopicLook:
    read = TOPIC.read(manifest("ImagoTopic", {f"spec.{k}": v for k, v in (spec or {}).items()}))
    known: dict[str, Any] = {"me": ME, "spec": read, "name": "orders"}
    return TopicLook(**(known | changes))


def seen(*queues: TopicQueues, **changes: Any) -> SeenTopic:
    shards = dict(enumerate(queues or (TopicQueues(8, 8), TopicQueues(8, 8))))
    return SeenTopic(name="orders", shards=shards, **changes)


def confirmed(of: TopicLook) -> TopicLook:
    """Return the look as it is once brokers have confirmed what the spec says."""
    mark = fingerprint(wanted(of.spec))
    return replace(of, status=TopicStatus(topic_name="orders", applied_hash=mark))


def ready_of(at: TopicLook) -> tuple[bool | None, str]:
    found = next(
        f for f in plan(at, START, release_after_s=RELEASE_S).findings if f.type == "Ready"
    )
    return found.holds, found.reason


def body_of(at: TopicLook) -> dict[str, Any] | None:
    act = plan(at, START, release_after_s=RELEASE_S).act
    assert not isinstance(act, DeleteTopic)
    return None if act is None else dict(act.body)


def test_a_new_topic_gets_all_that_is_said_of_it() -> None:
    said = {
        "partitions": 4,
        "acknowledgement": "leader-fsync",
        "retention": {"time": "2h"},
        "dialects": "RocketMQ",
        "ordered": True,
        "config": {"metaq.stat": "true", "limit": 3},
        "placement": {"shardIds": [1, 0]},
    }
    assert body_of(look(said)) == {
        "queues": 4,
        "order": True,
        "acknowledgement": "leader-fsync",
        "retentionMs": 7_200_000,
        "attributes": {"metaq.stat": "true", "limit": "3"},
        "dialects": "rocketmq",
        "shards": [0, 1],
    }
    assert body_of(look({"placement": {"count": 2}})) == {"queues": 8, "order": False, "shards": 2}


DIFFERENCES: list[tuple[str, dict[str, Any], SeenTopic, dict[str, Any] | None]] = [
    ("as it is to be", {}, seen(), None),
    ("fewer queues on one shard", {}, seen(TopicQueues(8, 8), TopicQueues(4, 4)), {"queues": 8}),
    ("closed to writing, but as large", {}, seen(TopicQueues(8, 8), TopicQueues(0, 8, 4)), None),
    ("closed, and smaller", {}, seen(TopicQueues(8, 8), TopicQueues(0, 4, 4)), {"queues": 8}),
    ("more queues stay", {}, seen(TopicQueues(16, 16)), None),
    ("more here, fewer there", {}, seen(TopicQueues(16, 16), TopicQueues(4, 4)), None),
    ("order", {"ordered": True}, seen(), {"order": True}),
    ("a level", {"acknowledgement": "leader"}, seen(), {"acknowledgement": "leader"}),
    ("retention", {"retention": {"time": "1s"}}, seen(), {"retentionMs": 1000}),
    (
        "one attribute of two",
        {"config": {"a": "1", "b": 2}},
        seen(attributes={"a": "1", "b": "3"}),
        {"attributes": {"b": "2"}},
    ),
    ("what is not said stays", {}, seen(attributes={"acknowledgement": "leader"}), None),
    ("more shards by number", {"placement": {"count": 3}}, seen(), {"shards": 3}),
    ("fewer shards by number", {"placement": {"count": 1}}, seen(), None),
    ("a shard more by name", {"placement": {"shardIds": [0, 2]}}, seen(), {"shards": [0, 1, 2]}),
    ("a closed shard does not count", {"placement": {"count": 2}},
     seen(TopicQueues(8, 8), TopicQueues(0, 8, 4)), {"shards": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("said", "spec", "topic", "body"), DIFFERENCES)
def test_only_what_differs_is_sent(
    said: str, spec: dict[str, Any], topic: SeenTopic, body: dict[str, Any] | None
) -> None:
    at = confirmed(look(spec, topic=topic))
    assert body_of(at) == body, said


def test_what_brokers_never_confirmed_is_sent_once_as_a_whole() -> None:
    at = look({"config": {"a": "1"}}, topic=seen(attributes={"a": "1"}))
    assert body_of(at) == {"queues": 8, "order": False, "attributes": {"a": "1"}}
    larger = look(topic=seen(TopicQueues(16, 16)))
    assert body_of(larger) == {"order": False}, "queues never shrink"


def test_partitions_are_hidden_only_by_an_annotation_that_names_how_many_are_left() -> None:
    more = seen(TopicQueues(8, 8), TopicQueues(4, 4), TopicQueues(0, 8, 4))
    for value, body, reason in [
        ("", None, (False, "PartitionsCannotShrink")),
        ("true", None, (False, "PartitionsCannotShrink")),
        ("8", None, (False, "PartitionsCannotShrink")),
        ("4", {"queues": 4, "hideMessages": True}, (True, "InSync")),
    ]:
        me = replace(ME, annotations={names.HIDE_MESSAGES: value})
        at = confirmed(look({"partitions": 4}, me=me, topic=more))
        assert (body_of(at), ready_of(at)) == (body, reason), value
        done = confirmed(
            look({"partitions": 4}, me=me, topic=seen(TopicQueues(4, 4), TopicQueues(0, 8, 4)))
        )
        assert body_of(done) is None, "what is sealed keeps its queues"


REASONS: list[tuple[TopicLook, tuple[bool, str]]] = [
    (look(topic=seen()), (True, "InSync")),
    (look(listed=False), (False, "ClusterNotReady")),
    (look(refusal=ContentRefusal("ClusterNotFound", "")), (False, "ClusterNotFound")),
    (look(refusal=ContentRefusal("NamespaceNotAllowed", "")), (False, "NamespaceNotAllowed")),
    (look(rivals=(OLDER,)), (False, "Conflict")),
    (look(rivals=(TWIN,), topic=seen()), (False, "Conflict")),
    (look(rivals=(replace(OLDER, deleting=True),), topic=seen()), (True, "InSync")),
    (look(rivals=(replace(TWIN, uid="u-3"),), topic=seen()), (True, "InSync")),
    (look(topic=seen(TopicQueues(9, 9))), (False, "PartitionsCannotShrink")),
    (look(topic=seen(dialects="rocketmq")), (False, "BrokerRejected")),
    (look({"adoptionPolicy": "FailIfExists"}, topic=seen()), (False, "Conflict")),
    (confirmed(look({"adoptionPolicy": "FailIfExists"}, topic=seen())), (True, "InSync")),
]


@pytest.mark.parametrize(("at", "expected"), REASONS)
def test_the_reason_says_what_is_the_matter(at: TopicLook, expected: tuple[bool, str]) -> None:
    assert ready_of(at) == expected


@pytest.mark.parametrize("at", [row[0] for row in REASONS if row[1][1] in {
    "ClusterNotReady", "ClusterNotFound", "NamespaceNotAllowed", "Conflict",
}])  # fmt: skip
def test_without_knowledge_or_right_brokers_are_left_alone(at: TopicLook) -> None:
    planned = plan(at, START, release_after_s=RELEASE_S)
    assert (planned.act, planned.release, planned.applies) == (None, None, None)


def test_a_topic_that_must_be_new_is_written_down_before_it_is_made() -> None:
    at = look({"adoptionPolicy": "FailIfExists"})
    planned = plan(at, START, release_after_s=RELEASE_S)
    assert planned.act is None
    assert planned.record is not None
    then = replace(at, status=planned.record)
    assert body_of(then) == {"queues": 8, "order": False}
    # The operator may have died right after it had the topic made.
    assert ready_of(replace(then, topic=seen())) == (True, "InSync")


NOTED: list[tuple[dict[str, Any], SeenTopic, str | None]] = [
    ({}, seen(attributes={"x": "1"}), "UnknownSettings"),
    ({"config": {"x": "1"}}, seen(attributes={"x": "1"}), None),
    ({}, seen(attributes={"materialised": "true", "dialects": "metaq,rocketmq"}), None),
    ({}, seen(attributes={"retention.ms": "5"}), "UnknownSettings"),
    ({"retention": {"time": "5s"}}, seen(attributes={"retention.ms": "5000"}), None),
    ({"placement": {"count": 1}}, seen(), "MoreShards"),
    ({"placement": {"shardIds": [1]}}, seen(), "MoreShards"),
    ({"placement": {"shardIds": [0, 1]}}, seen(), None),
]


@pytest.mark.parametrize(("spec", "topic", "reason"), NOTED)
def test_what_is_not_fought_is_told(
    spec: dict[str, Any], topic: SeenTopic, reason: str | None
) -> None:
    planned = plan(look(spec, topic=topic), START, release_after_s=RELEASE_S)
    warnings = [f.reason for f in planned.findings if f.type == "Warning"]
    assert warnings == ([reason] if reason else [])


def going(spec: dict[str, Any] | None = None, *, minutes: int = 0, **changes: Any) -> TopicLook:
    at = START - timedelta(minutes=minutes)
    me = replace(
        ME, deleting=True, finalizers=(FINALIZER,), deleted_at=at.strftime("%Y-%m-%dT%H:%M:%SZ")
    )
    said = {"deletionPolicy": "Delete"} | (spec or {})
    return confirmed(look(said, **({"me": me, "topic": seen()} | changes)))


LEAVING: list[tuple[str, TopicLook, str, str]] = [
    ("goes", going(), "delete", "Deleting"),
    ("is gone", going(topic=None), "release", "Deleted"),
    ("stays", going({"deletionPolicy": "Retain"}), "release", "Retained"),
    ("never confirmed", replace(going(), status=TopicStatus()), "release", "Retained"),
    ("claimed", going(rivals=(replace(OLDER, name="o"),)), "release", "StillClaimed"),
    ("claimed by a younger one", going(rivals=(replace(TWIN, uid="u-9"),)), "release",
     "StillClaimed"),
    ("no cluster", going(refusal=ContentRefusal("ClusterNotFound", "")), "release", "ClusterGone"),
    ("silence", going(listed=False, topic=None), "", "ClusterNotReady"),
    ("long silence", going(listed=False, topic=None, minutes=16), "release",
     "ReleasedUnreachable"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "at", "what", "reason"), LEAVING)
def test_a_deleted_resource(said: str, at: TopicLook, what: str, reason: str) -> None:
    planned = plan(at, START, release_after_s=RELEASE_S)
    assert (planned.act == DeleteTopic()) == (what == "delete"), said
    assert (planned.release is not None) == (what == "release")
    told = planned.release.reason if planned.release else planned.findings[0].reason
    assert told == reason


def test_a_deleted_resource_without_our_finalizer_is_no_business_of_ours() -> None:
    at = going(me=replace(ME, deleting=True))
    planned = plan(at, START, release_after_s=RELEASE_S)
    assert (planned.act, planned.release, planned.hold) == (None, None, None)


def test_only_a_topic_that_goes_with_its_resource_is_held() -> None:
    held = replace(ME, finalizers=(FINALIZER, "other/one"))
    for policy, me, rivals, hold in [
        ("Delete", ME, (), True),
        ("Delete", held, (), None),
        ("Retain", ME, (), None),
        ("Retain", held, (), False),
        ("Delete", held, (OLDER,), False),
        ("Delete", ME, (OLDER,), None),
    ]:
        at = look({"deletionPolicy": policy}, me=me, rivals=rivals, topic=seen())
        assert plan(at, START, release_after_s=RELEASE_S).hold is hold, (policy, me, rivals)


def test_a_paused_resource_is_left_alone_until_it_is_deleted() -> None:
    me = replace(ME, annotations={"imago.dev/pause-reconciliation": "true"})
    planned = plan(look(me=me), START, release_after_s=RELEASE_S)
    assert (planned.act, [f.type for f in planned.findings]) == (None, ["Paused"])


def test_the_status_shows_partitions_and_fits_its_schema() -> None:
    topic = seen(TopicQueues(8, 8), TopicQueues(0, 8, 4), TopicQueues(8, 8, 6, online=False))
    at = look(topic=topic)
    planned = plan(at, START, release_after_s=RELEASE_S)
    status = status_of(at, planned, START, done=True)
    counts = status.partitions
    assert counts is not None
    assert (counts.total, counts.online, counts.sealed, status.shards) == (24, 16, 8, (0, 1, 2))
    assert list(problems(TOPIC.status_schema, to_json(status), "status")) == []
    assert status.applied_hash == planned.applies


def test_a_change_that_failed_is_not_confirmed() -> None:
    at = look()
    planned = plan(at, START, release_after_s=RELEASE_S)
    assert isinstance(planned.act, PutTopic)
    problem = ContentRefusal("BrokerRejected", "no such setting")
    status = status_of(at, planned, START, problem=problem)
    assert status.applied_hash is None
    assert [(c.reason, c.message) for c in status.conditions] == [
        ("BrokerRejected", "no such setting")
    ]
