"""Clients outside of Kubernetes come in by ports of the nodes, in both protocols and gRPC."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_e2e import clusters
from imago_e2e.clients import ALL, load_of
from imago_testing.interop.drivers import running_drivers
from imago_testing.interop.rocketmq import RocketmqClient
from imago_testing.peers.sdk_calls import message, named, sends
from imago_testing.peers.sdk_peer import SdkPeer
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import make

if TYPE_CHECKING:
    from pathlib import Path

    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator

pytestmark = pytest.mark.own_nodes
NAMESPACE = "e2e-outside"
FIRST_PORT, FIRST_SDK_PORT = 31000, 31500


def test_original_clients_work_from_outside(
    kube: Kube, operator: Operator, tmp_path: Path, topic: str, account: list[str]
) -> None:
    assert operator.installed()
    listener = {"name": "out", "type": "NodePort", "firstNodePort": FIRST_PORT}
    listener["firstGrpcNodePort"] = FIRST_SDK_PORT
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
    told, answered = asyncio.run(_send_as_sdk(topic, node))
    assert told == {f"shard-{n}": (_node_of(kube, n), FIRST_SDK_PORT + 10 * n) for n in (0, 1)}
    assert answered == {f"shard-{n}": int(SdkCode.OK) for n in (0, 1)}
    account.append(f"a gRPC client outside was told {told}, and sent to each")
    kube.delete_namespace(NAMESPACE)


async def _send_as_sdk(topic: str, node: str) -> tuple[dict[str, tuple[str, int]], dict[str, int]]:
    """Ask the endpoints for a route, and send to each broker where the route says it is."""
    asked = await SdkPeer.connect(FIRST_SDK_PORT + 9, node)
    route = await asked.call("QueryRoute", make("QueryRouteRequest", topic=named(topic)))
    await asked.close()
    told = {
        queue.broker.name: (at.host, at.port)
        for queue in route.message_queues
        for at in queue.broker.endpoints.addresses
    }
    answered = {}
    for shard, (host, port) in sorted(told.items()):
        peer = await SdkPeer.connect(port, host)
        answer = await peer.call("SendMessage", sends(message(topic)))
        answered[shard] = answer.status.code
        await peer.close()
    return told, answered


def _node_of(kube: Kube, shard: int) -> str:
    return str(kube.get("pod", f"demo-s{shard}-0", "-n", NAMESPACE)["status"]["hostIP"])
