"""Which listeners a cluster has, and which ports of its brokers are theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from imago_operator.spec.cluster.listeners import ListenerType, PerBroker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_operator.spec.cluster.cluster import ClusterSpec
    from imago_operator.spec.cluster.listeners import ExternalListener

_FIRST_PORT: Final = 15000
_PROTOCOLS: Final = {"namesrv": "n", "metaq": "m", "rocketmq": "r", "grpc": "g"}
"""By protocol, what the name of a listener's port begins with: 15 characters are the most."""


def are_apart(spec: ClusterSpec) -> bool:
    """Whether each listener has ports of its own, so that those inside have addresses of theirs.

    A single one was told to all clients before there were several; what was made so stays so.
    """
    if len(spec.listeners) != 1:
        return bool(spec.listeners)
    (only,) = spec.listeners
    told = only.type is ListenerType.NODE_PORT or only.advertised_host_template is not None
    return not told or only.metaq is not None or only.per_broker != PerBroker()


def outside(spec: ClusterSpec) -> tuple[ExternalListener, ...]:
    """Return the listeners for clients outside of the Kubernetes cluster."""
    return tuple(way for way in spec.listeners if way.type is not ListenerType.INTERNAL)


def own_ports(spec: ClusterSpec, listener: ExternalListener) -> dict[str, int]:
    """Return the ports of brokers that are a listener's own, by protocol; none: it shares theirs.

    By its place in the list: whatever is added behind it changes none of them.
    """
    if not are_apart(spec) or listener.type is ListenerType.INTERNAL:
        return {}
    first = _FIRST_PORT + 10 * spec.listeners.index(listener)
    served = [name for name in _PROTOCOLS if name != "grpc" or lets_sdks_in(spec, listener)]
    return {name: first + list(_PROTOCOLS).index(name) for name in served}


def port_name(protocol: str, listener: ExternalListener) -> str:
    """Return the name of a listener's own port in pods."""
    return f"{_PROTOCOLS[protocol]}-{listener.name}"


def listener_ports(spec: ClusterSpec) -> dict[str, int]:
    """Return the ports that listeners have of their own, by name."""
    return {
        port_name(protocol, way): port
        for way in spec.listeners
        for protocol, port in own_ports(spec, way).items()
    }


def learns_hosts(spec: ClusterSpec) -> bool:
    """Whether brokers are told addresses that load balancers have got."""
    return are_apart(spec) and any(map(is_learnt, spec.listeners))


def is_learnt(listener: ExternalListener) -> bool:
    """Whether what clients are told is the address that a load balancer has got."""
    balanced = listener.type is ListenerType.LOAD_BALANCER
    return balanced and listener.advertised_host_template is None


def serves_sdks(spec: ClusterSpec) -> bool:
    """Whether brokers have a port for RocketMQ 5's SDKs, which speak gRPC."""
    said = spec.brokers.config.get("rocketmq.grpc_enabled")
    return said is None or str(said.value).lower() != "false"


def lets_sdks_in(spec: ClusterSpec, listener: ExternalListener) -> bool:
    """Whether SDKs come in by a listener: with ports on the nodes only where it says which."""
    by_nodes = listener.first_node_port is not None
    return serves_sdks(spec) and (listener.first_grpc_node_port is not None or not by_nodes)


_OF_SERVICES: Final = ("bootstrapHost", "loadBalancerSourceRanges", "admin", "perBroker", "metaq")
_NOTED: Final = ("labels", "annotations")


def told_to_pods(listeners: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return what pods are told of ways in: not where clients ask first, nor of Services."""
    found = []
    for way in listeners:
        said = {key: part for key, part in way.items() if key not in _OF_SERVICES}
        ports = {k: v for k, v in way.get("perBroker", {}).items() if k not in _NOTED}
        said |= {"perBroker": ports} if ports else {}
        found.append(said | ({"metaq": True} if "metaq" in way else {}))
    return found
