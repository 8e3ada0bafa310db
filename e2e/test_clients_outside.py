"""Clients outside of Kubernetes come in by ports of the nodes, in both protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_e2e import clusters
from imago_e2e.clients import ALL, load_of
from imago_testing.interop.drivers import running_drivers
from imago_testing.interop.rocketmq import RocketmqClient

if TYPE_CHECKING:
    from pathlib import Path

    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator

pytestmark = pytest.mark.own_nodes
NAMESPACE = "e2e-outside"
FIRST_PORT = 31000


def test_original_clients_work_from_outside(
    kube: Kube, operator: Operator, tmp_path: Path, topic: str, account: list[str]
) -> None:
    assert operator.installed()
    listener = {"name": "out", "type": "NodePort", "firstNodePort": FIRST_PORT}
    given = clusters.manifest(
        kube.namespace(NAMESPACE),
        shards=2,
        brokers={"replicasPerShard": 1},
        zookeeper={"managed": {"replicas": 1, "storage": {"size": "1Gi"}}},
        listeners=[listener],
    )
    brokers = clusters.make(kube, given)
    node = kube.pods(NAMESPACE)[0]["status"]["hostIP"]
    names, zookeeper = f"{node}:{FIRST_PORT + 9}", f"{node}:{FIRST_PORT + 8}"
    expected = {
        f"shard-{shard}": f"{_node_of(kube, shard)}:{FIRST_PORT + 20 * shard + 10}"
        for shard in (0, 1)
    }
    with running_drivers(ALL, lambda name: tmp_path / name) as drivers:
        for driver in drivers.values():
            driver.wait_ready()
        with load_of(brokers, drivers, topic, namesrv=names, zookeeper=zookeeper) as running:
            running.go_on()
            account.append(running.finish())
            running.unharmed()
            client = RocketmqClient(5, drivers["rocketmq5"], names)
            with client.admin() as admin:
                assert admin.masters() == expected
            client.settle()
    kube.delete_namespace(NAMESPACE)


def _node_of(kube: Kube, shard: int) -> str:
    return str(kube.get("pod", f"demo-s{shard}-0", "-n", NAMESPACE)["status"]["hostIP"])
