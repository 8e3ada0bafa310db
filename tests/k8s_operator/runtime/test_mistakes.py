"""A cluster whose look goes wrong says so, and what can be done goes on."""

from __future__ import annotations

import asyncio
from typing import Any
from zoneinfo import ZoneInfoNotFoundError

import pytest

from imago_operator.apply import BrokenPromiseError
from imago_operator.model.actions import DeletePod
from imago_operator.observing import observed
from imago_operator.plan import PlanRow, ReconcilePlan
from imago_operator.reconcilers import cluster as reconciler
from imago_testing.kubernetes.custom_resources import CLUSTER, manifest
from imago_testing.kubernetes.fake_api_server import Call, Refused
from imago_testing.operated.cluster import OperatedCluster

WINDOW = {"schedule": "0 2 * * 6", "duration": "2h"}


def cluster(changes: dict[str, Any] | None = None) -> OperatedCluster:
    found = manifest(CLUSTER, {"spec.brokers.shards": 1, **(changes or {})})
    found["metadata"]["namespace"] = "mq"
    return OperatedCluster(found)


@pytest.mark.parametrize(
    "wrong",
    [
        {"schedule": "0 25 * * *"},
        {"schedule": "5-1 * * * *"},
        {"schedule": "0 0 31 2 *"},
        {"timeZone": "Mars/Olympus"},
    ],
    ids=str,
)
def test_a_window_that_cannot_be_read_stops_restarts_alone(wrong: dict[str, str]) -> None:
    made = cluster()
    made.run()
    pods = {pod.uid for pod in made.world.pods.values()}
    made.edit(updatePolicy={"mode": "Window", "windows": [{**WINDOW, **wrong}]}, image="mine:2")
    made.kubernetes.drop("Service", "mq", "demo-bootstrap")
    _look(made, 20)

    assert made.condition("Stalled") == ("True", "InvalidWindow")
    assert made.condition("Ready") == ("True", "AllShardsServing")
    assert made.condition("UpdatePending") == ("True", "OutsideWindow")
    assert made.cluster["status"]["observedGeneration"] == made.cluster["metadata"]["generation"]
    said = next(c for c in made.cluster["status"]["conditions"] if c["type"] == "Stalled")
    assert next(iter(wrong.values())) in said["message"]
    assert made.kubernetes.find("Service", "mq", "demo-bootstrap"), "repairs go on"
    assert {pod.uid for pod in made.world.pods.values()} == pods
    assert made.errors == []

    made.edit(updatePolicy={"mode": "Automatic", "windows": []})
    made.run()
    assert made.condition("Stalled") is None
    assert not {p.uid for p in made.world.pods.values() if p.shard is not None} & pods


def test_without_zones_the_windows_are_said_to_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that has lost its zone data: nothing else stops."""

    def no_zone(name: str) -> object:
        raise ZoneInfoNotFoundError(f"No time zone found with key {name}")

    monkeypatch.setattr("imago_operator.observing.windows.ZoneInfo", no_zone)
    made = cluster({"spec.updatePolicy": {"mode": "Window", "windows": [WINDOW]}})
    made.run()
    assert made.condition("Stalled") == ("True", "InvalidWindow")
    assert made.condition("Ready") == ("True", "AllShardsServing")


def test_a_mistake_in_a_look_ends_as_a_condition_and_an_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = cluster()
    made.run()
    right = observed.pods_of

    def wrong(*_: object) -> object:
        raise KeyError("shards")

    monkeypatch.setattr(observed, "pods_of", wrong)
    made.edit(image="mine:2")
    with pytest.raises(KeyError):
        asyncio.run(made.reconciler.reconcile(made.key))
    assert made.condition("Stalled") == ("True", "InternalError")
    assert made.condition("Ready") == ("True", "AllShardsServing")
    assert made.cluster["status"]["observedGeneration"] == made.cluster["metadata"]["generation"]
    assert made.key in made.reconciler.stalled

    monkeypatch.setattr(observed, "pods_of", right)
    made.run()
    assert made.condition("Stalled") is None


def forbidden(call: Call) -> None:
    if not call.changes and call.plural == "poddisruptionbudgets":
        raise Refused(403, "Forbidden", "cannot list resource")


def test_what_is_not_looked_at_does_not_look_fresh() -> None:
    made = cluster()
    made.run()
    assert made.condition("Available") == ("True", "EveryShardHasMaster")
    before = made.cluster["status"]
    assert before["brokers"]["inSyncReplicas"] == 3
    made.kubernetes.before = forbidden
    _look(made, 200)
    after = made.cluster["status"]
    assert made.condition("Stalled") == ("True", "PermissionDenied")
    assert after["lookedAt"] == before["lookedAt"]
    assert "inSyncReplicas" not in after["brokers"]
    assert made.condition("Available") == ("Unknown", "NotObserved")
    said = next(c for c in after["conditions"] if c["type"] == "Available")
    assert before["lookedAt"] in said["message"]

    made.kubernetes.before = lambda _: None
    made.run()
    assert made.condition("Available") == ("True", "EveryShardHasMaster")
    assert made.cluster["status"]["lookedAt"] > after["lookedAt"]


def test_a_plan_that_breaks_a_promise_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    made = cluster()
    made.run()
    pod = made.world.pods["demo-s0-0"]

    def bad(*_: object) -> ReconcilePlan:
        goes = (DeletePod(pod.name, "another", 0, "a mistake"),)
        return ReconcilePlan(row=PlanRow.ROLLOUT, actions=goes)

    monkeypatch.setattr(reconciler, "plan", bad)
    with pytest.raises(BrokenPromiseError):
        asyncio.run(made.reconciler.reconcile(made.key))
    assert made.condition("Stalled") == ("True", "InternalError")
    assert made.world.pods["demo-s0-0"].uid == pod.uid


def _look(made: OperatedCluster, looks: int) -> None:
    async def often() -> None:
        for _ in range(looks):
            await made.look()

    asyncio.run(often())
