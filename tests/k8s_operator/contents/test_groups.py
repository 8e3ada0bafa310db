"""What is done about an ImagoConsumerGroup, case by case."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from imago_operator.contents.belonging import FINALIZER, Claimant
from imago_operator.contents.conditions import ContentRefusal
from imago_operator.contents.groups import (
    STARTED,
    DeleteGroup,
    GroupLook,
    GroupPlan,
    PutGroup,
    ResetGroup,
    bucket,
    finished,
    plan,
    status_of,
    wanted,
)
from imago_operator.contents.values import GroupLag, SeenGroup
from imago_operator.model.desired import fingerprint
from imago_operator.spec.group import GroupStatus, LastReset
from imago_operator.spec.kinds import CONSUMER_GROUP
from imago_operator.spec.schema.fields import to_json
from imago_operator.spec.schema.schema import problems
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.kubernetes.fake_kube_port import START

ME = Claimant(namespace="mq", name="demo", uid="u-2", created="2026-01-01T00:00:02Z")
OLDER = replace(ME, name="older", uid="u-1")
RESET = {"requestId": "r-1", "to": "Earliest"}
SETTINGS = {
    "consume_enable": True,
    "consume_broadcast_enable": False,
    "consume_message_orderly": False,
    "retry_queues": 1,
    "retry_max_times": 16,
}
NOW_MS = round(START.timestamp() * 1000)
THEIRS: dict[str, Any] = {"metaq_lags": {"orders": GroupLag(5000, NOW_MS - 7_200_000)}}


def look(spec: dict[str, Any] | None = None, **changes: Any) -> GroupLook:
    changed = {f"spec.{key}": value for key, value in (spec or {}).items()}
    read = CONSUMER_GROUP.read(manifest("ImagoConsumerGroup", changed))
    known: dict[str, Any] = {"me": ME, "spec": read, "name": "billing", "group": seen()}
    found = GroupLook(**(known | changes))
    if "status" not in changes:
        mark = fingerprint(wanted(read))
        found = replace(found, status=GroupStatus(group_name="billing", applied_hash=mark))
    return found


class TestMetaq:
    """MetaQ's consumers of a group's name: seen, and left alone."""

    def status(self, group: SeenGroup, spec: dict[str, Any] | None = None) -> GroupStatus:
        at = look(spec, group=group)
        return status_of(at, plan(at, START, release_after_s=900), START)

    def test_their_lag_and_members_are_the_groups(self) -> None:
        said = self.status(seen(metaq_members=("host-1", "host-2"), **THEIRS))
        assert (said.state, said.members, said.lag) == ("Stable", 2, "~5k")
        assert [(one.topic, one.lag) for one in said.topics] == [("orders", "~5k")]

    @pytest.mark.parametrize("limit", [{"messages": 4999}, {"time": "1h"}])
    def test_they_can_be_too_far_behind(self, limit: dict[str, Any]) -> None:
        group = seen(metaq_members=("host-1",), **THEIRS)
        found = self.status(group, {"maxLag": limit})
        assert "LagHigh" in {c.type for c in found.conditions}

    @pytest.mark.parametrize(
        ("members", "own", "lag"),
        [
            (("host-1",), {"orders": GroupLag(1)}, "~5k"),
            ((), {"orders": GroupLag(1)}, "1"),
            ((), {}, "~5k"),
            (("host-1",), {"orders": GroupLag(2_000_000)}, "~2M"),
        ],
    )
    def test_offsets_that_nobody_has_any_more_count_only_alone(
        self, members: tuple[str, ...], own: dict[str, GroupLag], lag: str
    ) -> None:
        assert self.status(seen(metaq_members=members, lags=own, **THEIRS)).lag == lag

    def test_a_reset_says_that_theirs_stay(self) -> None:
        group = seen(lags={"orders": GroupLag(1)}, metaq_members=("host-1",), **THEIRS)
        at = look({"reset": RESET}, group=group)
        assert plan(at, START, release_after_s=900).record is not None, "they do not hold it up"
        assert finished(at, {}, START).result == (
            "Reset 1 topic to Earliest. Those of MetaQ's consumers, in ZooKeeper, stay."
        )
        alone = look({"reset": RESET}, group=seen(**THEIRS))
        record = plan(alone, START, release_after_s=900).record
        assert record is not None
        assert record.last_reset is not None
        assert "MetaQ's consumers" in record.last_reset.result

    def test_a_deleted_group_is_gone_though_theirs_stay(self) -> None:
        going = replace(
            ME, deleting=True, finalizers=(FINALIZER,), deleted_at="2026-01-02T03:04:05Z"
        )
        theirs = SeenGroup(name="billing", settings=None, **THEIRS)
        at = look({"deletionPolicy": "Delete"}, me=going, group=theirs)
        released = plan(at, START, release_after_s=900).release
        assert released is not None
        assert released.reason == "Deleted"


def seen(**changes: Any) -> SeenGroup:
    known: dict[str, Any] = {"name": "billing", "settings": SETTINGS}
    return SeenGroup(**(known | changes))


def planned(at: GroupLook) -> GroupPlan:
    return plan(at, START, release_after_s=900.0)


def types_of(at: GroupLook) -> dict[str, str]:
    return {finding.type: finding.reason for finding in planned(at).findings}


@pytest.mark.parametrize(
    ("spec", "group", "body"),
    [
        ({}, seen(), None),
        ({}, None, SETTINGS),
        ({}, seen(settings=None), SETTINGS),
        ({"maxRetries": 3}, seen(), {"retry_max_times": 3}),
        ({"consumeEnabled": False, "retryQueues": 2}, seen(),
         {"consume_enable": False, "retry_queues": 2}),
        ({"mode": "Broadcast"}, seen(), {"consume_broadcast_enable": True}),
        ({"ordered": True}, seen(), {"consume_message_orderly": True}),
    ],
)  # fmt: skip
def test_only_what_differs_is_sent(
    spec: dict[str, Any], group: SeenGroup | None, body: dict[str, Any] | None
) -> None:
    act = planned(look(spec, group=group)).act
    assert act == (None if body is None else PutGroup(body))


def test_what_brokers_never_confirmed_is_sent_as_a_whole() -> None:
    assert planned(look(status=GroupStatus())).act == PutGroup(SETTINGS)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "InSync"),
        ({"listed": False, "group": None}, "ClusterNotReady"),
        ({"refusal": ContentRefusal("ClusterNotFound", "")}, "ClusterNotFound"),
        ({"rivals": (OLDER,)}, "Conflict"),
    ],
)
def test_the_reason_says_what_is_the_matter(changes: dict[str, Any], reason: str) -> None:
    at = look(**changes)
    assert types_of(at)["Ready"] == reason
    if reason != "InSync":
        assert planned(at).act is None


LAGS = {"orders": GroupLag(600, NOW_MS - 90_000), "%RETRY%billing": GroupLag(500, None)}


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ({}, None),
        ({"messages": 1100}, None),
        ({"messages": 1099}, "TooManyMessages"),
        ({"time": "91s"}, None),
        ({"time": "1m"}, "TooOld"),
    ],
)
def test_too_far_behind_is_told_and_does_not_make_it_unready(
    limit: dict[str, Any], reason: str | None
) -> None:
    found = types_of(look({"maxLag": limit}, group=seen(lags=LAGS)))
    assert found.get("LagHigh") == reason
    assert found["Ready"] == "InSync"


def test_what_is_told_of_lags_does_not_change_with_every_message() -> None:
    at = look({"maxLag": {"messages": 10}}, group=seen(lags={"orders": GroupLag(5000)}))
    before = status_of(at, planned(at), START)
    later = replace(at, status=before, group=seen(lags={"orders": GroupLag(5999)}))
    moment = START + timedelta(minutes=1)
    assert status_of(later, plan(later, moment, release_after_s=900), moment) == before
    assert (before.lag, [(t.topic, t.lag) for t in before.topics]) == ("~5k", [("orders", "~5k")])


@pytest.mark.parametrize(
    ("messages", "shown"),
    [
        (0, "0"),
        (9, "9"),
        (10, "~10"),
        (29, "~20"),
        (999, "~900"),
        (1000, "~1k"),
        (999_999, "~900k"),
        (1_000_000, "~1M"),
        (2**63 - 1, "~9E"),
    ],
)
def test_lags_are_rough(messages: int, shown: str) -> None:
    assert bucket(messages) == shown


def started(at: GroupLook, result: str = STARTED, request: str = "r-1") -> GroupLook:
    last = LastReset(request_id=request, at="2026-01-01T00:00:00Z", result=result)
    return replace(at, status=replace(at.status, last_reset=last))


def test_a_reset_is_written_down_done_and_told_once() -> None:
    at = look(
        {"reset": RESET}, group=seen(lags={"orders": GroupLag(3), "%RETRY%billing": GroupLag(0)})
    )
    first = planned(at)
    assert first.reset is None
    assert first.record is not None
    assert first.record.last_reset is not None
    assert (first.record.last_reset.request_id, first.record.last_reset.result) == ("r-1", STARTED)
    again = replace(at, status=first.record)
    assert planned(again).reset == ResetGroup(("orders",), "earliest"), "its retries stay"
    last = finished(again, {}, START)
    assert last == LastReset(
        request_id="r-1", at="2026-01-02T03:04:05Z", result="Reset 1 topic to Earliest."
    )
    over = replace(again, status=status_of(again, planned(again), START, last=last))
    assert (planned(over).reset, planned(over).record) == (None, None)
    desired = look({"reset": RESET | {"requestId": "r-2"}}, group=at.group, status=over.status)
    assert planned(desired).record is not None


@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        ({"to": "Latest"}, ResetGroup(("orders",), "latest")),
        ({"to": "Timestamp", "timestamp": "1970-01-01T00:00:02.5Z"}, ResetGroup(("orders",), 2500)),
        (
            {"to": "Timestamp", "timestamp": "1970-01-01T01:00:00+01:00"},
            ResetGroup(("orders",), 0),
        ),
        ({"to": "Earliest", "topics": ["a", "b"]}, ResetGroup(("a", "b"), "earliest")),
    ],
)
def test_where_it_goes_on(reset: dict[str, Any], expected: ResetGroup) -> None:
    at = look({"reset": {"requestId": "r-1"} | reset}, group=seen(lags={"orders": GroupLag(1)}))
    assert planned(started(at)).reset == expected


def test_a_reset_waits_while_somebody_consumes_or_may() -> None:
    table: list[tuple[dict[str, Any], str]] = [
        ({"group": seen(members=("c-1",), lags=LAGS)}, "GroupActive"),
        ({"group": seen(lags=LAGS), "missing": ("shard-1",)}, "ShardMissing"),
    ]
    for changes, reason in table:
        at = look({"reset": RESET}, **changes)
        assert types_of(at)["ResetPending"] == reason
        assert (planned(at).reset, planned(at).record) == (None, None)


def test_a_reset_that_was_interrupted_is_not_repeated_under_consumers() -> None:
    at = started(look({"reset": RESET}, group=seen(members=("c-1",), lags=LAGS)))
    found = planned(at)
    assert found.reset is None
    assert found.record is not None
    assert found.record.last_reset is not None
    assert found.record.last_reset.result.startswith("Unknown")


def test_a_group_without_offsets_has_nothing_to_reset() -> None:
    found = planned(look({"reset": RESET}))
    assert found.reset is None
    assert found.record is not None
    assert found.record.last_reset is not None
    assert found.record.last_reset.result.startswith("Nothing was done")


def test_topics_on_which_it_failed_are_named() -> None:
    at = look({"reset": RESET | {"topics": ["a", "b"]}})
    assert finished(at, {"b": "no such topic"}, START).result == (
        "Reset 1 topic to Earliest. b: no such topic"
    )


GOING = replace(ME, deleting=True, finalizers=(FINALIZER,), deleted_at="2026-01-02T03:04:05Z")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "delete"),
        ({"group": None}, "Deleted"),
        ({"group": seen(members=("c",))}, "GroupActive"),
        ({"missing": ("shard-1",)}, "ClusterNotReady"),
        ({"listed": False, "group": None}, "ClusterNotReady"),
        ({"rivals": (OLDER,)}, "StillClaimed"),
        ({"refusal": ContentRefusal("ClusterNotFound", "")}, "ClusterGone"),
        ({"status": GroupStatus()}, "Retained"),
    ],
)
def test_a_deleted_resource(changes: dict[str, Any], expected: str) -> None:
    found = planned(look({"deletionPolicy": "Delete"}, me=GOING, **changes))
    assert (found.act == DeleteGroup()) == (expected == "delete")
    if expected != "delete":
        told = found.release.reason if found.release else found.findings[0].reason
        assert told == expected


def test_the_status_fits_its_schema() -> None:
    lags = {f"t{n}": GroupLag(n * 1000) for n in range(150)}
    at = started(look({"reset": RESET}, group=seen(members=("a", "b"), lags=lags)), "done")
    status = status_of(at, planned(at), START)
    assert list(problems(CONSUMER_GROUP.status_schema, to_json(status), "status")) == []
    assert (status.state, status.members, status.lag, len(status.topics)) == (
        "Stable", 2, "~10M", 100,
    )  # fmt: skip
    unheard = replace(at, missing=("shard-1",), status=status)
    assert status_of(unheard, planned(unheard), START).state == "Unknown"
