"""Clients outside come in by load balancers, those inside by pods, and each is told its own way."""

from __future__ import annotations

import json
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from imago_e2e import clusters, gaps, machine
from imago_e2e.clients import ALL, load_of
from imago_e2e.kube import KubeError, until
from imago_e2e.routes import route
from imago_testing.interop.drivers import running_drivers
from imago_testing.interop.rocketmq import RocketmqClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator

pytestmark = pytest.mark.own_nodes
NAMESPACE = "e2e-listeners"
NODES = "10.99.0.0/16"
LISTENERS = (
    {"name": "in", "type": "Internal"},
    {"name": "lb", "type": "LoadBalancer", "metaq": {"zookeeperSourceRanges": [NODES]}},
)
LEARNT_SECONDS_MAX = 240.0
"""A kubelet brings a ConfigMap's new content to its pods within a minute, and its own delays."""


class Cloud:
    """What a cloud's controller does: each Service of type LoadBalancer gets an address.

    Traffic to it is taken up by kube-proxy on every node, as behind a load balancer of that cloud.
    """

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube, self._namespace = kube, namespace
        self._given: dict[str, str] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def address(self, service: str) -> str:
        """Return the address of a Service; KubeError: it has none yet."""
        if service not in self._given:
            raise KubeError(f"no load balancer for {service} yet")
        return self._given[service]

    def _work(self) -> None:
        while not self._over.wait(1):
            try:
                self._look()
            except KubeError as error:
                print(f"cloud: {error}")

    def _look(self) -> None:
        for one in self._kube.get("services", "-n", self._namespace)["items"]:
            name = one["metadata"]["name"]
            if one["spec"]["type"] != "LoadBalancer" or one["status"].get("loadBalancer"):
                continue
            address = self._given.setdefault(name, f"198.18.77.{len(self._given) + 1}")
            status = {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}
            words = ("-n", self._namespace, "--subresource=status", "--type=merge")
            self._kube.run("patch", "service", name, *words, "-p", json.dumps(status))


@contextmanager
def cloud(kube: Kube, namespace: str) -> Iterator[Cloud]:
    made = Cloud(kube, namespace)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def test_clients_are_told_the_addresses_of_the_way_that_they_came(
    kube: Kube, operator: Operator, tmp_path: Path, topic: str, account: list[str]
) -> None:
    assert operator.installed()
    given = clusters.manifest(
        kube.namespace(NAMESPACE),
        zookeeper={"managed": {"replicas": 1, "storage": {"size": "1Gi"}}},
        listeners=list(LISTENERS),
    )
    with cloud(kube, NAMESPACE) as balancers:
        brokers = clusters.make(kube, given)
        names = f"{balancers.address('demo-bootstrap-lb')}:9876"
        zookeeper = f"{balancers.address('demo-zookeeper-lb')}:2181"
        pods = brokers.names()
        told = {pod: f"{balancers.address(f'{pod}-lb')}:10911" for pod in pods}
        brokers.make_topic(topic)
        took = until(
            lambda: all(where in route(brokers, names, topic) for where in told.values()),
            "brokers tell the addresses of their load balancers",
            seconds_max=LEARNT_SECONDS_MAX,
        )
        account.append(
            f"addresses of load balancers were told {took:.0f} s after the cluster stood"
        )
        _is_shown(kube, names, zookeeper, told)
        _fail_over(brokers, tmp_path, topic, (names, zookeeper), told, account)
        inside = route(brokers, brokers.bootstrap, topic)
        for pod in pods:
            address = kube.get("pod", pod, "-n", NAMESPACE)["status"]["podIP"]
            assert f"{address}:10911" in inside
        assert "198.18.77." not in inside
    kube.delete_namespace(NAMESPACE)


def _fail_over(
    brokers: Brokers,
    folder: Path,
    topic: str,
    ways: tuple[str, str],
    told: dict[str, str],
    account: list[str],
) -> None:
    """Clients outside send and read over the death of the master's process."""
    kube, (names, zookeeper) = brokers.kube, ways
    with running_drivers(ALL, lambda name: folder / name) as drivers:
        for driver in drivers.values():
            driver.wait_ready()
        with load_of(brokers, drivers, topic, namesrv=names, zookeeper=zookeeper) as running:
            before = brokers.master()
            client = RocketmqClient(5, drivers["rocketmq5"], names)
            with client.admin() as admin:
                assert admin.masters() == {"shard-0": told[before]}
            machine.send(kube.get("pod", before, "-n", NAMESPACE), "imago broker", signal.SIGKILL)
            until(lambda: brokers.master() != before, "another member leads", seconds_max=30)
            running.go_on(300)
            brokers.settled()
            account.append(running.finish())
            gaps.after_a_process(running)
            with client.admin() as admin:
                assert admin.masters() == {"shard-0": told[brokers.master()]}
            client.settle()


def _is_shown(kube: Kube, names: str, zookeeper: str, told: dict[str, str]) -> None:
    """The status says where clients begin, and where they are led."""

    def shown() -> bool:
        status = kube.get("imc", "demo", "-n", NAMESPACE)["status"]
        ways = {way["name"]: way for way in status["listeners"]}
        found = {one["pod"]: one["rocketmq"] for one in ways["lb"].get("brokers", ())}
        asked = (ways["lb"].get("bootstrapServers"), ways["lb"].get("zookeeper"))
        return asked == (names, zookeeper) and found == told

    until(shown, "the status has the addresses of load balancers", seconds_max=60)
