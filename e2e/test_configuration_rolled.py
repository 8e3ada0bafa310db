"""A person changes settings while unmodified clients work: they notice nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from imago_e2e.clients import load
from imago_e2e.kube import until
from imago_e2e.operator import until_ready

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_testing.java.driver import JavaDriver

GAP_SECONDS_MAX = 1.0
ROLLED_SECONDS_MAX = 300.0
DYNAMIC, STATIC = "metaq.stat", "broker.drain_seconds"


def test_a_setting_that_may_change_restarts_nothing(whole: Brokers) -> None:
    before = whole.uids()
    given = "true" if _settings(whole).get(DYNAMIC) != "true" else "false"
    _change(whole, {DYNAMIC: given})
    wanted = {given == "true"}
    until(
        lambda: {_in_force(whole, name, DYNAMIC) for name in whole.names()} == wanted,
        f"every broker has {DYNAMIC}={given}",
        seconds_max=60,
    )
    assert whole.uids() == before


def test_a_setting_that_needs_restarts_is_rolled_out_unnoticed(
    whole: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    before = whole.uids()
    given = 11 if _settings(whole).get(STATIC) != 11 else 12
    with load(whole, drivers, topic) as running:
        _change(whole, {STATIC: given})

        def rolled() -> bool:
            pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in whole.pods()}
            return len(pods) == 3 and all(uid != before[name] for name, uid in pods.items())

        seconds = until(rolled, "all brokers are restarted", seconds_max=ROLLED_SECONDS_MAX)
        whole.settled()
        until_ready(whole.kube, "imc", whole.namespace, whole.name, seconds_max=60)
        running.go_on(100)
        account.append(f"rolled in {seconds:.0f} s, gaps: {running.gaps()}")
        account.append(running.finish())
        running.unharmed()
        assert max(running.gaps().values()) <= GAP_SECONDS_MAX
    servers = {name: uid for name, uid in whole.uids().items() if "zookeeper" in name}
    assert servers == {name: uid for name, uid in before.items() if "zookeeper" in name}


def _settings(brokers: Brokers) -> dict[str, Any]:
    spec = brokers.kube.get("imc", brokers.name, "-n", brokers.namespace)["spec"]
    return dict(spec["brokers"].get("config", {}))


def _in_force(brokers: Brokers, pod: str, key: str) -> object:
    items = brokers.ask(pod, "/admin/v1/config")["items"]
    return next(item["value"] for item in items if item["key"] == key)


def _change(brokers: Brokers, settings: dict[str, object]) -> None:
    patch = json.dumps({"spec": {"brokers": {"config": settings}}})
    brokers.kube.run(
        "patch", "imc", brokers.name, "-n", brokers.namespace, "--type=merge", "-p", patch
    )
