"""A topic's resource is deleted by mistake: its messages stay, and a new resource takes it over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imago_e2e.clients import load
from imago_e2e.kube import KubeError
from imago_e2e.operator import until_ready

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_testing.java.driver import JavaDriver

READY_SECONDS_MAX = 60.0


def test_messages_outlive_the_resource(
    whole: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    named = f"{topic}-metaq"
    kept = _resource(whole, named, partitions=6)
    whole.kube.apply(kept)
    account.append(f"made in {_ready(whole, named):.1f} s")
    assert _queues(whole, named) == 6
    with load(whole, {"metaq": drivers["metaq"]}, topic) as running:
        account.append(running.finish())
        acknowledged = len(running.producers[0].acknowledged)
    whole.kube.run("delete", "imt", named, "-n", whole.namespace, "--timeout=30s")
    assert _messages(whole, named) == acknowledged
    whole.kube.apply(kept)
    account.append(f"adopted in {_ready(whole, named):.1f} s")
    assert _messages(whole, named) == acknowledged
    assert _queues(whole, named) == 6


def test_a_topic_that_is_to_go_goes(whole: Brokers, topic: str) -> None:
    whole.kube.apply(_resource(whole, topic, deletionPolicy="Delete"))
    _ready(whole, topic)
    whole.kube.run("delete", "imt", topic, "-n", whole.namespace, "--timeout=60s")
    with pytest.raises(KubeError, match="404"):
        _topic(whole, topic)


def _resource(brokers: Brokers, name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "imago.dev/v1alpha1",
        "kind": "ImagoTopic",
        "metadata": {"name": name, "namespace": brokers.namespace},
        "spec": {"clusterRef": {"name": brokers.name}, **spec},
    }


def _ready(brokers: Brokers, name: str) -> float:
    return until_ready(brokers.kube, "imt", brokers.namespace, name, seconds_max=READY_SECONDS_MAX)


def _topic(brokers: Brokers, name: str) -> dict[str, Any]:
    found: dict[str, Any] = brokers.ask(brokers.master(), f"/admin/v1/topics/{name}")
    return found


def _queues(brokers: Brokers, name: str) -> int:
    return len(_topic(brokers, name)["queues"])


def _messages(brokers: Brokers, name: str) -> int:
    return int(_topic(brokers, name)["messages"])
