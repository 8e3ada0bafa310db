"""Events are merged where they say the same, and never many."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from imago_operator.errors import RetryError
from imago_operator.events import NORMAL_MAX, WARNINGS_MAX, Recorder

if TYPE_CHECKING:
    from collections.abc import Mapping

ABOUT = {
    "apiVersion": "imago.dev/v1alpha1",
    "kind": "ImagoCluster",
    "metadata": {"name": "demo", "namespace": "mq", "uid": "u1"},
}


class Sent:
    """Where events go, and a clock."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        self.fails = False
        ids = iter(range(10_000))
        self.recorder = Recorder(self, lambda: self.now, lambda: str(next(ids)), identity="op-1")

    async def post(self, event: Mapping[str, Any]) -> None:
        if self.fails:
            raise RetryError("no", delay_s=1)
        self.events[event["metadata"]["name"]] = dict(event)

    async def merge(self, namespace: str, name: str, patch: Mapping[str, Any]) -> bool:
        assert namespace == "mq"
        if name not in self.events:
            return False
        self.events[name].update(patch)
        return True


async def test_repeats_raise_the_count_of_the_event_that_is_there() -> None:
    sent = Sent()
    for _ in range(3):
        await sent.recorder.record(ABOUT, "Normal", "Updating", "restarting")
        sent.now += timedelta(seconds=1)
    await sent.recorder.record(ABOUT, "Normal", "Settled", "done")
    found = {event["reason"]: event for event in sent.events.values()}
    assert (found["Updating"]["count"], found["Updating"]["message"]) == (3, "restarting")
    assert found["Updating"]["firstTimestamp"] == "2026-01-02T03:04:05Z"
    assert found["Updating"]["lastTimestamp"] == "2026-01-02T03:04:07Z"
    assert found["Settled"]["involvedObject"] == {
        "apiVersion": "imago.dev/v1alpha1",
        "kind": "ImagoCluster",
        "name": "demo",
        "namespace": "mq",
        "uid": "u1",
    }


async def test_what_happens_to_several_pods_names_every_one_of_them() -> None:
    sent = Sent()
    for number in (0, 1, 2, 1):
        await sent.recorder.record(ABOUT, "Normal", "DeletePod", f"Pod demo-s0-{number} is deleted")
    told = {event["message"]: event["count"] for event in sent.events.values()}
    assert told == {f"Pod demo-s0-{n} is deleted": 1 + (n == 1) for n in range(3)}


async def test_an_event_that_has_gone_is_made_anew() -> None:
    sent = Sent()
    await sent.recorder.record(ABOUT, "Normal", "Updating", "a")
    sent.events.clear()
    await sent.recorder.record(ABOUT, "Normal", "Updating", "b")
    assert [event["count"] for event in sent.events.values()] == [1]


async def test_an_object_gets_so_many_an_hour_and_another_is_not_concerned() -> None:
    sent = Sent()
    for number in range(200):
        await sent.recorder.record(ABOUT, "Normal", f"R{number}", "x")
    assert len(sent.events) == NORMAL_MAX
    assert sent.recorder.suppressed == 200 - NORMAL_MAX
    for number in range(200):
        await sent.recorder.record(ABOUT, "Warning", f"W{number}", "x")
    assert len(sent.events) == NORMAL_MAX + WARNINGS_MAX
    other = {**ABOUT, "metadata": {"name": "other", "namespace": "mq", "uid": "u2"}}
    await sent.recorder.record(other, "Normal", "R0", "x")
    sent.now += timedelta(minutes=6)
    for number in range(5):
        await sent.recorder.record(ABOUT, "Normal", f"later{number}", "x")
    assert len(sent.events) == NORMAL_MAX + WARNINGS_MAX + 1 + 2  # six minutes earn two


async def test_an_event_that_cannot_be_recorded_stops_nothing() -> None:
    sent = Sent()
    sent.fails = True
    await sent.recorder.record(ABOUT, "Normal", "Updating", "a")
    sent.fails = False
    await sent.recorder.record(ABOUT, "Normal", "Updating", "b")
    assert [event["message"] for event in sent.events.values()] == ["b"]
