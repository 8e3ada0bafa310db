"""A spec that is refused blinds nobody: the operator goes on by the last one that it accepted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from imago_operator.model import accepted, names
from imago_operator.plan import plan
from imago_operator.reconcilers import cluster as reconciler
from imago_testing.kubernetes.custom_resources import CLUSTER, manifest
from imago_testing.operated.cluster import OperatedCluster
from imago_testing.operated.resources import OPERATOR
from imago_testing.operated.rules import violations

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a value": ({"brokers": {"minInSync": 9}}, "InvalidSpec"),
    "a key": ({"brokers": {"config": {"store.scrub_interval_mss": 5}}}, "InvalidSpec"),
    "a version that is too new": ({"version": "9.0.0"}, "UnsupportedVersion"),
    "an older version": ({"version": "1.1.0"}, "DowngradeRefused"),
}


@pytest.fixture(autouse=True)
def kept_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask of every plan of every test what no plan may do."""

    def checked(desired: Any, observed: Any, now: Any) -> Any:
        found = plan(desired, observed, now)
        assert violations(desired, observed, found, now) == []
        return found

    monkeypatch.setattr(reconciler, "plan", checked)


def cluster(changes: dict[str, object] | None = None) -> OperatedCluster:
    found = manifest(CLUSTER, {"spec.brokers.shards": 1, **(changes or {})})
    found["metadata"]["namespace"] = "mq"
    return OperatedCluster(found)


def look(made: OperatedCluster, times: int) -> None:
    async def looks() -> None:
        for _ in range(times):
            await made.look()

    asyncio.run(looks())


def stalled(made: OperatedCluster) -> tuple[str, str] | None:
    return made.condition("Stalled")


@pytest.mark.parametrize("wrong", list(WRONG))
def test_it_is_observed_and_repaired_also_by_an_operator_that_has_just_begun(wrong: str) -> None:
    edit, reason = WRONG[wrong]
    made = cluster()
    made.run()
    pods = {pod.uid for pod in made.world.pods.values()}
    made.edit(**edit)
    look(made, 10)
    assert stalled(made) == ("True", reason)
    assert made.condition("Ready") == ("True", "AllShardsServing")
    assert made.condition("Available") == ("True", "EveryShardHasMaster")
    assert {pod.uid for pod in made.world.pods.values()} == pods
    assert made.cluster["status"]["progress"]["row"] == "InvalidSpec"
    said = made.cluster["status"]["lookedAt"]

    made.start()
    made.kubernetes.drop("Service", "mq", names.bootstrap("demo"))
    made.world.kill("demo-s0-1")
    look(made, 60)
    assert made.cluster["status"]["lookedAt"] > said
    assert made.kubernetes.find("Service", "mq", names.bootstrap("demo")) is not None
    assert made.cluster["status"]["brokers"]["inSyncReplicas"] == 3
    roles = [p["metadata"]["labels"].get(names.ROLE_LABEL) for p in made.kubernetes.all("Pod")]
    assert sorted(filter(None, roles)) == ["master", "slave", "slave"]
    assert stalled(made) == ("True", reason)


def test_a_member_that_never_runs_is_repaired_meanwhile() -> None:
    made = cluster()
    made.run()
    made.edit(brokers={"minInSync": 9})
    look(made, 5)
    made.world.crash("demo-s0-2")
    look(made, 10)
    assert made.cluster["status"]["brokers"]["inSyncReplicas"] == 2
    assert made.condition("Degraded") is not None
    assert made.condition("Ready") == ("False", "BrokersStarting")
    # Its template is old: a new pod may be what cures it, whatever else is wrong.
    ill = made.world.pods["demo-s0-2"]
    made.world.pods["demo-s0-2"] = replace(ill, annotations={})
    look(made, 30)
    assert made.world.pods["demo-s0-2"].uid != ill.uid
    assert made.condition("Ready") == ("True", "AllShardsServing")


def test_what_was_ordered_before_is_neither_restarted_nor_removed_until_it_is_right() -> None:
    made = cluster({"spec.brokers.shards": 2})
    made.run()
    pods = {pod.uid for pod in made.world.pods.values()}
    made.edit(image="mine:2", brokers={"shards": 1})
    look(made, 1)
    made.edit(brokers={"minInSync": 9})
    look(made, 60)
    assert {pod.uid for pod in made.world.pods.values()} >= {uid for uid in pods if "s1" in uid}, (
        "a shard that may be wanted again"
    )
    before = {pod.uid for pod in made.world.pods.values()}
    look(made, 60)
    assert {pod.uid for pod in made.world.pods.values()} == before
    made.edit(brokers={"minInSync": 2, "shards": 2})
    made.run()
    assert stalled(made) is None
    assert made.condition("Ready") == ("True", "AllShardsServing")
    assert all(s["phase"] == "Serving" for s in made.cluster["status"]["shards"])


def test_a_first_spec_that_is_wrong_is_said_and_nothing_is_made() -> None:
    made = cluster({"spec.brokers.minInSync": 9})
    look(made, 5)
    assert stalled(made) == ("True", "InvalidSpec")
    assert made.condition("Ready") == ("False", "InvalidSpec")
    assert made.kubernetes.all("StatefulSet") == []


@pytest.mark.parametrize("newer", ["1.4.0", "2.0.0"])
def test_brokers_too_old_for_the_operator_are_observed_and_not_touched(newer: str) -> None:
    made = cluster({"spec.version": "1.2.0"})
    made.run()
    pods = {pod.uid for pod in made.world.pods.values()}
    written = made.kubernetes.all("StatefulSet")
    made.operator = replace(OPERATOR, version=newer)
    made.start()
    made.world.crash("demo-s0-1")
    look(made, 40)
    assert stalled(made) == ("True", "UnsupportedVersion")
    assert made.cluster["status"]["brokers"]["inSyncReplicas"] == 2
    assert made.condition("Ready") == ("False", "BrokersStarting")
    assert {pod.uid for pod in made.world.pods.values()} == pods
    assert made.kubernetes.all("StatefulSet") == written


def test_a_member_that_does_not_start_says_why_in_the_status_and_in_an_event() -> None:
    made = cluster()
    made.run()
    events: list[tuple[str, str]] = []

    async def note(_: object, __: str, reason: str, message: str) -> None:
        events.append((reason, message))

    made.reconciler._kube.event = note  # type: ignore[method-assign,assignment]
    made.world.refused.add("scrub_interval_ms = 5")
    made.edit(brokers={"config": {"store.scrub_interval_ms": 5}})
    look(made, 30)
    said = next(c for c in made.cluster["status"]["conditions"] if c["type"] == "Degraded")
    assert said["reason"] == "PodsFailing"
    assert said["message"].endswith("broker ended with code 2: scrub_interval_ms = 5.")
    assert ("PodsFailing", said["message"]) in events
    assert made.cluster["status"]["brokers"]["inSyncReplicas"] == 2
    for name in sorted(set(made.world.pods) - made.world.misled):
        made.world.reboot(name)
        look(made, 10)
    assert len(made.world.misled) == 1
    assert made.cluster["status"]["brokers"]["inSyncReplicas"] == 2

    made.edit(brokers={"config": {"store.scrub_interval_ms": 6}})
    made.run()
    assert made.condition("Ready") == ("True", "AllShardsServing")
    files = [m["metadata"]["name"] for m in made.kubernetes.all("ConfigMap")]
    assert len([name for name in files if names.is_config(name)]) == 1


def test_a_spec_that_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepted, "SPEC_SIZE_MAX", 10)
    made = cluster()
    made.run()
    assert "acceptedSpec" not in made.cluster["status"]
    # What can be read of a wrong one is enough to observe by, and to do nothing.
    made.edit(brokers={"config": {"store.scrub_interval_mss": 5}})
    made.world.crash("demo-s0-1")
    look(made, 20)
    assert stalled(made) == ("True", "InvalidSpec")
    assert made.cluster["status"]["brokers"]["inSyncReplicas"] == 2
