"""Ways in: the Services that clients, brokers and the operator use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.manifests.common import Manifest, child, selector
from imago_operator.model import names
from imago_operator.model.desired import ZOOKEEPER_PORT
from imago_operator.model.listeners import (
    are_apart,
    lets_sdks_in,
    listener_ports,
    outside,
    own_ports,
    port_name,
)
from imago_operator.model.podfiles import METAQ_TLS_PORT
from imago_operator.spec.cluster.listeners import ListenerType
from imago_operator.spec.cluster.zookeeper import RegistryTls
from imago_operator.spec.schema.common import ChildMetadata

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

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
ADMIN_OFFSET: Final = 19
"""The same of administration: no member has so high a number."""
ENDPOINTS_OFFSET: Final = 9
"""The same of what SDKs ask first, from the first one for them on."""
CLIENT_PORTS: Final = ("namesrv", "metaq", "rocketmq", "fast", "grpc")


def ports_of(desired: Desired) -> dict[str, int]:
    """Return the ports that a cluster's brokers have, by name."""
    found = PORTS if desired.spec.tls is None else PORTS | TLS_PORTS
    return found | listener_ports(desired.spec)


def _inside(desired: Desired) -> dict[str, int]:
    return PORTS if desired.spec.tls is None else PORTS | TLS_PORTS


def client_ports(desired: Desired) -> tuple[str, ...]:
    """Return the names of those that are for clients."""
    return CLIENT_PORTS if desired.spec.tls is None else (*CLIENT_PORTS, *TLS_PORTS)


def services(desired: Desired) -> list[Manifest]:
    """Return the Services that every cluster has."""
    return [
        _service(desired, names.headless(desired.name), tuple(_inside(desired)), headless=True),
        _service(desired, names.bootstrap(desired.name), client_ports(desired)),
        _service(desired, names.admin(desired.name), ("admin",)),
    ]


def external_services(
    desired: Desired, shards: Iterable[int], behind: Collection[str] = ()
) -> list[Manifest]:
    """Return the Services for clients from outside: of single brokers, and of what finds them.

    `behind`: the pods that have not been restarted since the listeners came, whose Services lead to
    the ports that all clients share; with the bootstrap Service's name where that concerns all.
    """
    found = []
    for listener in outside(desired.spec):
        found += _finding(desired, listener, names.bootstrap(desired.name) not in behind)
        found += [
            _external(desired, listener, shard, ordinal, behind)
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
    first = listener.first_grpc_node_port if name == "grpc" else listener.first_node_port
    return _numbered(first, shard, name)


def told_port(listener: ExternalListener, shard: int, name: str) -> int | None:
    """Return the port of a shard's member 0 that clients are told; None: that of the Service."""
    own = listener.per_broker
    first = own.first_grpc_port if name == "grpc" else own.first_port
    found = None if name == "namesrv" else _numbered(first, shard, name)
    return node_port(listener, shard, name) if found is None else found


def _numbered(first: int | None, shard: int, name: str) -> int | None:
    if first is None:
        return None
    if name == "grpc":
        return first + _SDK_PORTS_PER_SHARD * shard
    offset = 0 if name == "metaq" else 10
    return first + _PORTS_PER_SHARD * shard + offset


def outside_name(name: str, listener: ExternalListener) -> str:
    """Return the name of the Service by which a pod, or a Service, is reached from outside."""
    return f"{name}-{listener.name}"


def serves_plain_zookeeper(desired: Desired) -> bool:
    """Whether MetaQ's clients find brokers in a ZooKeeper of the cluster's own."""
    managed = desired.spec.zookeeper.managed is not None
    return managed and desired.registry_tls is not RegistryTls.ENFORCING


def _finding(desired: Desired, listener: ExternalListener, apart: bool) -> list[Manifest]:
    """Return the Services that clients ask first: brokers that know all, a managed ZooKeeper."""
    first, of_sdks = listener.first_node_port, listener.first_grpc_node_port
    asked = [_on_nodes(_led(desired, listener, "namesrv", apart), first, NAME_SERVICE_OFFSET)]
    if lets_sdks_in(desired.spec, listener):
        asked.append(_on_nodes(_led(desired, listener, "grpc", apart), of_sdks, ENDPOINTS_OFFSET))
    if listener.admin:
        asked.append(_on_nodes(_port("admin"), first, ADMIN_OFFSET))
    ways = [(names.bootstrap(desired.name), names.BROKER, asked)]
    if opens_zookeeper(desired, listener):
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
        ranges = listener.load_balancer_source_ranges
        if component == names.ZOOKEEPER and listener.metaq is not None:
            ranges = listener.metaq.zookeeper_source_ranges
            # Who calls is seen as he is, for the NetworkPolicy to tell.
            spec["externalTrafficPolicy"] = "Local"
        spec |= _let_in(listener, ranges)
        extra = listener.service_template.metadata
        named = outside_name(name, listener)
        found.append(child(desired, "v1", "Service", named, component, {"spec": spec}, extra=extra))
    return found


def _let_in(listener: ExternalListener, ranges: tuple[str, ...]) -> Manifest:
    balanced = listener.type is ListenerType.LOAD_BALANCER
    return {"loadBalancerSourceRanges": list(ranges)} if balanced and ranges else {}


def opens_zookeeper(desired: Desired, listener: ExternalListener) -> bool:
    """Whether a listener's clients reach a managed ZooKeeper."""
    opened = listener.metaq is not None or not are_apart(desired.spec)
    return opened and serves_plain_zookeeper(desired)


def _led(desired: Desired, listener: ExternalListener, name: str, apart: bool) -> Manifest:
    """Return the port of a listener's Services, which leads to its own in pods if it has one."""
    own = apart and name in own_ports(desired.spec, listener)
    return _port(name) | ({"targetPort": port_name(name, listener)} if own else {})


def _on_nodes(port: Manifest, first: int | None, offset: int) -> Manifest:
    return port if first is None else port | {"nodePort": first + offset}


def _external(
    desired: Desired,
    listener: ExternalListener,
    shard: int,
    ordinal: int,
    behind: Collection[str],
) -> Manifest:
    pod = names.pod(desired.name, shard, ordinal)
    apart = are_apart(desired.spec) and pod not in behind
    ports = [
        _on_nodes(_led(desired, listener, name, apart), node_port(listener, shard, name), ordinal)
        for name in broker_ports(desired, listener)
    ]
    if listener.tls and not apart:
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
        **_let_in(listener, listener.load_balancer_source_ranges),
    }

    def filled(texts: Mapping[str, str]) -> dict[str, str]:
        words = {"shard": shard, "ordinal": ordinal, "pod": pod, "namespace": desired.namespace}
        return {key: _filled(text, words) for key, text in texts.items()}

    added, own = listener.service_template.metadata, listener.per_broker
    extra = ChildMetadata(
        labels={**added.labels, **filled(own.labels)},
        annotations={**added.annotations, **filled(own.annotations)},
    )
    return child(
        desired,
        "v1",
        "Service",
        outside_name(pod, listener),
        names.BROKER,
        {"spec": spec},
        shard=shard,
        extra=extra,
    )


def _filled(text: str, words: Mapping[str, object]) -> str:
    for word, said in words.items():
        text = text.replace(f"{{{word}}}", str(said))
    return text


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
