"""A cluster that tells everybody one address gets another for those inside, under its clients."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from imago_e2e import clusters
from imago_e2e.clients import ALL, load_of
from imago_e2e.kube import until
from imago_e2e.routes import route
from imago_testing.interop.drivers import running_drivers

if TYPE_CHECKING:
    from pathlib import Path

    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator

pytestmark = pytest.mark.own_nodes
NAMESPACE = "e2e-parted"
FIRST_PORT = 31200
OUT = {"name": "out", "type": "NodePort", "firstNodePort": FIRST_PORT}
IN = "demo-bootstrap.e2e-parted.svc:9876"
ROLLED_SECONDS_MAX = 300.0


def test_clients_outside_go_on_while_those_inside_get_addresses_of_their_own(
    kube: Kube, operator: Operator, tmp_path: Path, topic: str, account: list[str]
) -> None:
    assert operator.installed()
    given = clusters.manifest(
        kube.namespace(NAMESPACE),
        zookeeper={"managed": {"replicas": 1, "storage": {"size": "1Gi"}}},
        listeners=[OUT],
    )
    brokers = clusters.make(kube, given)
    before = brokers.uids()
    [server] = brokers.servers()
    zookeeper = f"{server['status']['hostIP']}:{FIRST_PORT + 8}"
    names = ";".join(f"10.99.0.{node}:{FIRST_PORT + 9}" for node in (1, 2, 3))
    assert set(_targets(kube).values()) == {"metaq"}
    with running_drivers(ALL, lambda name: tmp_path / name) as drivers:
        for driver in drivers.values():
            driver.wait_ready()
        with load_of(brokers, drivers, topic, namesrv=names, zookeeper=zookeeper) as running:
            metaq = {"metaq": {"zookeeperSourceRanges": ["10.99.0.0/16"]}}
            ways = [{"name": "in", "type": "Internal"}, OUT | metaq]
            patch = json.dumps({"spec": {"listeners": ways}})
            kube.run("patch", "imc", "demo", "-n", NAMESPACE, "--type=merge", "-p", patch)

            def rolled() -> bool:
                pods = brokers.pods()
                return len(pods) == 3 and all(
                    pod["metadata"]["uid"] != before[pod["metadata"]["name"]] for pod in pods
                )

            seconds = until(rolled, "brokers are restarted", seconds_max=ROLLED_SECONDS_MAX)
            brokers.settled()
            until(
                lambda: set(_targets(kube).values()) == {"m-out"},
                "each Service leads to the listener's port",
                seconds_max=60,
            )
            running.go_on(100)
            account.append(f"parted in {seconds:.0f} s, gaps: {running.gaps()}")
            account.append(running.finish())
    inside, outside = (
        route(brokers, where, f"{topic}-rocketmq5") for where in (IN, names.partition(";")[0])
    )
    for pod in brokers.pods():
        own, node = (pod["status"][key] for key in ("podIP", "hostIP"))
        assert f"{own}:10911" in inside
        assert f"{node}:{FIRST_PORT + 10 + int(pod['metadata']['name'][-1])}" in outside
    assert f":{FIRST_PORT + 10}" not in inside
    kube.delete_namespace(NAMESPACE)


def _targets(kube: Kube) -> dict[str, str]:
    """Return where the Services of single brokers lead MetaQ's clients."""
    found: list[dict[str, Any]] = kube.get("services", "-n", NAMESPACE)["items"]
    return {
        one["metadata"]["name"]: one["spec"]["ports"][0]["targetPort"]
        for one in found
        if one["metadata"]["name"].startswith("demo-s")
    }
