"""What is read off a pod's status."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from imago_operator.observing import podstatus
from imago_operator.observing.podstatus import failure, missing_image, turned, waiting

RUNS: dict[str, Any] = {"name": "broker", "state": {"running": {}}}


def waits(name: str, reason: str) -> dict[str, Any]:
    return {"name": name, "state": {"waiting": {"reason": reason}}}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"containerStatuses": [RUNS]}, None),
        ({"containerStatuses": [waits("broker", "ImagePullBackOff")]}, "ImagePullBackOff"),
        ({"containerStatuses": [waits("mesh", "CrashLoopBackOff"), RUNS]}, None),
        ({"containerStatuses": [waits("mesh", "CrashLoopBackOff")]}, "CrashLoopBackOff"),
        (
            {
                "initContainerStatuses": [waits("first", "CrashLoopBackOff")],
                "containerStatuses": [waits("broker", "PodInitializing")],
            },
            "CrashLoopBackOff",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False"}]},
            "Unschedulable",
        ),
    ],
    ids=["runs", "waits", "beside one that runs", "alone", "first ones", "no node"],
)
def test_why_a_server_does_not_run(status: dict[str, Any], reason: str | None) -> None:
    """A container beside a broker that serves says nothing of the broker."""
    assert waiting(status) == reason


@pytest.mark.parametrize(
    ("reason", "image"),
    [("ErrImagePull", "a:1"), ("ImagePullBackOff", "a:1"), ("CrashLoopBackOff", "")],
)
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_the_image_that_a_pod_cannot_have(kind: str, reason: str, image: str) -> None:
    other = {"name": "broker", "image": "b:1"} if kind == "initContainers" else None
    spec = {kind: [{"name": "one", "image": "a:1"}], **({"containers": [other]} if other else {})}
    said = {f"{kind.removesuffix('s')}Statuses": [waits("one", reason)]}
    assert missing_image({"spec": spec, "status": said}) == image


def test_since_when_a_pod_is_as_ready_as_it_is() -> None:
    said = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    assert turned({"conditions": [said]}) == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert turned({"conditions": [{"type": "Ready", "status": "False"}]}) is None
    assert turned({}) is None


def ended(code: int, message: str = "", reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"containerStatuses": [RUNS]}, ""),
        (
            {
                "containerStatuses": [
                    {
                        **waits("broker", "CrashLoopBackOff"),
                        "lastState": ended(2, "store.disk_full_ratio: 7.0\n"),
                    }
                ]
            },
            "broker ended with code 2: store.disk_full_ratio: 7.0",
        ),
        (
            {"containerStatuses": [{"name": "broker", "state": ended(137, "", "OOMKilled")}]},
            "broker ended with code 137 (OOMKilled)",
        ),
        (
            {
                "initContainerStatuses": [
                    {**waits("first", "CrashLoopBackOff"), "lastState": ended(1, "no\nroom")}
                ],
                "containerStatuses": [waits("broker", "PodInitializing")],
            },
            "first ended with code 1: no / room",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "name": "broker",
                        "state": {
                            "waiting": {
                                "reason": "CreateContainerConfigError",
                                "message": 'secret "mine" not found',
                            }
                        },
                    }
                ]
            },
            'broker cannot begin: secret "mine" not found',
        ),
        # One beside the server says nothing of it; one that was done is no failure.
        (
            {
                "initContainerStatuses": [
                    {"name": "first", "state": ended(0), "lastState": ended(1)}
                ],
                "containerStatuses": [{"name": "mesh", "state": ended(1)}, RUNS],
            },
            "",
        ),
    ],
)
def test_how_a_container_failed_is_told_in_its_own_words(status: dict[str, Any], said: str) -> None:
    assert failure(status) == said


def test_of_many_words_the_last_ones_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podstatus, "WORDS_MAX", 20)
    status = {
        "containerStatuses": [{"name": "broker", "state": ended(1, "x" * 900 + " it is late")}]
    }
    found = failure(status)
    assert len(found) < 60
    assert found.endswith("xx it is late")
