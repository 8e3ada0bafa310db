"""A cluster of the version before gets this one, goes back, comes again and then stays.

Its image is made of the clone's history (docs/versions.md); operator and clients are of today.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from imago_e2e import clusters, versions
from imago_e2e.clients import load
from imago_e2e.kube import until
from imago_e2e.operator import condition, status, until_ready

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator
    from imago_testing.java.driver import JavaDriver

NAMESPACE, NAME = "e2e-former", "former"
GAP_SECONDS_MAX: Final = 5.0
"""The version before passes its clients on more slowly than this one."""
ROLLED_SECONDS_MAX: Final = 300.0
TOLD_SECONDS_MAX: Final = 90.0


@pytest.fixture(name="former", scope="module")
def _former(kube: Kube, operator: Operator) -> Iterator[Brokers]:
    assert operator.installed()
    versions.former_is_there()
    managed = {"replicas": 3, "storage": {"size": "1Gi"}, "tls": "None", "authentication": "None"}
    more: dict[str, Any] = {"version": versions.FORMER, "featureLevel": 1}
    given = clusters.manifest(
        kube.namespace(NAMESPACE), NAME, zookeeper={"managed": managed}, **more
    )
    yield clusters.make(kube, given)
    kube.delete_namespace(NAMESPACE)


def test_a_cluster_goes_up_back_and_up_and_its_level_ends_the_way_back(
    former: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    assert former.versions() == {versions.FORMER}
    with load(former, drivers, topic) as running:
        for version in (versions.current(), versions.FORMER, versions.current()):
            seconds = _give(former, version)
            running.go_on(100)
            account.append(f"{version}: rolled in {seconds:.0f} s, gaps: {running.gaps()}")
            assert former.versions() == {version}
        assert _status(former)["featureLevel"] == 1, "a person holds it"
        _patch(former, {"featureLevel": None})
        until(
            lambda: _status(former).get("featureLevel") == 2,
            "the level has risen",
            seconds_max=TOLD_SECONDS_MAX,
        )
        running.go_on(100)
        uids = former.uids()
        _patch(former, {"version": versions.FORMER})
        until(lambda: _refused(former), "the way back is refused", seconds_max=TOLD_SECONDS_MAX)
        running.go_on(100)
        assert former.uids() == uids
        _patch(former, {"version": versions.current()})
        account.append(running.finish())
        running.unharmed()
        assert max(running.gaps().values()) <= GAP_SECONDS_MAX


def _give(brokers: Brokers, version: str) -> float:
    """Have all brokers run a version; return the seconds that took."""
    _patch(brokers, {"version": version})
    image = f"imago/broker:{version}"

    def rolled() -> bool:
        return {pod["spec"]["containers"][0]["image"] for pod in brokers.pods()} == {image}

    seconds = until(rolled, f"all brokers run {image}", seconds_max=ROLLED_SECONDS_MAX)
    brokers.settled()
    until_ready(brokers.kube, "imc", brokers.namespace, brokers.name, seconds_max=60)
    return seconds


def _patch(brokers: Brokers, spec: dict[str, Any]) -> None:
    named = ("imc", brokers.name, "-n", brokers.namespace)
    brokers.kube.run("patch", *named, "--type=merge", "-p", json.dumps({"spec": spec}))


def _status(brokers: Brokers) -> dict[str, Any]:
    return dict(status(brokers.kube, "imc", brokers.namespace, brokers.name))


def _refused(brokers: Brokers) -> bool:
    if all(each["type"] != "Stalled" for each in _status(brokers).get("conditions", [])):
        return False
    told = condition(brokers.kube, "imc", brokers.namespace, brokers.name, "Stalled")
    return told["status"] == "True" and "feature level 2" in told["message"]
