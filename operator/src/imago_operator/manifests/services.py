"""Ways in: the Services that clients, brokers and the operator use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.manifests.common import Manifest, child, selector
from imago_operator.model import names
from imago_operator.model.desired import ZOOKEEPER_PORT
from imago_operator.model.outside import lets_sdks_in
from imago_operator.model.podfiles import METAQ_TLS_PORT
from imago_operator.spec.cluster.zookeeper import RegistryTls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_operator.model.desired import Desired
    from imago_operator.spec.cluster.listeners import ExternalListener

METAQ, ROCKETMQ, FAST, SDKS, REPLICATION = 8123, 10911, 10909, 8081, 10912
NAME_SERVICE, ADMIN = 9876, 8080
PORTS: Final = {
    "metaq": METAQ,
    "rocketmq": ROCKETMQ,
    "fast": FAST,
    "grpc": SDKS,
    "replication": REPLICATION,
    "namesrv": NAME_SERVICE,
    "admin": ADMIN,
}
TLS_PORTS: Final = {"metaq-tls": METAQ_TLS_PORT}
"""More of them, where brokers have certificates."""
_PORTS_PER_SHARD, _SDK_PORTS_PER_SHARD = 20, 10
NAME_SERVICE_OFFSET, ZOOKEEPER_OFFSET = 9, 8
"""Ports on the nodes, from a listener's first one on."""
ENDPOINTS_OFFSET: Final = 9
"""The same of what SDKs ask first, from the first one for them on."""
CLIENT_PORTS: Final = ("namesrv", "metaq", "rocketmq", "fast", "grpc")


def ports_of(desired: Desired) -> dict[str, int]:
    """Return the ports that a cluster's brokers have, by name."""
    return PORTS if desired.spec.tls is None else PORTS | TLS_PORTS


def client_ports(desired: Desired) -> tuple[str, ...]:
    """Return the names of those that are for clients."""
    return CLIENT_PORTS if desired.spec.tls is None else (*CLIENT_PORTS, *TLS_PORTS)


def services(desired: Desired) -> list[Manifest]:
    """Return the Services that every cluster has."""
    return [
        _service(desired, names.headless(desired.name), tuple(ports_of(desired)), headless=True),
        _service(desired, names.bootstrap(desired.name), client_ports(desired)),
        _service(desired, names.admin(desired.name), ("admin",)),
    ]


def external_services(desired: Desired, shards: Iterable[int]) -> list[Manifest]:
    """Return the Services for clients from outside: of single brokers, and of what finds them."""
    found = []
    for listener in desired.spec.listeners:
        found += _finding(desired, listener)
        found += [
            _external(desired, listener, shard, ordinal)
            for shard in sorted(shards)
            for ordinal in range(desired.members_there)
        ]
    return found


def broker_ports(desired: Desired, listener: ExternalListener) -> tuple[str, ...]:
    """Return the names of the ports at which a listener leads to single brokers."""
    sdks = ("grpc",) if lets_sdks_in(desired.spec, listener) else ()
    return ("metaq", "rocketmq", *sdks)


def node_port(listener: ExternalListener, shard: int, name: str) -> int | None:
    """Return the port on the nodes of a shard's member 0; the last digit is the member's number.

    So that a pod can be told its ports in terms of its ordinal, and no other shard changes them.
    None: the listener has no such port on nodes.
    """
    if name == "grpc":
        first = listener.first_grpc_node_port
        return None if first is None else first + _SDK_PORTS_PER_SHARD * shard
    first = listener.first_node_port
    offset = 0 if name == "metaq" else 10
    return None if first is None else first + _PORTS_PER_SHARD * shard + offset


def outside_name(name: str, listener: ExternalListener) -> str:
    """Return the name of the Service by which a pod, or a Service, is reached from outside."""
    return f"{name}-{listener.name}"


def serves_plain_zookeeper(desired: Desired) -> bool:
    """Whether MetaQ's clients find brokers in a ZooKeeper of the cluster's own."""
    managed = desired.spec.zookeeper.managed is not None
    return managed and desired.registry_tls is not RegistryTls.ENFORCING


def _finding(desired: Desired, listener: ExternalListener) -> list[Manifest]:
    """Return the Services that clients ask first: brokers that know all, a managed ZooKeeper."""
    first, of_sdks = listener.first_node_port, listener.first_grpc_node_port
    asked = [_on_nodes(_port("namesrv"), first, NAME_SERVICE_OFFSET)]
    if lets_sdks_in(desired.spec, listener):
        asked.append(_on_nodes(_port("grpc"), of_sdks, ENDPOINTS_OFFSET))
    ways = [(names.bootstrap(desired.name), names.BROKER, asked)]
    if serves_plain_zookeeper(desired):
        client = {"name": "client", "port": ZOOKEEPER_PORT, "targetPort": "client"}
        registry = [_on_nodes(client, first, ZOOKEEPER_OFFSET)]
        ways.append((names.zookeeper(desired.name), names.ZOOKEEPER, registry))
    found = []
    for name, component, ports in ways:
        spec = {
            "type": listener.type.value,
            "selector": selector(desired, component),
            "ports": ports,
        }
        extra = listener.service_template.metadata
        named = outside_name(name, listener)
        found.append(child(desired, "v1", "Service", named, component, {"spec": spec}, extra=extra))
    return found


def _on_nodes(port: Manifest, first: int | None, offset: int) -> Manifest:
    return port if first is None else port | {"nodePort": first + offset}


def _external(desired: Desired, listener: ExternalListener, shard: int, ordinal: int) -> Manifest:
    pod = names.pod(desired.name, shard, ordinal)
    ports = [
        _on_nodes(_port(name), node_port(listener, shard, name), ordinal)
        for name in broker_ports(desired, listener)
    ]
    if listener.tls:
        # The number outside stays: what clients have written down still leads to MetaQ.
        ports[0]["targetPort"] = "metaq-tls"
    spec: Manifest = {
        "type": listener.type.value,
        # Its clients get the node that the pod is on.
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
        outside_name(pod, listener),
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
    return {"name": name, "port": (PORTS | TLS_PORTS)[name], "targetPort": name, "protocol": "TCP"}
