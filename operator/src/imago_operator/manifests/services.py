"""Ways in: the Services that clients, brokers and the operator use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator import names
from imago_operator.manifests.common import Manifest, child, selector
from imago_operator.spec.cluster import Listener, ListenerType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_operator.desired import Desired

METAQ, ROCKETMQ, FAST, REPLICATION = 8123, 10911, 10909, 10912
NAME_SERVICE, ADMIN = 9876, 8080
PORTS: Final = {
    "metaq": METAQ,
    "rocketmq": ROCKETMQ,
    "fast": FAST,
    "replication": REPLICATION,
    "namesrv": NAME_SERVICE,
    "admin": ADMIN,
}
CLIENT_PORTS: Final = ("namesrv", "metaq", "rocketmq", "fast")


def services(desired: Desired) -> list[Manifest]:
    """Return the Services that every cluster has."""
    return [
        _service(desired, names.headless(desired.name), tuple(PORTS), headless=True),
        _service(desired, names.bootstrap(desired.name), CLIENT_PORTS),
        _service(desired, names.admin(desired.name), ("admin",)),
    ]


def external_services(desired: Desired, shards: Iterable[int]) -> list[Manifest]:
    """Return the Services of single brokers, where clients come from outside."""
    found = []
    for listener in desired.spec.listeners:
        index = 0
        for shard in sorted(shards):
            for ordinal in range(desired.replicas):
                found.append(_external(desired, listener, shard, ordinal, index))
                index += 1
    return found


def _external(
    desired: Desired, listener: Listener, shard: int, ordinal: int, index: int
) -> Manifest:
    pod = names.pod(desired.name, shard, ordinal)
    ports: list[Manifest] = [_port("metaq"), _port("rocketmq")]
    if listener.first_node_port is not None:
        for offset, port in enumerate(ports):
            port["nodePort"] = listener.first_node_port + 2 * index + offset
    node_port = listener.type is ListenerType.NODE_PORT
    spec: Manifest = {
        "type": "NodePort" if node_port else "LoadBalancer",
        "externalTrafficPolicy": "Local",
        # A member that catches up must be reached by the clients it still relays.
        "publishNotReadyAddresses": True,
        "selector": {
            **selector(desired, names.BROKER, shard),
            "statefulset.kubernetes.io/pod-name": pod,
        },
        "ports": ports,
    }
    return child(
        desired,
        "v1",
        "Service",
        f"{pod}-{listener.name}",
        names.BROKER,
        {"spec": spec},
        shard=shard,
        extra=listener.service_template.metadata,
    )


def _service(
    desired: Desired, name: str, ports: tuple[str, ...], *, headless: bool = False
) -> Manifest:
    spec: Manifest = {
        "selector": selector(desired, names.BROKER),
        "ports": [_port(port) for port in ports],
    }
    if headless:
        # Members find each other, and the operator finds them, before they are ready.
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    extra = desired.spec.brokers.template.service.metadata
    return child(desired, "v1", "Service", name, names.BROKER, {"spec": spec}, extra=extra)


def _port(name: str) -> Manifest:
    return {"name": name, "port": PORTS[name], "targetPort": name, "protocol": "TCP"}
