"""A cluster's life under the operator's real code, on a fake Kubernetes with modelled brokers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from imago_operator.errors import InvalidError, OperatorError
from imago_operator.plan import plan
from imago_operator.reconcilers import cluster as reconciler
from imago_testing.kubernetes.custom_resources import CLUSTER, manifest
from imago_testing.kubernetes.fake_api_server import Call, Refused
from imago_testing.operated.cluster import Died, OperatedCluster
from imago_testing.operated.rules import violations
from imago_testing.operated.snapshots import with_new_operator
from imago_testing.searching import seldom

DELETE_SCALED = {
    "spec.brokers.storage.persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}
}


def cluster(changes: dict[str, object] | None = None) -> OperatedCluster:
    found = manifest(CLUSTER, {"spec.brokers.shards": 1, **(changes or {})})
    found["metadata"]["namespace"] = "mq"
    return OperatedCluster(found)


@pytest.fixture(autouse=True)
def kept_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask of every plan of every test what no plan may do."""

    def checked(desired: Any, observed: Any, now: Any) -> Any:
        found = plan(desired, observed, now)
        assert violations(desired, observed, found, now) == []
        return found

    monkeypatch.setattr(reconciler, "plan", checked)


def test_a_cluster_gets_ready_and_then_nothing_is_written() -> None:
    made = cluster()
    made.run()
    assert made.condition("Ready") == ("True", "AllShardsServing")
    assert made.condition("Reconciling") is None
    before = len(made.kubernetes.writes)
    for _ in range(5):
        made.run()
    assert len(made.kubernetes.writes) == before


def test_a_new_operator_writes_nothing_about_a_cluster_that_is_settled() -> None:
    made = cluster()
    made.run()
    before = len(made.kubernetes.writes)
    made.start()
    made.run()
    assert len(made.kubernetes.writes) == before


def test_a_setting_that_needs_no_restart_reaches_running_brokers() -> None:
    made = cluster()
    made.run()
    pods = {pod.uid for pod in made.world.pods.values()}
    made.edit(brokers={"config": {"metaq.auto_create_topic": "true"}})
    made.run()
    assert {pod.uid for pod in made.world.pods.values()} == pods
    values = [settings["metaq.auto_create_topic"] for settings in made.world.config.values()]
    assert values == [True] * 3


def test_a_setting_that_brokers_refuse_keeps_no_restart_back() -> None:
    made = cluster()
    made.run()

    def brokers() -> set[str]:
        return {pod.uid for pod in made.world.pods.values() if pod.shard is not None}

    pods = brokers()

    def refused(change: str) -> None:
        if change == "SetConfig" and pods & brokers():
            raise InvalidError("metaq.auto_create_topic: not now")

    made.brokers.changes = refused
    made.edit(brokers={"config": {"metaq.auto_create_topic": "true"}})
    made.annotate(restart="1")
    made.run()
    assert any(isinstance(error, InvalidError) for error in made.errors)
    assert not pods & brokers()
    assert made.condition("Ready") == ("True", "AllShardsServing")


def test_what_an_api_server_refuses_for_good_is_said_and_not_forgotten() -> None:
    made = cluster()

    def forbidden(call: Call) -> None:
        if call.changes and call.plural == "networkpolicies":
            raise Refused(403, "Forbidden", "cannot patch resource")

    made.kubernetes.before = forbidden
    with pytest.raises(AssertionError, match="does not settle"):
        made.run(looks_max=20)
    assert made.condition("Stalled") == ("True", "PermissionDenied")
    assert made.kubernetes.all("StatefulSet")  # all else was made
    made.kubernetes.before = lambda _: None
    made.run()
    assert made.condition("Stalled") is None
    assert made.condition("Ready") == ("True", "AllShardsServing")


def test_what_the_operator_may_not_see_is_said() -> None:
    made = cluster()
    made.run()

    def forbidden(call: Call) -> None:
        if not call.changes and call.plural == "poddisruptionbudgets":
            raise Refused(403, "Forbidden", "cannot list resource")

    made.kubernetes.before = forbidden
    with pytest.raises(AssertionError, match="does not settle"):
        made.run(looks_max=10)
    assert made.condition("Stalled") == ("True", "PermissionDenied")
    assert made.condition("Available") == ("Unknown", "NotObserved")
    made.kubernetes.before = lambda _: None
    made.run()
    assert made.condition("Stalled") is None
    assert made.condition("Ready") == ("True", "AllShardsServing")


def test_a_status_is_written_at_most_every_five_seconds() -> None:
    made = cluster()
    times = []

    def note(call: Call) -> None:
        if call.sub == "status":
            times.append(made.world.now)

    made.kubernetes.after = note
    made.run()
    # The first two only say who looks after the cluster, and by which spec.
    gaps = [(b - a).total_seconds() for a, b in itertools.pairwise(times[2:])]
    assert gaps
    assert min(gaps) >= 5


def test_a_cluster_that_is_deleted_is_left_to_kubernetes() -> None:
    made = cluster()
    made.run()
    made.kubernetes.put(
        {**made.cluster, "metadata": {**made.cluster["metadata"], "deletionTimestamp": "now"}}
    )
    before = [call for call in made.kubernetes.writes if call.sub != "status"]
    made.run()
    assert [call for call in made.kubernetes.writes if call.sub != "status"] == before
    assert made.condition("Ready") == ("False", "Deleting")
    made.kubernetes.drop(*made.key)
    made.run()
    assert not made.reconciler.seen


Edit = Callable[[OperatedCluster], None]


def _grow(made: OperatedCluster) -> None:
    made.edit(brokers={"storage": {"size": "20Gi"}})


STORIES: dict[str, tuple[dict[str, object], Edit]] = {
    "begins": ({}, lambda _: None),
    "rolls": ({}, lambda made: made.edit(brokers={"config": {"metaq.idle_seconds": 99}})),
    "grows volumes": ({}, _grow),
    "gets a shard": ({}, lambda made: made.edit(brokers={"shards": 2})),
    "loses a shard and its claims": (
        {"spec.brokers.shards": 2, **DELETE_SCALED},
        lambda made: made.edit(brokers={"shards": 1}),
    ),
    "is restarted": ({}, lambda made: made.annotate(restart="now")),
}


@cache
def _settled(name: str) -> OperatedCluster:
    """Return the cluster in which a story begins."""
    made = cluster(STORIES[name][0])
    if name != "begins":
        made.run()
    return made


def _story(name: str) -> OperatedCluster:
    """Return a cluster in which the story is about to happen, with a new operator."""
    made = with_new_operator(_settled(name))
    STORIES[name][1](made)
    return made


def test_the_stories_happen() -> None:
    ends = {name: _undisturbed(name)[1] for name in STORIES}
    claims = {name: len(end["claims"]) for name, end in ends.items()}
    assert claims == dict.fromkeys(STORIES, 3) | {"gets a shard": 6}
    assert {size for _, size in ends["grows volumes"]["claims"]} == {"20Gi"}
    assert ends["loses a shard and its claims"]["shards"][1] == (True, True, False)
    assert list(ends["loses a shard and its claims"]["sets"]) == ["demo-s0", "demo-zookeeper"]
    assert ends["rolls"]["pods"] != ends["begins"]["pods"] != ends["is restarted"]["pods"]


def _changes_of(made: OperatedCluster, act: Callable[[int], None]) -> None:
    """Have `act` told of each change that the operator is about to make, numbered."""
    numbers = itertools.count()

    def before_kubernetes(call: Call) -> None:
        if call.changes:
            act(next(numbers))

    made.kubernetes.before = before_kubernetes
    made.brokers.changes = lambda _: act(next(numbers))


@cache
def _undisturbed(name: str) -> tuple[list[OperatedCluster], dict[str, Any]]:
    """Return how the cluster was before each change of the story, and the story's end."""
    made = _story(name)
    moments: list[OperatedCluster] = []
    _changes_of(made, lambda _: moments.append(with_new_operator(made)))
    made.run()
    return moments, made.end()


@pytest.mark.parametrize("name", seldom(STORIES, often=2))
def test_an_operator_that_dies_before_any_change_comes_to_the_same_end(name: str) -> None:
    moments, end = _undisturbed(name)
    assert moments
    for number, moment in enumerate(moments):
        made = with_new_operator(moment)
        made.turn()
        made.run()
        assert made.end() == end, f"died before change {number}"


@pytest.mark.parametrize("name", seldom(STORIES, often=2))
def test_an_operator_that_dies_at_every_third_change_comes_to_the_same_end(name: str) -> None:
    _, end = _undisturbed(name)
    made = _story(name)

    def die(number: int) -> None:
        if number % 3 == 2:
            raise Died

    _changes_of(made, die)
    made.run()
    assert made.end() == end


REFUSALS = {
    "conflict": (409, "Conflict"),
    "too many requests": (429, "TooManyRequests"),
    "internal": (500, "InternalError"),
    "unavailable": (503, "ServiceUnavailable"),
}


@pytest.mark.parametrize("name", seldom(STORIES, often=2))
@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize(
    "done",
    [pytest.param(False, marks=pytest.mark.full), True],
    ids=["refused", "done though refused"],
)
def test_calls_that_fail_now_and_then_lead_to_the_same_end(
    name: str, refusal: str, done: bool
) -> None:
    _, end = _undisturbed(name)
    made = _story(name)

    def fail(call: Call) -> None:
        if call.number % 7 == 3:
            raise Refused(*REFUSALS[refusal], "injected")

    if done:
        made.kubernetes.after = fail
    else:
        made.kubernetes.before = fail
    _settle_despite(made)
    assert made.end() == end


@pytest.mark.parametrize("name", seldom(STORIES, often=2))
def test_lists_from_the_past_lead_to_the_same_end(name: str) -> None:
    _, end = _undisturbed(name)
    made = _story(name)
    made.kubernetes.stale = lambda call: call.number % 5 == 1
    _settle_despite(made)
    assert made.end() == end


def _settle_despite(made: OperatedCluster) -> None:
    """Look for a while under faults, then settle without them: an end is an end for good."""

    async def look_often() -> None:
        for _ in range(60):
            await made.look()

    asyncio.run(look_often())
    made.kubernetes.before = made.kubernetes.after = lambda _: None
    made.kubernetes.stale = lambda _: False
    made.run()
    assert all(isinstance(error, OperatorError) for error in made.errors)
